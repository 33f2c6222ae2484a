/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One value: written, read or mapped, timed and checked. A struct value_io belongs to one thread. Every function
 * returns 0 or a negative errno with the reason in the fault; -EBADMSG is a wrong byte, the one thing that must not
 * happen. The times are of the system calls alone, without making or comparing bytes.
 */
#ifndef TESTS_BENCH_VALUE_H
#define TESTS_BENCH_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/fault.h"

struct value_io {
	char *buf;	 /* page-aligned, of the largest value */
	size_t piece;	 /* bytes of one read or write */
	uint64_t seed;	 /* of the content */
	int flags;	 /* O_DIRECT or 0, for writing */
	bool verify;	 /* compare all bytes, not only some of each piece, and do not count the time for it */
	bool load_all;	 /* value_map() loads all words, not one of every page */
	unsigned passes; /* value_read() reads so often to the end, once at least */
	struct fault *f; /* shared */
	uint64_t *cpu;	 /* where reads and maps add the thread's processor time of what they time; NULL: nowhere */
};

struct value {
	int dirfd;
	const char *name;
	uint64_t id, size;
};

/* open(O_CREAT | O_EXCL), write, close; adds its nanoseconds to *ns. */
int value_put(const struct value_io *io, const struct value *v, uint64_t *ns);
/* open, read to the end, perhaps several times, close. */
int value_read(const struct value_io *io, const struct value *v, uint64_t *ns);
/* open, mmap, load the words, munmap, close. */
int value_map(const struct value_io *io, const struct value *v, uint64_t *ns);
/* Makes the file system's page cache forget the value. */
int value_drop(const struct value_io *io, const struct value *v);

#endif
