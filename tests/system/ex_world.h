/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread's share of the exerciser: its names, its open handles, its random numbers, and the rules by which files
 * change state. Threads share directories but no names, so each thread's run depends on its seed alone and replays.
 */
#ifndef TESTS_SYSTEM_EX_WORLD_H
#define TESTS_SYSTEM_EX_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/system/ex_model.h"

struct options {
	const char *dir, *evict_cmd;
	uint64_t seed;
	unsigned long ops;
	unsigned files, threads;
	size_t max_size;
	bool versions;	/* a reader's handle holds the version it opened */
	bool evict_any; /* memory is short: a closed file may be gone at any time, and ENOSPC is an answer */
	bool keep;	/* leave the files behind */
};

#define MAX_HANDLES 24
#define MAX_HELD 6
#define HISTORY 48

/* A mapping of a version that outlives the handle it was made from. */
struct held_map {
	uint8_t *p;
	struct bytes *bytes;
};

struct world {
	const struct options *opt;
	unsigned id;
	unsigned long op;
	uint64_t rng;
	unsigned nnames, nhandles, nheld;
	struct name *names;
	struct handle *handles[MAX_HANDLES];
	struct held_map held[MAX_HELD];
	uint8_t *out, *in; /* page-aligned, max_size + a page */
	char history[HISTORY][192];
	char error[512];
	unsigned long evicted, busy, enospc;
};

struct world *world_new(const struct options *opt, unsigned id);
struct world *world_free(struct world *w);

/* Both put the text where the report finds it; fail returns -1. */
int fail(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* As fail, of a read at off that returned got[0..n) and not the bytes of want: says where, and whose bytes those are.
 */
int fail_bytes(struct world *w, const char *what, size_t off, size_t len, const void *got, ssize_t n,
	       const struct bytes *want);
void note(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

uint64_t rnd(struct world *w);
uint64_t below(struct world *w, uint64_t n); /* 0 for n == 0 */
bool chance(struct world *w, unsigned percent);
size_t some_size(struct world *w, size_t max); /* small, page-edged, odd and large ones, 0 too */
void fill(struct world *w, size_t len);	       /* w->out becomes bytes that no other op wrote */

struct name *some_name(struct world *w, bool there);	       /* NULL: none */
struct handle *some_handle(struct world *w, int need, int no); /* need, no: of O_RDONLY, O_WRONLY, O_RDWR as 1 2 4 */
#define CAN_READ (1 << O_RDONLY | 1 << O_RDWR)
#define CAN_WRITE (1 << O_WRONLY | 1 << O_RDWR)

bool may_be_gone(const struct world *w, const struct file *f);
void name_drop(struct name *n);
void name_set(struct name *n, struct file *f); /* counts f */

struct handle *handle_open(struct world *w, struct file *f, int fd, int flags); /* counts f */
/* Closes the descriptor and does to the file what that close does. -1: close failed, or a last look did. */
int handle_close(struct world *w, struct handle *h);
int close_writers(struct world *w, struct file *f);

void file_changed(struct world *w, struct file *f);
int file_published(struct world *w, struct file *f);

#endif
