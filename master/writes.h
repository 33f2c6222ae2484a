/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Catalogue writes as records in one growing buffer: the core appends them, the catalogue reads them in order. A
 * record says what is true from now on (a whole row, or that it is gone), so applying one twice does no harm.
 *
 * The caller owns the struct writes; zeroed memory is an empty one. A record that is read points into the buffer.
 */
#ifndef MASTER_WRITES_H
#define MASTER_WRITES_H

#include <stddef.h>
#include <stdint.h>

#include "net/msg.h"

enum write_type {
	WRITE_COUNTER,	      /* counter */
	WRITE_NAMESPACE,      /* ns + name */
	WRITE_NAMESPACE_GONE, /* key: its number */
	WRITE_DIR,	      /* inode + name; the root has no name */
	WRITE_DIR_GONE,	      /* key; its xattrs too */
	WRITE_OBJECT,	      /* inode + name */
	WRITE_OBJECT_GONE,    /* key; its replicas and xattrs too */
	WRITE_REPLICA,	      /* replica: one that does not stand in the object's own row */
	WRITE_REPLICA_GONE,   /* replica */
	WRITE_XATTRS,	      /* key + blob; an empty one means none */
	WRITE_MEMBER,	      /* member + the instance key */
	WRITE_OBJECTS_CLEAR,  /* every object is gone */
	WRITE_TYPES
};

/* What else there may be of an inode. */
#define WRITE_OF_MULTI 1u /* WRITE_REPLICA rows */
#define WRITE_OF_PIN 2u
#define WRITE_OF_XATTRS 4u
#define WRITE_OF_DIR 8u

struct write_key {
	uint64_t id;
	uint8_t flags; /* WRITE_OF_* */
};

struct write_inode {
	uint64_t id, parent, cookie;
	int64_t mtime_ns, ctime_ns, atime_ns;
	uint32_t ns, mode, uid, gid;
	/* objects */
	uint64_t storage_id, size, alloc;
	int64_t expires_ns;
	uint32_t home; /* the node of the replica that stands in this row */
	uint8_t tiers; /* of that replica of block 0 */
	uint8_t flags; /* WRITE_OF_* */
	uint8_t block_shift;
};

struct write_ns {
	uint64_t root_dir, block_size, ttl_seconds;
	uint32_t number, kind, persist;
};

struct write_replica {
	uint64_t put_id, alloc;
	uint32_t block, node;
	uint8_t tiers;
};

struct write_member {
	uint64_t tomb_tag, capacity, ssd_capacity;
	uint32_t node;
};

struct write_rec {
	enum write_type type;
	uint32_t len; /* of data: the name, key or blob; not NUL-terminated */
	union {
		uint64_t counter; /* ids below it may have been given out */
		struct write_key key;
		struct write_inode inode;
		struct write_ns ns;
		struct write_replica replica;
		struct write_member member;
	} u;
	const uint8_t *data;
};

struct writes {
	uint8_t *buf;
	size_t len, cap;
	size_t n;	  /* records */
	uint64_t counter; /* the highest WRITE_COUNTER among them; 0: none */
};

/* Room for n records with data bytes of data in all, so that as much can be added without failing. 0, -ENOMEM. */
int writes_room(struct writes *w, size_t n, size_t data);
/* Appends a copy; its data comes from rec->data, rec->len. 0, -ENOMEM. */
int writes_add(struct writes *w, const struct write_rec *rec);
/* The record at *pos (start with 0), or NULL at the end. */
const struct write_rec *writes_next(const struct writes *w, size_t *pos);
void writes_clear(struct writes *w); /* empties, keeps the memory */
void writes_free(struct writes *w);
/* Moves src's records behind dst's; src is empty afterwards. 0, -ENOMEM with both unchanged. */
int writes_move(struct writes *dst, struct writes *src);

#endif
