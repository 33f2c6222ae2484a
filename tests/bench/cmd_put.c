/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put: new values, by write(2), with O_DIRECT, by cp (one process for the set) and by dd (one process a value, whose
 * start counts). What was written is read back before it is removed: one value of each set, all with --verify.
 */
#include "tests/bench/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/child.h"
#include "tests/bench/status.h"
#include "tests/bench/stop.h"

static const char *const by_names[PUT_BYS] = {
    [PUT_WRITE] = "put write",
    [PUT_DIRECT] = "put direct",
    [PUT_CP] = "put cp",
    [PUT_DD] = "put dd",
};

/* The files that cp and dd copy, in a tmpfs of their own so that no target shares a file system with them. */
struct source {
	struct target t;
	struct set set;
};

static int source_open(struct bench *b, struct source *src)
{
	struct errmsg e = {{0}};
	int r = target_open_tmpfs(&src->t, "source", false, &e);

	if (r < 0)
		r = target_open(&src->t, "source", "/dev/shm", &e);
	return r < 0 ? fault_set(&b->fault, r, "no place for the files to copy: %s", e.text) : 0;
}

static char *join(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static void free_words(char **words)
{
	for (size_t i = 0; words && words[i]; i++)
		free(words[i]);
	free(words);
}

/* cp -t TARGET SOURCE/v0 SOURCE/v1 ...; NULL when there is no memory. */
static char **cp_words(const struct source *src, const struct set *s)
{
	char **words = calloc(s->n + 5, sizeof(*words)), name[SET_NAME_LEN];
	bool whole = words != NULL;

	if (!words)
		return NULL;
	words[0] = strdup("cp");
	words[1] = strdup("-t");
	words[2] = strdup(s->t->path);
	whole = words[0] && words[1] && words[2];
	for (unsigned i = 0; whole && i < s->n; i++) {
		set_name(i, name);
		words[3 + i] = join(src->t.path, name);
		whole = words[3 + i] != NULL;
	}
	if (!whole) {
		free_words(words);
		return NULL;
	}
	return words;
}

static int run_child(struct bench *b, const char *const *words, uint64_t *ret_ns)
{
	struct errmsg e = {{0}};
	int r = child_run(words, NULL, ret_ns, &e);

	return r < 0 ? fault_set(&b->fault, r, "%s", e.text) : 0;
}

static int put_cp(struct bench *b, const struct source *src, const struct set *s, uint64_t *ret_ns)
{
	char **words = cp_words(src, s);
	int r;

	if (!words)
		return -ENOMEM;
	r = run_child(b, (const char *const *)words, ret_ns);
	free_words(words);
	return r;
}

static int put_dd(struct bench *b, const struct source *src, const struct set *s, uint64_t *ret_ns)
{
	char in[PATH_MAX + 32], out[PATH_MAX + 32], bs[32], name[SET_NAME_LEN];
	const char *const words[] = {"dd", in, out, bs, "status=none", NULL};
	uint64_t ns = 0, one;
	int r = 0;

	snprintf(bs, sizeof(bs), "bs=%llu", (unsigned long long)b->o->piece);
	for (unsigned i = 0; r == 0 && i < s->n; i++) {
		set_name(i, name);
		snprintf(in, sizeof(in), "if=%s/%s", src->t.path, name);
		snprintf(out, sizeof(out), "of=%s/%s", s->t->path, name);
		r = stop_wanted() ? -EINTR : run_child(b, words, &one);
		if (r == 0)
			ns += one;
	}
	if (r == 0)
		*ret_ns = ns;
	return r;
}

static int put_set(struct bench *b, const struct source *src, const struct set *s, enum put_by by, uint64_t *ret_ns)
{
	switch (by) {
	case PUT_WRITE:
		return set_run(b, s, SET_PUT, 0, ret_ns);
	case PUT_DIRECT:
		return set_run(b, s, SET_PUT, O_DIRECT, ret_ns);
	case PUT_CP:
		return put_cp(b, src, s, ret_ns);
	case PUT_DD:
		return put_dd(b, src, s, ret_ns);
	default:
		return -EINVAL;
	}
}

/* Puts a set on one target in one way, reads back, removes. */
static int measure_target(struct bench *b, const struct source *src, const struct set *s, enum put_by by,
			  unsigned round)
{
	struct report_key key = {.op = by_names[by], .state = "", .size = s->size, .unit = REPORT_BYTES_PER_S};
	struct set back = *s;
	uint64_t ns;
	int r = put_set(b, src, s, by, &ns);

	if (r == 0)
		r = bench_add_rate(b, round, &key, s->t->name, (double)s->n * (double)s->size, ns);
	if (!b->o->verify)
		back.n = 1;
	if (r == 0)
		r = set_run(b, &back, SET_READ, 0, &ns);
	if (r == 0)
		r = set_run(b, s, SET_REMOVE, 0, &ns);
	return r;
}

/* O_DIRECT is refused by some file systems: that is a note, not a failure. */
static bool direct_works(struct bench *b, const struct target *t)
{
	int fd = openat(t->dirfd, "direct", O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0 && errno == EINVAL) {
		report_note(b->report, "%s (%s) has no O_DIRECT", t->name, t->mount.type);
		return false;
	}
	if (fd >= 0)
		close(fd);
	unlinkat(t->dirfd, "direct", 0);
	return true;
}

/* All rounds of one way of putting values of one size, on all targets in turn. */
static int measure_by(struct bench *b, const struct source *src, uint64_t size, enum put_by by)
{
	const struct bench_options *o = b->o;
	bool skip[BENCH_TARGETS] = {false};
	struct set s;
	int r = 0;

	for (unsigned t = 0; by == PUT_DIRECT && t < b->n_targets; t++)
		skip[t] = !direct_works(b, &b->targets[t]);
	for (unsigned round = 0; round < o->warmup + o->runs; round++)
		for (unsigned t = 0; r == 0 && t < b->n_targets; t++) {
			/* The ids are those of the source: cp and dd bring its bytes. */
			s = (struct set){.t = &b->targets[t], .size = size, .n = src->set.n};
			if (!skip[t] && set_fits(&s))
				r = measure_target(b, src, &s, by, round);
		}
	return r;
}

static int measure_size(struct bench *b, struct source *src, uint64_t size)
{
	uint64_t ns;
	int r;

	src->set = (struct set){.t = &src->t, .size = size, .n = set_count(b->o, size)};
	r = set_run(b, &src->set, SET_PUT, 0, &ns);
	for (enum put_by by = PUT_WRITE; r == 0 && by < PUT_BYS; by++)
		if (b->o->by == PUT_ALL || b->o->by == by)
			r = measure_by(b, src, size, by);
	if (r == 0)
		r = set_run(b, &src->set, SET_REMOVE, 0, &ns);
	return r;
}

/* Puts never wait for the SSD tier; what it could not take is said, so that a rate is seen for what it is. */
static int note_persists(struct bench *b, const struct status *before)
{
	struct status now, d;
	int r = status_read(&b->targets[0], &now);

	if (r < 0)
		return r;
	d = status_since(&now, before);
	return report_note(b->report, "meanwhile %llu blocks were written to the SSD tier and %llu were not persisted",
			   (unsigned long long)d.persists, (unsigned long long)d.dropped);
}

int cmd_put(struct bench *b)
{
	struct source src = {.t = TARGET_CLOSED};
	struct status before;
	int tiers = status_read(&b->targets[0], &before), r = source_open(b, &src);

	for (unsigned i = 0; r == 0 && i < b->o->sizes.n; i++)
		r = measure_size(b, &src, b->o->sizes.v[i]);
	if (r == 0 && tiers == 0)
		r = note_persists(b, &before);
	target_close(&src.t);
	return r;
}
