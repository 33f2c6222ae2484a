/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the file system share (fuse/fs.h is what others see). One file has one job:
 *
 *   mount.c     mount, INIT, end                loop.c    the worker threads
 *   op.c        one request, from arrival to its one answer
 *   keeper.c    parked requests: interrupts, and what is held for a thread and expires
 *   retry.c     opens that were sent back to look their name up again
 *   inode.c     what the kernel knows           handle.c  what is open
 *   passthrough.c  which handles the kernel serves without us
 *   notify.c    telling the kernel to drop something
 *   task.c      /proc: is this task being killed?
 *   lookup.c attr.c dir.c readdir.c open.c read.c write.c xattr.c virtual.c   the operations
 *
 * A worker never waits: an operation starts a call of the store and returns. Where the store can answer at once, its
 * callback has run by then and the request is answered; else the request is parked, and answered by the callback on a
 * thread of the node. fuse/README.md follows a read and a write through all this.
 *
 * Locks, outermost first; none is held across a call of the store or of libfuse, but op_lock across
 * fuse_req_interrupt_func(), and h_lock across node_dir_open(), node_dir_close() and node_name_unsettled(), none of
 * which waits or calls back:
 *
 *   op.op_lock > keeper.lock        handle.h_lock > inode names_lock > inode shard's lock
 *   alone: retry.lock, the lock of each of notify.c's threads, handles_lock, passthrough.c's (across
 *   version_pin_now() and version_share(), which do not wait)
 */
#ifndef FUSE_IMPL_H
#define FUSE_IMPL_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "common/list.h"
#include "fuse/fs.h"
#include "fuse/inode.h"
#include "fuse/tsan.h"
#include "store/node.h"
#include "store/put.h"
#include "store/version.h"

#define FS_IO_MAX (1024u * 1024) /* bytes of the largest read or write request; more kills a 3.14 daemon */

struct keeper;
struct notify;
struct passthrough;
struct retries;
struct workers;

struct fs_counters {
	atomic_ullong lookups, opens, creates, reads, read_bytes, writes, write_bytes, flushes, renames, unlinks,
	    readdirs;
	atomic_ullong requests, in_flight, parked, interrupted, errors_io, estale, handles, invalidations;
	atomic_ullong answered; /* of requests; what is not in it may be using the session's descriptor */
};

struct fs {
	struct fs_config cfg; /* the strings are copies */
	struct node *node;
	struct fuse_session *se;
	struct inode_table *inodes;
	struct keeper *keeper;
	struct retries *retries;
	struct notify *notify;
	struct passthrough *passthrough;
	struct workers *workers;

	pthread_mutex_t handles_lock;
	struct list handles; /* handles_lock */

	sem_t wake;	       /* fs_loop() and fs_mount() wait here */
	atomic_bool exiting;   /* fs_exit() was called */
	atomic_bool draining;  /* see fs_draining() */
	atomic_bool init_come; /* the kernel's INIT has come */
	atomic_bool init_done; /* and is answered: the mount serves */
	atomic_bool ended;     /* the workers found the mount gone, or failed */
	atomic_int loop_error; /* why, if they failed */
	atomic_uint max_write;
	atomic_uint writers; /* handles open for writing */
	bool mounted;	     /* fs_mount()'s thread only */
	dev_t device;	     /* of the mount; set by fs_mount() */
	uint64_t start_ns;   /* real time: the virtual files' times */
	struct fs_counters count;
};

#define count_add(fs, field, by) atomic_fetch_add_explicit(&(fs)->count.field, (by), memory_order_relaxed)
#define count_sub(fs, field, by) atomic_fetch_sub_explicit(&(fs)->count.field, (by), memory_order_relaxed)

/* ---- op.c: one request -------------------------------------------------------------------------------------- */

/*
 * Two hold an op: the worker that starts it, until op_started(), and the one who will answer it. Each op_*() answer
 * ends the second: op must not be touched afterwards. Whether the kernel took the answer is what they return: not 0
 * means that it did not (the task was killed, the mount is gone), and what the answer would have given is to be
 * undone. An op's store call may go on after its task was killed; its answer is then dropped here.
 */
struct op {
	struct fs *op_fs;
	const char *op_what; /* for the log */
	uint64_t op_ino;
	struct handle *op_handle; /* a reference, or NULL: a killed task's handle lives until its op is over */
	pid_t op_tid;		  /* of the caller, 0 when it is not of our pid namespace */
	uid_t op_uid;
	gid_t op_gid;

	pthread_mutex_t op_lock;
	fuse_req_t op_req; /* op_lock; NULL once answered */
	bool op_watched;   /* op_lock; interrupts are registered */

	atomic_uint op_refs;
	atomic_bool op_interrupted;
	struct list op_parked;		/* keeper's lock */
	bool op_patient;		/* not answered EINTR while it waits */
	void *op_mem[2];		/* worker's buffers that it was given; freed with it */
	void (*op_fini)(struct op *op); /* frees what the derived op owns, or NULL */
};

/* A zeroed op of size bytes that starts with a struct op. NULL: the request has been answered ENOMEM. */
void *op_new(fuse_req_t req, size_t size, const char *what, uint64_t ino);
/* The same, with a reference to the handle. */
struct handle;
void *op_new_on(fuse_req_t req, size_t size, const char *what, uint64_t ino, struct handle *h);
/* The worker is done with it: if the answer is still to come, the op keeps the buffers that it uses and is parked. */
void op_started(struct op *op);
void op_ref(struct op *op);
void op_unref(struct op *op);

int op_ok(struct op *op);
/* err: a negative errno; EIO is logged. */
int op_err(struct op *op, int err);
int op_entry(struct op *op, const struct fuse_entry_param *e);
int op_create(struct op *op, const struct fuse_entry_param *e, const struct fuse_file_info *fi);
int op_open(struct op *op, const struct fuse_file_info *fi);
int op_attr(struct op *op, const struct stat *st, double timeout);
int op_buf(struct op *op, const void *buf, size_t len);
int op_iov(struct op *op, const struct iovec *iov, int n);
int op_write(struct op *op, size_t n);
int op_xattr_size(struct op *op, size_t n);
int op_reply_statfs(struct op *op, const struct statvfs *st);

/* For the keeper: answers err in place of the one who would have, if nobody has. Takes no reference away. */
bool op_fail(struct op *op, int err);

/* For what needs no op: answers a negative errno, or 0. The request is gone. */
void req_err(fuse_req_t req, int err);
void req_ok(fuse_req_t req);

static inline struct fs *req_fs(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* The daemon ends: nothing new is begun (-ESHUTDOWN), but what was may be brought to its end, also by rename and link.
 */
static inline bool fs_draining(struct fs *fs)
{
	return atomic_load_explicit(&fs->draining, memory_order_relaxed);
}

/* The answer's callback for operations that answer with a bare errno: arg is the op. */
void op_done_cb(void *arg, int err);

/* ---- loop.c: workers ---------------------------------------------------------------------------------------- */

int workers_start(struct fs *fs, struct errmsg *e);
/* Ends and joins them. Harmless before workers_start(). Requests that are parked stay so. */
void workers_stop(struct fs *fs);

/* On a worker: the op uses the request's own buffer (a write's data) until it is answered. */
void worker_lend_message(struct op *op);
/* On a worker: FS_IO_MAX bytes that the op uses until it is answered; NULL: no memory. */
void *worker_lend_scratch(struct op *op);
/* For op_started(): the op keeps what it was lent, the worker gets itself new. */
void worker_give_lent(struct op *op);
void worker_forget_lent(void);

/* ---- keeper.c ----------------------------------------------------------------------------------------------- */

struct keeper *keeper_new(struct fs *fs, struct errmsg *e);
struct keeper *keeper_free(struct keeper *k);
void keeper_park(struct keeper *k, struct op *op);
void keeper_unpark(struct keeper *k, struct op *op);
/* Some parked op was interrupted, or a retry was recorded: look after it. Any thread. */
void keeper_kick(struct keeper *k);
/* Answers every parked request with err. */
void keeper_fail_all(struct keeper *k, int err);

/* ---- retry.c ------------------------------------------------------------------------------------------------ */

enum retry_need {
	RETRY_READ = 1,
	RETRY_WRITE = 2,
	RETRY_TRUNCATE = 4, /* with RETRY_WRITE: the old bytes are not wanted */
};

struct retries *retries_new(void);
/* Lets go of everything that is held. */
struct retries *retries_free(struct retries *r);

/*
 * The request of this thread on inode i (or on a name) is about to be answered ESTALE. False when it has been already
 * and no lookup came since: the kernel will not look again.
 */
bool retry_expect(struct fs *fs, pid_t tid, struct inode *i, unsigned need);
/* The same; also false when it has been sent back to the name at all. */
bool retry_expect_name(struct fs *fs, pid_t tid, uint64_t dir, const char *name, unsigned need);
/*
 * A lookup, and the id it found (0: nothing), and whether that is a file: what the thread needs there; 0 if it was not
 * sent back to it.
 */
unsigned retry_match(struct fs *fs, pid_t tid, uint64_t dir, const char *name, uint64_t id, bool file);

/* What the lookup found, kept open until the thread comes for it: a version, or an open handle and reference of a put.
 */
struct hold {
	uint64_t id;
	struct version *version;
	struct put *put;
	bool writer; /* the put is open for one */
};
bool retry_is_held(struct fs *fs, pid_t tid, uint64_t id);
/* Takes over what h holds. */
int retry_hold(struct fs *fs, pid_t tid, uint64_t dir, const char *name, const struct hold *h);
/* Takes a held one, and lets go of what else was kept for the thread and the name. */
bool retry_take(struct fs *fs, pid_t tid, uint64_t id, struct hold *ret);
void hold_release(const struct hold *h);
/* The same for what nobody will open: a writer's is abandoned first. */
void hold_give_up(const struct hold *h);
/* Lets go of what nobody came for. Returns how many records are left. */
size_t retry_expire(struct retries *r, uint64_t now_ns);

/* ---- handle.c: what is open --------------------------------------------------------------------------------- */

enum handle_kind {
	HANDLE_VERSION,
	HANDLE_PUT,
	HANDLE_DIR,
	HANDLE_TEXT, /* a virtual file */
};

/* Names that were read ahead of what the kernel has asked for. */
struct dir_page {
	struct msg_dirent *ents; /* malloc */
	size_t n, pos;
	uint64_t next; /* the cookie that ents[pos] comes behind */
	bool end;      /* there are no names behind these */
};

/* One open file description. Made at open, ended at release, when no op needs it any more, or with the mount. */
struct handle {
	struct list h_link; /* handles_lock */
	atomic_uint h_refs; /* the kernel's, and one for each op */
	enum handle_kind h_kind;
	struct inode *h_inode; /* a reference; NULL for HANDLE_TEXT */
	struct version *h_version;
	struct put *h_put; /* a reference and an open handle */
	bool h_writable;
	bool h_writer;		 /* of h_put: writable, or its maker */
	bool h_direct;		 /* not through the page cache */
	bool h_through;		 /* h_version is pinned: the kernel reads its file itself */
	atomic_bool h_drop_suid; /* the first write clears the set-id bits */
	char *h_text;
	size_t h_text_len;

	/* of a directory; h_lock: the kernel reads a handle once at a time, but may have given a killed reader up */
	pthread_mutex_t h_lock;
	struct node_dir *h_dir;
	struct dir_page h_page;
	unsigned h_fetching; /* reads of h_dir on their way */
	bool h_scanned;	     /* h_dir has been read from its start */
};

/* A handle of that kind, zeroed beyond it; takes over the inode's reference. NULL: no memory, i is let go. */
struct handle *handle_new(struct fs *fs, enum handle_kind kind, struct inode *i);
void handle_ref(struct handle *h);
/* The last one ends it and what it holds; a private version is released. Takes NULL. */
void handle_unref(struct fs *fs, struct handle *h);
/* handle_unref() of one that the kernel did not take. Takes NULL. */
void handle_give_up(struct fs *fs, struct handle *h);
/* At the end of the mount: ends all; what is half-written is given up. */
void handles_free_all(struct fs *fs);

static inline struct handle *fi_handle(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

/* ---- passthrough.c ------------------------------------------------------------------------------------------ */

struct passthrough *passthrough_new(void);
/* Takes NULL, returns NULL. */
struct passthrough *passthrough_free(struct passthrough *p);
/* At the kernel's INIT. */
void passthrough_init(struct fs *fs, struct fuse_conn_info *conn);
/* Tries it out, once INIT is answered. -EOPNOTSUPP: it is insisted on and not to be had. */
int passthrough_start(struct fs *fs, struct errmsg *e);
/* From its return on nobody uses the session's descriptor for it. */
void passthrough_stop(struct fs *fs);
/* NULL: it is on. */
const char *passthrough_why_not(struct fs *fs);
uint64_t passthrough_held(struct fs *fs);

enum passthrough_need {
	PASSTHROUGH_NO,	    /* it is to be read through the page cache */
	PASSTHROUGH_PINNED, /* it may pass through, and is pinned */
	PASSTHROUGH_WAIT,   /* it might, if it were in memory: version_pin() */
};
enum passthrough_need passthrough_need(struct fs *fs, struct inode *i, struct version *v);
/* Decides for a handle of a published version, which is counted, and fills in fi. Takes over the pin, if pinned. */
void passthrough_enter(struct fs *fs, struct handle *h, bool pinned, struct fuse_file_info *fi);
void passthrough_leave(struct fs *fs, struct handle *h);

/* mount.c; false: the kernel has not got it */
bool fs_set_feature(struct fuse_conn_info *conn, uint64_t flag, bool on);

/* ---- notify.c ----------------------------------------------------------------------------------------------- */

struct notify *notify_new(struct fs *fs, struct errmsg *e);
/* Ends the threads: nothing is told any more, what is brought is dropped or answered at once. */
void notify_stop(struct notify *n);
/* After notify_stop(). Takes NULL, returns NULL. */
struct notify *notify_free(struct notify *n);
enum note_kind {
	NOTE_NAME,    /* the name's dentry is to go */
	NOTE_WRITTEN, /* the pages of a range; then op is answered */
	NOTE_GONE,    /* a published version is no more: its attributes, its pages, the inode itself */
	NOTE_IDLE,    /* a private version that nobody writes any more: the inode */
};

/* What the kernel is to be told: notify.c's own, and freed there, but for that of a write, which lies in its op. */
struct note {
	struct list link;
	enum note_kind kind;
	uint64_t ino;	/* the directory for a name, else the inode */
	uint64_t at_ns; /* not before */
	uint64_t off;
	size_t len;
	struct op *op; /* NOTE_WRITTEN */
	bool again;    /* tried before */
	const char *name;
};

/* None of these waits. */

/* A private version's inode has lost its last writer: in a while the kernel forgets it. What is too much is not told.
 */
void notify_idle(struct notify *n, uint64_t ino);
/*
 * The pages of a range of the inode are to be dropped, since readers through the page cache may have read old bytes
 * back in while the write was under way; then op is answered with written bytes. t lies in op, so it cannot be lacking.
 */
void notify_pages_then_write(struct notify *n, struct note *t, uint64_t off, size_t len, struct op *op);
/* The node's event. */
void notify_gone(void *arg, uint64_t put_id, uint64_t dir, const char *name);

/* ---- entries and attributes (attr.c) ------------------------------------------------------------------------ */

void fill_stat(const struct msg_attr *a, struct stat *st);
/* Of an inode that the kernel knows: blocks of a private version, links. */
void fill_stat_inode(struct fs *fs, struct inode *i, const struct msg_attr *a, struct stat *st);
double attr_timeout(struct fs *fs, const struct msg_attr *a);
/*
 * Makes the kernel's entry for what a name stands for: one lookup more. Takes over put (may be NULL). ret_inode (may be
 * NULL) is a reference. -ENOMEM.
 */
int make_entry(struct fs *fs, const struct msg_attr *a, struct put *put, uint64_t dir, const char *name,
	       struct fuse_entry_param *ret, struct inode **ret_inode);
/*
 * Answers op with the entry, or takes the lookup back when the kernel did not want it. brief: the kernel is to ask
 * again next time.
 */
void reply_entry(struct op *op, const struct msg_attr *a, struct put *put, uint64_t dir, const char *name, bool brief);

/* An op about a name. */
struct name_op {
	struct op op;
	uint64_t dir;
	char name[MSG_NAME_MAX + 1];
};
/* op_new() with the name copied. NULL: answered (ENAMETOOLONG, ENOMEM). */
void *name_op_new(fuse_req_t req, size_t size, const char *what, fuse_ino_t dir, const char *name);
/* node_entry_fn: answers a struct name_op with the entry. */
void name_op_entry_cb(void *arg, int err, const struct node_entry *e);

/* Mode and group of something new in a directory with the set-group-id bit. */
void inherit_group(struct fs *fs, uint64_t dir, bool is_dir, uint32_t *mode, uint32_t *gid);

/* ---- virtual.c ---------------------------------------------------------------------------------------------- */

#define VIRTUAL_DIR_NAME ".fluxkv"
#define VIRTUAL_DIR_ID (1ull << 62)

/* .fluxkv/ and what is in it. */
static inline bool ino_is_virtual(fuse_ino_t ino)
{
	return ino >= VIRTUAL_DIR_ID && ino <= VIRTUAL_DIR_ID + FS_VIRTUALS;
}

/* Whether a name in a directory is, or would be, one of ours. */
bool name_is_virtual(fuse_ino_t dir, const char *name);
void virtual_lookup(fuse_req_t req, fuse_ino_t dir, const char *name);
void virtual_getattr(fuse_req_t req, fuse_ino_t ino);
void virtual_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void virtual_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus);

/* ---- the operations ----------------------------------------------------------------------------------------- */

void fs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void fs_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void fs_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi);
void fs_op_statfs(fuse_req_t req, fuse_ino_t ino);
void fs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void fs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name);
void fs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char *newname,
		  unsigned flags);
void fs_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
void fs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void fs_op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi);
void fs_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi);
void fs_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void fs_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi);
void fs_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void fs_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
void fs_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void fs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void fs_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
