/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for bytes on their way: what is read from the SSD for another node lies here until it has been sent.
 *
 * The buffers are page-aligned, and bounded in bytes together with those that are kept for the next: fresh pages are
 * dear to touch (15 us for 4 KiB on some guests, longer than it takes to read them), so what comes back is given out
 * again as it is, with its pages and the bytes of whoever had it before. Lengths are rounded up to classes, four to a
 * doubling, and what is kept serves its own class; when there is no room for a fresh buffer, those that were unused the
 * longest go.
 *
 * First come, first served: nobody overtakes one who waits, so a large one is not starved by small ones. With
 * nothing else out one buffer of any length is granted, and one above the bound is not kept.
 *
 * Threads: staging_get(), staging_put() and staging_stats() from any thread; nothing is called back.
 */
#ifndef STORE_STAGING_H
#define STORE_STAGING_H

#include <stdint.h>

struct staging;

#define STAGING_BOUND_DEFAULT (UINT64_C(64) << 20)

/* NULL: no memory. Nothing of the bound is taken before it is needed. */
struct staging *staging_new(uint64_t bound);
/* Nobody has a buffer, or waits for one. Takes NULL, returns NULL. */
struct staging *staging_free(struct staging *s);

/*
 * Waits its turn for a buffer of len bytes, and of all of the last page of 4 KiB that they begin. deadline_ns is of
 * clock_ns(): what is past, as 0 is, takes what can be had at once. Returns 0, -ETIMEDOUT, -ENOMEM, or -EINVAL for a
 * length that is 0 or no machine has.
 */
int staging_get(struct staging *s, uint64_t len, uint64_t deadline_ns, void **ret);
/* With the length that was asked for. */
void staging_put(struct staging *s, void *buf, uint64_t len);

struct staging_stats {
	uint64_t bound;
	uint64_t out;	  /* bytes that somebody has */
	uint64_t kept;	  /* bytes that wait for somebody; with out never above the bound, save for one that is alone */
	uint64_t waiting; /* who waits */
	/* These only grow. */
	uint64_t waits;	   /* who had to */
	uint64_t timeouts; /* and in vain */
	uint64_t fresh;	   /* buffers that had to be mapped */
};

void staging_stats(struct staging *s, struct staging_stats *ret);

#endif
