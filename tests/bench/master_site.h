/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A master's core with a number of objects in this process, and a Redis server with as many keys where there is one;
 * and one round of requests to both. Rates are by the processor time of who answers: of the core's thread, requests
 * made and answers freed included, and of the server's process. Main thread.
 */
#ifndef TESTS_BENCH_MASTER_SITE_H
#define TESTS_BENCH_MASTER_SITE_H

#include "tests/bench/backend.h"
#include "tests/bench/core_driver.h"
#include "tests/bench/redis_pipe.h"
#include "tests/bench/scatter.h"
#include "tests/bench/set.h"

struct master_site {
	struct bench *b;
	uint64_t objects;
	struct core_driver core;
	struct backend redis; /* with ops: started */
	struct redis_pipe *pipe;
	clockid_t redis_clock;
	struct scatter names;	       /* how the rounds go through the objects */
	uint64_t *keys, *ids, *allocs; /* one an operation */
	unsigned ops;		       /* of one kind in a round */
};

/*
 * Makes the objects, and adds what they cost in memory to the report. Zeroed memory is one that was not opened, which
 * master_site_close() takes. 0 or a negative errno, perhaps with the reason in b->fault.
 */
int master_site_open(struct master_site *s, struct bench *b, uint64_t objects, unsigned ops);
/* Starts the server and gives it its keys. The same. */
int master_site_add_redis(struct master_site *s);
void master_site_close(struct master_site *s);
/* counts: false in the warm-up. The same. */
int master_site_round(struct master_site *s, bool counts);

#endif
