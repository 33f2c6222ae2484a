/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of eviction notices: rings put keys in, a thread of its own gives them to the node in batches, at 256 keys
 * or 10 ms after the first. A full queue never makes a ring wait: what does not fit is counted.
 *
 * Threads: any. Its lock is a leaf: nothing else is taken under it.
 */
#ifndef SSD_NOTICE_H
#define SSD_NOTICE_H

#include "ssd/ssd.h"

struct ssd_notices;

#define SSD_NOTICE_BATCH 256u
#define SSD_NOTICE_ROOM 65536u /* keys */

typedef void (*ssd_evicted_fn)(void *arg, const struct ssd_key *keys, size_t n);

int ssd_notices_new(ssd_evicted_fn fn, void *arg, struct ssd_notices **ret);
/* Sends what is queued, then ends the thread. */
struct ssd_notices *ssd_notices_free(struct ssd_notices *n);

void ssd_notices_put(struct ssd_notices *n, struct ssd_key key);
/* Waits until a batch fits, 100 ms at most. Says whether it does. */
bool ssd_notices_wait_room(struct ssd_notices *n);
void ssd_notices_stats(struct ssd_notices *n, uint64_t *ret_sent, uint64_t *ret_lost);

#endif
