/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks leave memory first. A pure data structure: no lock, no clock, no I/O. The nodes are members of the
 * caller's blocks; the policy owns none of them and only links them.
 *
 * Threads: every call but policy_access() is made with the caller's lock held (one lock guards the whole policy).
 * policy_access() may be called by any reader at any time while the node is inserted or not: it is one relaxed atomic
 * counter in the node.
 *
 * A node that is busy (held, pinned, being persisted) is told to policy_victims() by POLICY_SKIP; it is put aside, so
 * that the next walk does not meet it first again, and comes round later, or at once after policy_ready().
 */
#ifndef STORE_POLICY_H
#define STORE_POLICY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct policy;

/* Zeroed memory is a node that is not inserted. All but pn_freq belong to the policy. */
struct policy_node {
	struct policy_node *pn_next, *pn_prev;
	uint32_t pn_hash;
	uint32_t pn_pages;	 /* weight in 4 KiB pages, at least 1 */
	_Atomic uint8_t pn_freq; /* accesses since last looked at, saturating; relaxed, any thread */
	uint8_t pn_queue;	 /* 0: not inserted */
};

enum policy_verdict {
	POLICY_TAKE, /* the caller evicts it; the policy has forgotten the node before the call returns */
	POLICY_SKIP, /* busy: not now */
};

/*
 * May free the node only after policy_victims() has returned; may not call into the policy. The caller that must drop
 * its lock to evict collects the nodes and acts after the walk.
 */
typedef enum policy_verdict policy_visit_fn(void *arg, struct policy_node *node);

struct policy *policy_new(uint64_t capacity_bytes); /* NULL: no memory */
struct policy *policy_free(struct policy *p);	    /* takes NULL, returns NULL; nodes are left as they are */

/* The node must not be inserted. A key that was evicted not long ago is recognised by its hash and keeps its rank. */
void policy_insert(struct policy *p, struct policy_node *node, uint64_t key_hash, uint64_t bytes);
/* Takes a node out without remembering it (delete, overwrite). Harmless when it is not inserted. */
void policy_remove(struct policy *p, struct policy_node *node);
/* Changes a node's weight (a block that grew or was trimmed). */
void policy_reweigh(struct policy *p, struct policy_node *node, uint64_t bytes);
/* A skipped node may be taken again (its last holder let go). Harmless for any other node. */
void policy_ready(struct policy *p, struct policy_node *node);

#define POLICY_FREQ_MAX 3

static inline void policy_access(struct policy_node *node)
{
	uint8_t f = atomic_load_explicit(&node->pn_freq, memory_order_relaxed);

	/* A lost increment between two readers is harmless; a plain store keeps the line clean once saturated. */
	if (f < POLICY_FREQ_MAX)
		atomic_store_explicit(&node->pn_freq, (uint8_t)(f + 1), memory_order_relaxed);
}

/*
 * Offers nodes in eviction order until those taken weigh at least bytes. Returns what was taken, which is less when
 * nothing more can be taken now or when POLICY_WALK_MAX nodes in a row were busy; policy_exhausted() tells the two
 * apart: true when every node has been offered since the last one was taken.
 */
#define POLICY_WALK_MAX 256
uint64_t policy_victims(struct policy *p, uint64_t bytes, policy_visit_fn *visit, void *arg);
bool policy_exhausted(const struct policy *p);

void policy_resize(struct policy *p, uint64_t capacity_bytes);
uint64_t policy_bytes(const struct policy *p);
uint64_t policy_count(const struct policy *p);

#endif
