/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/size.h"
#include "tests/bench/crew.h"
#include "tests/bench/stop.h"
#include "tests/bench/value.h"

#define SET_MAX 4096
#define HUGE_LEAST (512u << 10)

struct job {
	struct bench *b;
	const struct set *s;
	enum set_op op;
	int flags;
	atomic_ullong cpu; /* ns that the threads took for what is timed of reads and maps */
};

void set_name(unsigned i, char name[SET_NAME_LEN])
{
	snprintf(name, SET_NAME_LEN, "v%08u", i);
}

unsigned set_count(const struct bench_options *o, uint64_t size)
{
	uint64_t n = o->total / size;

	return n < 1 ? 1 : n > SET_MAX ? SET_MAX : (unsigned)n;
}

static int do_value(const struct value_io *io, const struct value *v, enum set_op op, uint64_t *ns)
{
	switch (op) {
	case SET_PUT:
		return value_put(io, v, ns);
	case SET_READ:
		return value_read(io, v, ns);
	case SET_MAP:
		return value_map(io, v, ns);
	case SET_DROP:
		return value_drop(io, v);
	case SET_REMOVE:
		if (unlinkat(v->dirfd, v->name, 0) < 0)
			return fault_set(io->f, -errno, "unlink of %s: %s", v->name, strerror(errno));
		return 0;
	}
	return -EINVAL;
}

/* Values thread, thread + threads, ... */
static int do_share(void *arg, unsigned thread, uint64_t *ret_ns)
{
	struct job *j = arg;
	const struct bench_options *o = j->b->o;
	uint64_t cpu = 0;
	struct value_io io = {.buf = j->b->bufs[thread],
			      .piece = o->piece,
			      .seed = o->seed,
			      .flags = j->flags,
			      .verify = o->verify,
			      .load_all = o->touch == TOUCH_ALL,
			      .passes = o->passes,
			      .f = &j->b->fault,
			      .cpu = &cpu};
	struct value v = {.dirfd = j->s->t->dirfd, .size = j->s->size};
	char name[SET_NAME_LEN];
	int r = 0;

	*ret_ns = 0;
	v.name = name;
	for (unsigned i = thread; r == 0 && i < j->s->n; i += o->threads) {
		if (stop_wanted())
			return -EINTR;
		set_name(j->s->from + i, name);
		v.id = j->s->first_id + i;
		r = do_value(&io, &v, j->op, ret_ns);
	}
	atomic_fetch_add(&j->cpu, cpu);
	return r;
}

bool set_fits(const struct set *s)
{
	return !s->t->huge || s->size >= HUGE_LEAST;
}

static int run(struct bench *b, const struct set *s, enum set_op op, int flags, uint64_t *ret_ns, uint64_t *ret_cpu)
{
	struct job j = {.b = b, .s = s, .op = op, .flags = flags};
	int r = crew_run(b->o->threads, do_share, &j, ret_ns);

	*ret_cpu = atomic_load(&j.cpu);
	return r;
}

int set_run(struct bench *b, const struct set *s, enum set_op op, int flags, uint64_t *ret_ns)
{
	uint64_t cpu;

	return run(b, s, op, flags, ret_ns, &cpu);
}

int bench_add_rate(struct bench *b, unsigned round, const struct report_key *key, const char *target, double n,
		   uint64_t ns)
{
	if (round < b->o->warmup)
		return 0;
	return report_add(b->report, key, target, n * 1e9 / (double)(ns ? ns : 1));
}

/* node: what the daemon's clock said before. */
static int add_share(struct bench *b, unsigned round, const struct set *s, enum set_op op, const struct report_key *key,
		     uint64_t node, uint64_t cpu)
{
	struct report_key share = *key;

	if (!b->node.known || s->t != &b->targets[0] || round < b->o->warmup || !cpu)
		return 0;
	share.op = op == SET_MAP ? SET_MAP_NODE_CPU : SET_READ_NODE_CPU;
	share.unit = REPORT_SHARE;
	return report_add(b->report, &share, s->t->name, (double)(node_cpu_ns(&b->node) - node) / (double)cpu);
}

int set_measure(struct bench *b, const struct set *s, enum set_op op, int flags, const struct report_key *key,
		unsigned round)
{
	double bytes = (double)s->n * (double)s->size * (op == SET_READ ? b->o->passes : 1);
	uint64_t ns, cpu, node = node_cpu_ns(&b->node);
	int r = run(b, s, op, flags, &ns, &cpu);

	if (r == 0) /* first: the daemon's clock goes on */
		r = add_share(b, round, s, op, key, node, cpu);
	if (r == 0)
		r = bench_add_rate(b, round, key, s->t->name, bytes, ns);
	return r;
}

int bench_buffers(struct bench *b, size_t len)
{
	b->buf_len = align_up(len, 4096);
	b->bufs = calloc(b->o->threads, sizeof(*b->bufs));
	for (unsigned i = 0; b->bufs && i < b->o->threads; i++) {
		if (posix_memalign((void **)&b->bufs[i], 4096, b->buf_len))
			return -ENOMEM;
		memset(b->bufs[i], 1, b->buf_len); /* the first touch of a page is nobody's to pay for */
	}
	return b->bufs ? 0 : -ENOMEM;
}

void bench_drop_buffers(struct bench *b)
{
	for (unsigned i = 0; b->bufs && i < b->o->threads; i++)
		free(b->bufs[i]);
	free(b->bufs);
	b->bufs = NULL;
}
