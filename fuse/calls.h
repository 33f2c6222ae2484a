/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's asynchronous calls for a thread that may wait: a connection of the control socket. Each waits for its
 * answer at most so long, and not at all once calls_cancel() has been called; an answer that comes after all finds
 * nobody and frees what it brought. Any thread, but for calls_free(): no call is being made any more.
 */
#ifndef FUSE_CALLS_H
#define FUSE_CALLS_H

#include "store/node.h"
#include "store/put.h"

struct calls;

/* NULL without memory. */
struct calls *calls_new(struct node *node);
/* Takes NULL, returns NULL. Answers may still be on their way. */
struct calls *calls_free(struct calls *cs);
/* Every call that waits, and every later one, ends with -ESHUTDOWN. */
void calls_cancel(struct calls *cs);

/* All return 0 or a negative errno: the answer's, -ETIMEDOUT, -ESHUTDOWN, -ENOMEM. */

/* ret_put: a reference for the caller, or NULL when the name stands for a published version or a directory. */
int calls_lookup(struct calls *cs, uint64_t dir, const char *name, struct msg_attr *ret, struct put **ret_put);
int calls_getattr(struct calls *cs, uint64_t id, struct msg_attr *ret);
/* put: NULL for a directory or a published version. */
int calls_setattr(struct calls *cs, struct put *put, const struct msg_attr *a, uint32_t mask);
int calls_unlink(struct calls *cs, uint64_t dir, const char *name);
int calls_rmdir(struct calls *cs, uint64_t dir, const char *name);
int calls_evict(struct calls *cs, const struct msg_attr *a, enum node_tier tier, bool force);
int calls_prefetch(struct calls *cs, const struct msg_attr *a);
/* One page; *ret is malloc'ed. A failed d must still be closed, unless the call says that it did: *d is NULL then. */
int calls_dir_read(struct calls *cs, struct node_dir **d, uint64_t cookie, uint32_t max, struct msg_dirent **ret,
		   size_t *ret_n, bool *ret_end);
/* A MSG_NS_* request. ns: the request's, may be NULL. ret (may be NULL): malloc'ed, what MSG_NS_LIST answers. */
int calls_namespace(struct calls *cs, enum msg_type type, const struct msg_namespace *ns, struct msg_namespace **ret,
		    size_t *ret_n);

struct node *calls_node(struct calls *cs);

#endif
