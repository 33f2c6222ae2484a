/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker of a load: draws keys and reads them until the phase ends, checks what it gets, and counts. A struct
 * reader belongs to one thread.
 */
#ifndef TESTS_BENCH_READER_H
#define TESTS_BENCH_READER_H

#include "tests/bench/load.h"

struct reader {
	const struct load *l;
	struct session *s;
	struct arena_tally *tally;
	unsigned stream;
	uint64_t drawn; /* goes on from phase to phase */
	char *buf;	/* of a value that is put */
};

/* 0 or -ENOMEM; reader_free() in both cases. */
int reader_init(struct reader *r, const struct load *l, struct session *s, unsigned worker);
void reader_free(struct reader *r);
/* Until l->arena->until, or stop_wanted(). */
void reader_run(struct reader *r);

/*
 * Puts the next version of the key, made in buf. 0, also if it was refused for want of space (which is counted), or a
 * negative errno. No other worker may be putting that key.
 */
int reader_put(const struct load *l, struct session *s, unsigned key, char *buf, struct arena_tally *t);

#endif
