/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between a node and the master, as plain structs. On one machine they travel through an in-process
 * queue (net/channel.h); between machines their encoding is net/'s business. master/ and store/ meet only here.
 *
 * A request is answered exactly once, by a message of the same type with the same req_id; a request that is sent
 * again with the same req_id gets the same answer. Notices from the master (MSG_NAME_REVOKE, MSG_SSD_PERSIST,
 * MSG_DROP) are not answered as such: their effect comes back as a request of its own (MSG_SSD_COMMIT,
 * MSG_DELETE_ACK).
 *
 * Every message but MSG_JOIN carries the tomb_tag of the sender's incarnation; -ESTALE when it is not the live one, and
 * -EUNATCH when the master, started again, knows it from its catalogue and waits for its MSG_JOIN and inventory:
 * nothing has happened then, and the request is to be sent again behind them. The req_id of MSG_JOIN is drawn at
 * random, for a node that comes back does not know which ones it had used; they grow from there, so that a
 * MSG_INVENTORY from before a second MSG_JOIN is known as such.
 *
 * Notices keep their order with the answers that wait for the catalogue, but other answers may overtake both: that is
 * what lease sequences are for. An answer that ends its sender's own lease (DELETE, RMDIR, RENAME) tells a sequence
 * too: a lease with a lower one, also one that is still on its way, is over. A MSG_DROP may come more than once; one
 * for a version that the node does not know is acknowledged only while none of its MSG_PUT_DONEs waits for an answer,
 * for it may be about that one.
 *
 * Ownership: whoever gets a message owns it and its variable part, and ends it with msg_free().
 *
 * Ids: put_ids, directory ids, tickets, allocation ids and get_ids are drawn by the master from one counter that only
 * ever grows, so an id means one thing for ever. MSG_ROOT_DIR is the directory above all namespaces.
 */
#ifndef NET_MSG_H
#define NET_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MSG_NAME_MAX 255
#define MSG_ROOT_DIR 1ull
#define MSG_ADDRESS_MAX 287	    /* a host's name, a port */
#define MSG_MAX_ITEMS 65536u	    /* items in one message */
#define MSG_XATTRS_MAX (64u * 1024) /* bytes of user xattrs of one file or directory, encoded */

/*
 * Errors that more than one request knows: -ESTALE (the sender's incarnation, its ticket or its get is over), -ENOENT
 * (no such directory, name or id), -ENOTDIR, -EINVAL and -ENAMETOOLONG (a name, a number that cannot be), -ENOMEM,
 * -ENOSPC (also a limit of the master: objects, namespaces, bytes of xattrs), -EIO (the catalogue cannot be written). A
 * request that fails has changed nothing.
 */
enum msg_type {
	MSG_NONE,

	/*
	 * Membership: node to master. -EBUSY for a MSG_JOIN while a node with that instance key, or that number, lives.
	 *
	 * A MSG_JOIN that tells a tomb_tag asks to go on as that incarnation. If the answer has the same tag, its
	 * MSG_INVENTORYs are due, and MSG_PUT_RESUMEs before the last of them; until then the node is granted nothing.
	 * With another tag the old incarnation is over, and with it all that was put, granted and leased under it.
	 */
	MSG_JOIN,	/* in: u.join. out: u.join.tomb_tag */
	MSG_HEARTBEAT,	/* in: u.heartbeat. out: u.heartbeat.master_ns, .lease_ns */
	MSG_LEAVE,	/* in: nothing; every replica of the node goes. Its leases are over when it says so */
	MSG_INVENTORY,	/* in: u.inventory, items[] {put_id, block, alloc, bytes, flags MSG_ITEM_MEM, _SSD or _LOOSE}.
			   out: items[].status 0, or -ENOENT: that version is none any more, or that copy none of it */
	MSG_PUT_RESUME, /* in: u.put (ticket, dir, block_size, persist_to_ssd, flags, name), items[] {block, alloc,
			   bytes granted}: a put that was on its way. 0 also where it is done: MSG_PUT_DONE will tell.
			   -EEXIST: it goes on, but its name is somebody else's. With other errors it is over */

	/*
	 * Names: node to master. Answers with an entry fill u.entry. What changes names is answered after the catalogue
	 * has it; what changes attributes, of directories too, is not.
	 *
	 * DELETE, RMDIR, RENAME and PUT_DONE are answered when no other node can have a lease from before on the name
	 * any more. Their sender's own is over with the answer, and he must not use it while he waits for that: another
	 * node may come to have the name meanwhile.
	 *
	 * A directory above all namespaces has ns 0. MKDIR in one makes a namespace if the master is configured so,
	 * else it is -EPERM; namespaces and the directories above them cannot be renamed (-EPERM); RMDIR of a
	 * namespace's root removes the namespace. DELETE of a directory is -EISDIR, RMDIR of an object -ENOTDIR. RENAME
	 * gives what rename(2) would, and -EXDEV across namespaces; an object that it replaces is dropped as by an
	 * overwrite. Ids find orphans too: versions that no name stands for any more, while some node has not yet
	 * acknowledged their MSG_DROP.
	 *
	 * A cookie stands for one name, from its creation until it goes, whatever versions it gets; it is never used
	 * again.
	 */
	MSG_LOOKUP,  /* in: u.name. out: u.entry, with a lease; with -ENOENT u.entry.miss */
	MSG_GETATTR, /* in: u.attr.a.id. out: u.entry (a directory's times, links; an object's attributes), no lease */
	MSG_SETATTR, /* in: u.attr (id, mask, values). out: u.entry, no lease. -EOPNOTSUPP: pin, ttl of a directory */
	MSG_READDIR, /* in: u.readdir. out: ents[] (at most 1024), u.readdir.next_cookie, u.readdir.end */
	MSG_MKDIR,   /* in: u.name + u.name.attr (mode, uid, gid). out: u.entry, with a lease */
	MSG_RMDIR,   /* in: u.name. out: u.entry (what went) */
	MSG_RENAME,  /* in: u.rename. out: u.rename.replaced_id, .lease */
	MSG_DELETE,  /* in: u.name: unlink of an object. out: u.entry (what went) */
	MSG_GETXATTRS, /* in: u.attr.a.id. out: blob */
	MSG_SETXATTRS, /* in: u.attr.a.id, blob: the whole new set */
	MSG_STATFS,    /* in: u.statfs.dir. out: u.statfs */
	MSG_NS_CREATE, /* in: u.ns. -EEXIST; -EINVAL inside another namespace; -ENOTEMPTY: namespaces below it */
	MSG_NS_SET,    /* in: u.ns, only fields named by mask; for what is put from now on */
	MSG_NS_LIST,   /* out: namespaces[] */
	MSG_NS_REMOVE, /* in: u.ns.name; -ENOTEMPTY unless empty. Empty directories above it that have ns 0 go too */

	/*
	 * Put. Grants are whole pages of 4 KiB, one a block, up to the block size. A put without a sign of life (any of
	 * these requests) for 60 s is revoked; its ticket is -ESTALE from then on. PUT_START, PUT_EXTEND: -ENOSPC with
	 * u.put.total, .free when the node's ledger has no room; grants are then as before.
	 *
	 * PUT_START in a directory of ns 0 is -EPERM; with MSG_PUT_EXCL -EEXIST when the name stands for something or
	 * is reserved. PUT_EXTEND to fewer bytes: the file is that short by then. PUT_RESERVE: -EEXIST when another put
	 * has reserved the name. A reservation keeps others from O_EXCL and MKDIR, not from publishing.
	 *
	 * PUT_DONE: items[k] is block k, there is one for each block of u.put.bytes, none for an empty object; .bytes
	 * is the block's exact length; with MSG_ITEM_MEM .alloc is the block's grant, which must be large enough; else
	 * MSG_ITEM_SSD. What was granted beyond the lengths is given back, so the files are trimmed by then. Success
	 * spends the ticket; a failure leaves it as it is: -EISDIR, -ENOENT (the directory), -EXDEV (a directory of
	 * another namespace than PUT_START's), -EFBIG (more than MSG_MAX_ITEMS blocks). u.put.attr: mode, uid, gid,
	 * flags; times that are 0 become now; expires_ns 0 becomes the namespace's ttl. entry.a.id is the put_id,
	 * .storage_id the ticket.
	 */
	MSG_PUT_START,	/* in: u.put (dir, name, flags, bytes = size guess, block_size: 0 for the namespace's). out:
			   u.put.ticket, .block_size, .persist_to_ssd, items[0] (block 0, at least one page) */
	MSG_PUT_EXTEND, /* in: u.put.ticket, items[0] {block, bytes wanted in all; 0 gives the block's grant back}. out:
			   items[0] {block, alloc, bytes} */
	MSG_PUT_RESERVE, /* in: u.put.ticket, dir, name: the O_EXCL reservation moves there; empty name: it is dropped
			  */
	MSG_PUT_DONE, /* in: u.put, items[], blob = xattrs. Answered after the catalogue. out: u.entry, with a lease */
	MSG_PUT_REVOKE, /* in: u.put.ticket: nothing is published, the grants are free */
	MSG_PUT_RENEW,	/* in: u.put.ticket: a sign of life of a long write */

	/*
	 * Get, of current versions and orphans. MSG_SOURCE_MEM_LOCAL plans nothing (get_id 0): the block is there, as
	 * u.get.alloc. Else a target is granted; a get that is not ended within 60 s loses it (-ESTALE), and so does
	 * one whose source dies. A target that is not promoted stays charged until MSG_ALLOC_FREED, or the version's
	 * MSG_DELETE_ACK.
	 *
	 * A node that has no address is no source for others. A plan with a source elsewhere is for u.get.len bytes,
	 * the whole block. Where that source fails, the sender says MSG_GET_REVOKE and asks again: for a few seconds it
	 * is then sent there only if there is no other. -EAGAIN: nobody is known to have it, but the master has been
	 * started again, and an owner that is still to come back may.
	 */
	MSG_GET_START,	/* in: u.get (put_id, block). out: the plan in u.get; -ENOENT, -ENOSPC (with u.get.total, .free)
			 */
	MSG_GET_DONE,	/* in: u.get.get_id. out: u.get.promoted (else the target is temporary) */
	MSG_GET_REVOKE, /* in: u.get (get_id, put_id, block, drop_ssd_source: that SSD replica is none). If the object
			   is gone with it, every holder of a lease is told by MSG_NAME_REVOKE, the sender too. Where
			   the get itself is over, it is the sender's own SSD replica that is meant, and none if
			   u.get.source is another's */

	/*
	 * Replicas: node to master. Items have a status each: 0, -ENOENT (no such version, or no such replica here),
	 * -ENOMEM. An object that loses the last replica of any of its blocks is gone: MSG_ITEM_GONE; what is left of
	 * its other blocks is dropped by MSG_DROP.
	 */
	MSG_SSD_COMMIT,	 /* in: items[] {put_id, block}. out: items[].status: 0 published, -ESTALE ignored: the version
			    is not current, or not in memory here */
	MSG_SSD_EVICT,	 /* in: items[] {put_id, block}: replicas the ring has lost. out: items[].flags MSG_ITEM_GONE */
	MSG_MEM_EVICT,	 /* in: items[] {put_id, block, flags}. out: items[].status 0 or -EBUSY (pinned, in use), flags
			    MSG_ITEM_GONE. The allocation stays charged until MSG_ALLOC_FREED */
	MSG_DELETE_ACK,	 /* in: items[] {put_id}: no holder is left here, the bytes are gone from this node. Status
			    -EBUSY, and ignored, for a version that was not dropped */
	MSG_ALLOC_FREED, /* in: items[] {alloc}: files of confirmed evictions and temporary targets are unlinked, the
			    ledger may fall. Others are ignored */

	/*
	 * Holders: node to master, in batches. A version that a node holds is kept where it is, also when its name
	 * moves on: nobody is told to drop it, and its last copy in memory is not evicted (-EBUSY). Holding twice is
	 * holding once. Items have a status: 0, -ENOENT.
	 */
	MSG_HOLD,	/* in: items[] {put_id} */
	MSG_RELEASE,	/* in: items[] {put_id} */
	MSG_REVOKE_ACK, /* in: u.revoke.seq of a MSG_NAME_REVOKE that asked for it: the node's own table is changed */

	/* notices: master to node */
	MSG_NAME_REVOKE, /* u.revoke: the name (or all names of the directory) is no longer leased. It comes again
			    until its MSG_REVOKE_ACK, where it asks for one; others' DELETE, RENAME, RMDIR and
			    PUT_DONE of that name are answered behind it, or when the node's leases have lapsed */
	MSG_SSD_PERSIST, /* behind the answer of the MSG_PUT_DONE; items[] {put_id, block, alloc, bytes}: copy to the
			    SSD tier, then MSG_SSD_COMMIT */
	MSG_DROP, /* items[] {put_id, block = number of blocks}: the version is deleted or overwritten, or a block of it
		   * is lost: free it when its last holder goes, then MSG_DELETE_ACK */

	MSG_TYPES
};

/* What a name stands for. */
enum msg_kind {
	MSG_KIND_NONE,
	MSG_KIND_DIR,
	MSG_KIND_FILE,
};

#define MSG_ATTR_PIN 1u /* never evict the last copy */

/* The attributes of a directory or of an object's version. */
struct msg_attr {
	uint64_t id;	     /* put_id or directory id: st_ino */
	uint64_t size;	     /* bytes; 0 for directories */
	uint64_t storage_id; /* the ticket it was put under; blocks that were spilled before are keyed by it */
	int64_t mtime_ns;    /* since the epoch */
	int64_t ctime_ns;
	int64_t atime_ns;
	int64_t expires_ns; /* 0: never */
	uint32_t kind;	    /* enum msg_kind */
	uint32_t mode;	    /* with the type bits */
	uint32_t uid, gid;
	uint32_t nlink;
	uint32_t flags;	     /* MSG_ATTR_* */
	uint32_t ns;	     /* the namespace's number; 0 outside any */
	uint32_t has_xattrs; /* 0: MSG_GETXATTRS would find none */
	uint64_t block_size; /* of the version, or of the directory's namespace */
};

enum {
	MSG_SET_MODE = 1 << 0,
	MSG_SET_UID = 1 << 1,
	MSG_SET_GID = 1 << 2,
	MSG_SET_MTIME = 1 << 3,
	MSG_SET_ATIME = 1 << 4,
	MSG_SET_PIN = 1 << 5, /* from flags & MSG_ATTR_PIN */
	MSG_SET_TTL = 1 << 6, /* from expires_ns */
};

#define MSG_ITEM_MEM 1u	   /* PUT_DONE: the block has a memory replica (alloc) on the sending node */
#define MSG_ITEM_SSD 2u	   /* PUT_DONE: the block has an SSD replica on the sending node */
#define MSG_ITEM_FORCE 4u  /* MEM_EVICT: also the last copy (fluxkv evict --force), pins aside */
#define MSG_ITEM_GONE 8u   /* answer: that was the last replica; the object and its name are gone */
#define MSG_ITEM_KEEP 16u  /* MEM_EVICT: refuse with -EBUSY when it is the last copy, also with FORCE */
#define MSG_ITEM_LOOSE 32u /* INVENTORY: a file that is no replica, until its MSG_ALLOC_FREED */

struct msg_item {
	uint64_t put_id;
	uint64_t alloc; /* allocation id */
	uint64_t bytes; /* granted, or the block's length */
	uint32_t block;
	uint32_t flags; /* MSG_ITEM_* */
	int32_t status;
};

struct msg_dirent {
	uint64_t cookie; /* resume behind this one */
	struct msg_attr attr;
	char name[MSG_NAME_MAX + 1];
};

enum msg_ns_field {
	MSG_NS_BLOCK_SIZE = 1 << 0,
	MSG_NS_TTL = 1 << 1,
	MSG_NS_PERSIST = 1 << 2,
};

#define MSG_NS_NAME_MAX 1023

struct msg_namespace {
	char name[MSG_NS_NAME_MAX + 1];
	uint32_t mask;		 /* enum msg_ns_field */
	uint32_t kind;		 /* 0: blob */
	uint64_t block_size;	 /* bytes; a power of two, 4 KiB or more */
	uint64_t ttl_seconds;	 /* of new objects; 0: none */
	uint32_t persist;	 /* 1: objects go to the SSD tier (default), 0: memory only */
	uint32_t mode, uid, gid; /* of the root directory, at creation */
	uint64_t root_dir;	 /* answers: its directory id */
	uint64_t objects, bytes; /* answers */
};

#define MSG_PUT_EXCL 1u /* reserve the name: -EEXIST if it is there or reserved */
#define MSG_PUT_NOREPLACE                                                                                              \
	2u /* PUT_DONE: publish only if the name still stands for u.put.replaces (0: for nothing);                     \
	    * else -EEXIST, or -ENOENT if it stands for nothing */

struct msg {
	enum msg_type type;
	int32_t status;	   /* answers: 0 or a negative errno */
	uint64_t req_id;   /* the sender's */
	uint32_t node;	   /* the sender, as given by the channel; never trusted from the wire */
	uint64_t tomb_tag; /* of the sender's incarnation */

	union {
		struct {
			uint64_t capacity; /* bytes of the segment */
			uint64_t ssd_capacity;
			uint64_t tomb_tag; /* to go on as, or 0; answer */
			bool kv_ssd_storage;
			char instance_key[256];
			char address[MSG_ADDRESS_MAX + 1]; /* "HOST:PORT", where others get its blocks; "": nowhere */
		} join;
		struct {
			uint64_t capacity, zombie; /* bytes: what evicted files still occupy */
			uint64_t ssd_capacity, ssd_used;
			uint64_t master_ns; /* answer: the master's clock, which only the expiry of plans is told by */
			uint64_t lease_ns;  /* answer: leases are good for so long from when this heartbeat was sent;
					       UINT64_MAX: for ever; 0: as long as they were before */
		} heartbeat;
		struct {
			uint32_t page; /* from 0 */
			bool end;      /* the last one */
		} inventory;
		struct {
			uint64_t dir;
			struct msg_attr attr;
			char name[MSG_NAME_MAX + 1];
		} name;
		struct {
			struct msg_attr a; /* MSG_KIND_NONE with status -ENOENT */
			uint64_t lease; /* sequence of the name's lease; a revoke with an equal or higher one ends it */
			uint64_t replaced_id; /* PUT_DONE, DELETE: the version the name stood for before; 0: none */
			uint32_t miss;	      /* LOOKUP with -ENOENT: enum msg_miss */
		} entry;
		struct {
			struct msg_attr a;
			uint32_t mask; /* MSG_SET_* */
		} attr;
		struct {
			uint64_t dir, cookie; /* 0: from the start */
			uint64_t next_cookie;
			uint32_t max; /* entries wanted */
			bool end;
		} readdir;
		struct {
			uint64_t from_dir, to_dir;
			uint64_t replaced_id; /* answer */
			uint64_t lease;	      /* answer: of the name `to`, for what the master moved there, which is not
						 always what the sender knew; that of `from` is over */
			bool noreplace;
			char from[MSG_NAME_MAX + 1], to[MSG_NAME_MAX + 1];
		} rename;
		struct {
			uint64_t dir;
			uint64_t total_bytes, used_bytes; /* DRAM + SSD; each object once */
			uint64_t objects;
		} statfs;
		struct msg_namespace ns;
		struct {
			uint64_t ticket;
			uint64_t dir;	      /* PUT_START: placement and namespace; PUT_DONE: where it is published */
			uint64_t bytes;	      /* PUT_START: guess; PUT_DONE: the object's length */
			uint64_t replaces;    /* with MSG_PUT_NOREPLACE */
			uint64_t block_size;  /* PUT_START: wanted, or 0; answer */
			uint64_t total, free; /* answers with -ENOSPC: the node's ledger */
			struct msg_attr attr; /* PUT_DONE: mode, uid, gid, times, flags, expires_ns */
			uint32_t flags;	      /* MSG_PUT_* */
			bool persist_to_ssd;  /* answer */
			char name[MSG_NAME_MAX + 1];
		} put;
		struct {
			uint64_t put_id;
			uint32_t block;
			uint32_t source; /* answer: enum msg_source; GET_REVOKE: that of the answer, 0: not said */
			uint32_t source_node;
			uint64_t get_id;
			uint64_t alloc, bytes; /* answer: the target, and what it is charged with: whole pages */
			uint64_t len;	       /* answer: the block's exact length, as the master knows it */
			uint64_t total, free;  /* with -ENOSPC */
			bool drop_ssd_source;
			bool promoted;
			/* answers with a source elsewhere: the plan that the source is shown (net/plan.h) */
			uint64_t source_alloc; /* of its memory copy; 0: from its SSD */
			uint64_t source_tag;   /* its incarnation */
			uint64_t expires_ns;   /* by the master's clock */
			uint8_t mac[32];
			char source_address[MSG_ADDRESS_MAX + 1];
		} get;
		struct {
			uint64_t dir;
			uint64_t seq;
			uint64_t id;		     /* what the name stood for; 0: not said */
			uint32_t reason;	     /* enum msg_revoke_reason */
			bool ack;		     /* MSG_REVOKE_ACK is asked for */
			char name[MSG_NAME_MAX + 1]; /* "": the whole directory, or with dir 0 every lease */
		} revoke;
	} u;

	/* The variable part; arrays from malloc. */
	struct msg_item *items;
	size_t n_items;
	struct msg_dirent *ents;
	size_t n_ents;
	struct msg_namespace *namespaces;
	size_t n_namespaces;
	uint8_t *blob; /* xattrs, see net/xattr.h */
	size_t blob_len;
};

enum msg_source {
	MSG_SOURCE_NONE,
	MSG_SOURCE_MEM_LOCAL,
	MSG_SOURCE_MEM_REMOTE,
	MSG_SOURCE_SSD_LOCAL,
	MSG_SOURCE_SSD_REMOTE,
};

/* Why a name stands for nothing, as far as the master remembers. */
enum msg_miss {
	MSG_MISS_NEVER, /* never stored, deleted, or forgotten why */
	MSG_MISS_EVICTED,
	MSG_MISS_EXPIRED,
	MSG_MISS_LOST, /* an owner left or died */
};

enum msg_revoke_reason {
	MSG_REVOKE_MOVED, /* another node published, renamed or deleted */
	MSG_REVOKE_EVICTED,
	MSG_REVOKE_EXPIRED,
	MSG_REVOKE_LOST, /* an owner died */
};

/* A zeroed message of the type; NULL without memory. */
struct msg *msg_new(enum msg_type type);
/* Takes NULL. Returns NULL. */
struct msg *msg_free(struct msg *m);
/* Gives m an array of n zeroed items (replacing what it had). 0, -ENOMEM, -E2BIG above MSG_MAX_ITEMS. */
int msg_alloc_items(struct msg *m, size_t n);
/* With its items and its blob, without other lists. NULL without memory. */
struct msg *msg_copy(const struct msg *m);
/* Copies a name with its bound checked: -ENAMETOOLONG above MSG_NAME_MAX, -EINVAL for "" or one with '/'. */
int msg_set_name(char dst[MSG_NAME_MAX + 1], const char *name);
const char *msg_type_name(enum msg_type type);
/* Requests that ask for no change: they may be asked twice, and go on while the catalogue cannot be written. */
bool msg_only_reads(enum msg_type type);
/* Requests that say what the sender has let go, or that it lives. If one is refused nobody says it again. */
bool msg_gives_back(enum msg_type type);
/* Requests that others wait for, or that keep the sender alive: they wait for no answer of its other requests. */
bool msg_goes_first(enum msg_type type);

#endif
