/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of versions. A version whose name goes (deleted, overwritten, expired, a block of it lost) becomes an orphan
 * while nodes still have bytes of it; they are told to drop it, and it ends with the last acknowledgement.
 */
#ifndef MASTER_VERSION_H
#define MASTER_VERSION_H

#include "master/state.h"

/* Why a version leaves its name. */
struct version_end {
	uint32_t asker; /* the node whose answer tells it; 0: nobody's */
	enum msg_revoke_reason reason;
	enum msg_miss miss;
	bool say; /* the catalogue does not know yet */
};

/* The name goes and with it the version. Needs room for one record if end->say. */
void version_end(struct core *c, uint32_t h, const struct version_end *end);
/* `fresh`, a version without a name, takes over the name of `old`; the catalogue is told that old is gone. */
void version_replace(struct core *c, uint32_t old, uint32_t fresh, uint32_t asker);
/* The node has no byte of it any more. */
void version_acked(struct core *c, uint32_t h, uint32_t node);
/* The nodes that have bytes of the orphan are told to drop it. */
void version_drop(struct core *c, struct inode *i);
/* A replica of an orphan is gone: ends it if that was the last. True if it has ended. */
bool version_reap(struct core *c, uint32_t h);

static inline bool version_expired(const struct core *c, const struct inode *i)
{
	return i->kind == MSG_KIND_FILE && i->expires_ns && i->expires_ns <= c->real_ns;
}

/* What a name stands for now: like name_find(), but an object that has expired goes. 0: nothing. */
uint32_t version_find(struct core *c, uint32_t dir, const char *name, size_t len, uint32_t hash);

#define EXPIRE_BATCH 1024u /* about a millisecond of a thread that others wait for */

/* Objects that have expired, a batch of them. Returns the nanoseconds until the next one does; 0: there are more. */
uint64_t versions_expire(struct core *c);
/* Orphans whose drop was not acknowledged are told again. Returns the nanoseconds until the next is due. */
uint64_t versions_repeat(struct core *c);
/* Every object goes, and every orphan: the only node that had any is gone. Needs room for one record. */
void versions_clear(struct core *c);

#endif
