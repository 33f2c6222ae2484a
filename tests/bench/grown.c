/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/grown.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/bench/crew.h"
#include "tests/bench/stamp.h"
#include "tests/bench/stop.h"

void grown_name(const struct grown *g, uint64_t number, char name[static GROWN_NAME_LEN])
{
	unsigned digits = g->b->o->digits;
	char hash[17];

	snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)stamp_base(g->b->o->seed, number));
	/* The number keeps two equal hashes apart. */
	snprintf(name, GROWN_NAME_LEN, "%.*s%s%s%08llx", (int)digits, hash, digits ? "/" : "", hash,
		 (unsigned long long)number);
}

struct value grown_value(const struct grown *g, uint64_t number, char name[static GROWN_NAME_LEN])
{
	grown_name(g, number, name);
	return (struct value){.dirfd = g->dir->dirfd, .name = name, .id = number, .size = g->size};
}

int grown_open(struct grown *g, struct bench *b, const struct target *dir, uint64_t size)
{
	unsigned dirs = b->o->digits ? 1u << (4 * b->o->digits) : 0;
	char name[16];

	*g = (struct grown){.b = b, .dir = dir, .size = size};
	for (unsigned i = 0; i < dirs; i++) {
		snprintf(name, sizeof(name), "%0*x", (int)b->o->digits, i);
		if (stop_wanted())
			return -EINTR;
		if (mkdirat(dir->dirfd, name, 0755) < 0)
			return fault_set(&b->fault, -errno, "mkdir of %s/%s: %s", dir->path, name, strerror(errno));
	}
	return 0;
}

/* Of the new numbers, thread, thread + threads, ... */
static int make_share(void *arg, unsigned thread, uint64_t *ret_ns)
{
	const struct grown *g = arg;
	const struct bench_options *o = g->b->o;
	struct value_io io = {.buf = g->b->bufs[thread], .piece = g->b->buf_len, .seed = o->seed, .f = &g->b->fault};
	char name[GROWN_NAME_LEN];
	struct value v;
	int r = 0;

	*ret_ns = 0;
	for (uint64_t i = thread; r == 0 && i < g->n; i += o->threads) {
		v = grown_value(g, g->first + i, name);
		r = stop_wanted() ? -EINTR : value_put(&io, &v, ret_ns);
	}
	return r;
}

int grown_fill(struct grown *g, uint64_t objects)
{
	uint64_t there = g->made - g->gone, ns;
	int r;

	g->first = g->made;
	g->n = objects > there ? objects - there : 0;
	r = crew_run(g->b->o->threads, make_share, g, &ns);
	if (r < 0)
		return r;
	g->made += g->n;
	g->unseen = scatter_over(g->n ? g->n : 1);
	return 0;
}

uint64_t grown_unseen(struct grown *g)
{
	return g->first + scatter_next(&g->unseen);
}
