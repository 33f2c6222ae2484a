/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks leave memory first. A pure data structure: no lock, no clock, no I/O. The nodes are members of the
 * caller's blocks; the policy owns none of them and only links them.
 *
 * Threads: every call but policy_access() is made with the caller's lock held (one lock guards the whole policy).
 * policy_access() may be called by any reader at any time while the node is inserted or not: it is one relaxed atomic
 * counter in the node.
 *
 * How: S3-FIFO. New blocks wait in a small queue (5 % of the bytes); those asked for there move to the main queue, the
 * others leave first, so that a bulk load that nobody reads flushes nothing. The main queue gives each block as many
 * rounds as it had accesses. A ghost of 4 bytes an entry, at most 24 bytes for each block that is here, recognises
 * blocks that left during the last three capacities; they come back straight into the main queue.
 *
 * Chosen by tests/sim/policy_sim; hit rates in percent by cache size. A conversation trace (KV blocks; 71,424
 * distinct):
 *
 *                       1 %     5 %    10 %    25 %    50 %
 *   fifo               3.73    7.00   14.18   23.62   29.52
 *   lru                3.87    7.15   15.25   26.02   31.39
 *   clock (3)          3.87    7.42   15.72   26.88   30.85
 *   sieve              4.59    8.74   13.97   26.26   30.86
 *   w-tinylfu 1 %      6.16   12.14   16.42   22.31   27.11
 *   s3-fifo (paper)    5.12    9.85   14.89   25.73   30.93
 *   this               5.66   11.71   17.19   26.29   30.86
 *
 * Zipf 0.99 over 100,000 objects of 1 to 16 MiB; 2.5 GiB of 1 / 16 MiB values through 2 GiB where misses are put again,
 * in points above the best static cache; and the rate before and right after a bulk load of twice the cache:
 *
 *                       1 %     5 %    10 %    25 %    50 %    1 / 16 MiB     before   after
 *   fifo              45.02   61.24   68.77   79.50   88.16   -2.54 / -3.64   73.77   58.30
 *   lru               49.12   65.15   72.44   82.52   90.16   -1.04 / -1.53   77.63   58.30
 *   clock (3)         51.51   67.23   74.29   83.78   90.71   -0.69 / -0.96   79.46   68.70
 *   sieve             58.97   71.39   77.09   84.88   90.91   -0.65 / -0.84   81.29   81.42
 *   w-tinylfu 1 %     58.03   71.29   77.13   84.88   90.88   -0.78 / -0.94   82.06   82.33
 *   s3-fifo (paper)   58.73   71.73   77.34   84.83   90.72   -0.66 / -0.91   81.86   82.40
 *   this              58.37   71.25   76.84   84.65   90.86   -0.57 / -0.68   81.11   81.55
 *
 * W-TinyLFU is ahead in the smallest caches only, loses 4 points where most of the working set fits, and its sketch
 * would be written to by every reader.
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
	uint64_t pn_hash;
	uint32_t pn_pages;	 /* weight in 4 KiB pages, at least 1 */
	_Atomic uint8_t pn_freq; /* accesses since last looked at, saturating; relaxed, any thread */
	uint8_t pn_queue;	 /* 0: not inserted */
};

_Static_assert(sizeof(struct policy_node) <= 32, "there is one in every block");

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
/* The name by which the node will be remembered when it is evicted. Also for a node that is not inserted. */
static inline void policy_rekey(struct policy_node *node, uint64_t key_hash)
{
	node->pn_hash = key_hash;
}

/* Takes a node out without remembering it (delete, overwrite). Harmless when it is not inserted. */
void policy_remove(struct policy *p, struct policy_node *node);
/* Changes a node's weight (a block that grew or was trimmed). */
void policy_reweigh(struct policy *p, struct policy_node *node, uint64_t bytes);
/* A skipped node may be taken again (its last holder let go). Harmless for any other node. */
void policy_ready(struct policy *p, struct policy_node *node);

#define POLICY_FREQ_MAX 7

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
