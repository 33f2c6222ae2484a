/* SPDX-License-Identifier: Apache-2.0 */
/* open: what a name costs. Small files, many of them in one directory; operations per second, all threads together. */
#include "tests/bench/commands.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/bench/crew.h"
#include "tests/bench/stop.h"
#include "tests/bench/value.h"

#define FILE_BYTES 4096

struct pass {
	struct bench *b;
	const struct target *t;
	unsigned round;
	/* One operation on file i; 0 or a negative errno with the reason in the fault. */
	int (*step)(const struct pass *p, struct value_io *io, unsigned i);
};

static int oops(const struct pass *p, const char *what, const char *name)
{
	return fault_set(&p->b->fault, -errno, "%s of %s on %s: %s", what, name, p->t->name, strerror(errno));
}

static int step_put(const struct pass *p, struct value_io *io, unsigned i)
{
	struct value v = {.dirfd = p->t->dirfd, .id = i, .size = FILE_BYTES};
	char name[SET_NAME_LEN];
	uint64_t ns = 0;

	set_name(i, name);
	v.name = name;
	return value_put(io, &v, &ns);
}

static int step_open(const struct pass *p, struct value_io *io, unsigned i)
{
	struct value v = {.dirfd = p->t->dirfd, .id = i, .size = FILE_BYTES};
	char name[SET_NAME_LEN];
	uint64_t ns = 0;

	set_name(i, name);
	v.name = name;
	return value_read(io, &v, &ns);
}

static int step_stat(const struct pass *p, struct value_io *io, unsigned i)
{
	char name[SET_NAME_LEN];
	struct stat st;

	set_name(i, name);
	if (fstatat(p->t->dirfd, name, &st, 0) < 0)
		return oops(p, "stat", name);
	if (st.st_size != FILE_BYTES)
		return fault_set(&p->b->fault, -EBADMSG, "%s on %s has a wrong size", name, p->t->name);
	return 0;
}

/* A name that was never there and is asked for the first time. */
static int step_absent(const struct pass *p, struct value_io *io, unsigned i)
{
	char name[32];
	struct stat st;

	snprintf(name, sizeof(name), "absent-%u-%08u", p->round, i);
	if (!fstatat(p->t->dirfd, name, &st, 0))
		return fault_set(&p->b->fault, -EBADMSG, "%s on %s is there", name, p->t->name);
	return errno == ENOENT ? 0 : oops(p, "lookup", name);
}

static int step_create(const struct pass *p, struct value_io *io, unsigned i)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "new-%08u", i);
	fd = openat(p->t->dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return oops(p, "create", name);
	if (close(fd) < 0)
		return oops(p, "close", name);
	return unlinkat(p->t->dirfd, name, 0) < 0 ? oops(p, "unlink", name) : 0;
}

static int do_share(void *arg, unsigned thread, uint64_t *ret_ns)
{
	struct pass *p = arg;
	const struct bench_options *o = p->b->o;
	struct value_io io = {.buf = p->b->bufs[thread], .piece = FILE_BYTES, .seed = o->seed, .f = &p->b->fault};
	uint64_t start = clock_ns();
	int r = 0;

	for (unsigned i = thread; r == 0 && i < o->files; i += o->threads)
		r = stop_wanted() ? -EINTR : p->step(p, &io, i);
	*ret_ns = clock_ns() - start;
	return r;
}

/* Does the step to every file and adds the rate. */
static int measure_pass(struct pass *p, const char *op, const char *state,
			int (*step)(const struct pass *, struct value_io *, unsigned))
{
	struct report_key key = {.op = op, .state = state, .unit = REPORT_PER_S};
	uint64_t ns;
	int r;

	p->step = step;
	r = crew_run(p->b->o->threads, do_share, p, &ns);
	return r < 0 ? r : bench_add_rate(p->b, p->round, &key, p->t->name, p->b->o->files, ns);
}

/* Reads the directory to its end, on one thread; also asks for each file's attributes if with_stat. */
static int list(const struct pass *p, bool with_stat, unsigned *ret_n)
{
	int r = 0, fd = openat(p->t->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;
	struct stat st;
	unsigned n = 0;

	if (!dir) {
		r = oops(p, "opendir", p->t->path);
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (r == 0 && (ent = readdir(dir))) {
		if (ent->d_name[0] == '.')
			continue;
		n++;
		if (with_stat && fstatat(fd, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			r = oops(p, "stat", ent->d_name);
	}
	closedir(dir);
	*ret_n = n;
	return r;
}

static int measure_list(struct pass *p, bool with_stat)
{
	struct report_key key = {.op = with_stat ? "readdir+stat" : "readdir", .state = "", .unit = REPORT_PER_S};
	uint64_t start = clock_ns();
	unsigned n = 0;
	int r = list(p, with_stat, &n);

	if (r == 0 && n != p->b->o->files)
		return fault_set(&p->b->fault, -EBADMSG, "readdir on %s gave %u names of %u", p->t->name, n,
				 p->b->o->files);
	return r < 0 ? r : bench_add_rate(p->b, p->round, &key, p->t->name, n, clock_ns() - start);
}

static int measure_target(struct bench *b, const struct target *t, unsigned round)
{
	struct pass p = {.b = b, .t = t, .round = round};
	struct set s = {.t = t, .size = FILE_BYTES, .n = b->o->files};
	uint64_t ns;
	int r = measure_pass(&p, "create+write", "", step_put);

	if (r == 0)
		r = measure_pass(&p, "open+read", "cold", step_open);
	if (r == 0)
		r = measure_pass(&p, "open+read", "warm", step_open);
	if (r == 0)
		r = measure_pass(&p, "stat", "warm", step_stat);
	if (r == 0)
		r = measure_pass(&p, "absent", "cold", step_absent);
	if (r == 0)
		r = measure_pass(&p, "absent", "warm", step_absent);
	if (r == 0)
		r = measure_pass(&p, "create+unlink", "", step_create);
	if (r == 0)
		r = measure_list(&p, false);
	if (r == 0)
		r = measure_list(&p, true);
	return r == 0 ? set_run(b, &s, SET_REMOVE, 0, &ns) : r;
}

int cmd_open(struct bench *b)
{
	int r = 0;

	for (unsigned round = 0; round < b->o->warmup + b->o->runs; round++)
		for (unsigned t = 0; r == 0 && t < b->n_targets; t++)
			r = measure_target(b, &b->targets[t], round);
	return r;
}
