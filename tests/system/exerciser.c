/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file-system exerciser: random operations from a seed against a directory, every answer compared with a model in
 * memory. exerciser --help tells the options; ex_model.h the two semantics. Exit 0: no difference; 1: a difference,
 * with a line that replays it; 2: it could not run.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/size.h"
#include "tests/system/ex_io.h"
#include "tests/system/ex_ops.h"

static const char usage_text[] =
    "Usage: exerciser [OPTION]... DIR\n"
    "Random operations on files in DIR (made if it does not exist), compared with a model.\n"
    "  --seed=N        start of the random numbers (default: the time)\n"
    "  --ops=N         operations, all threads together (default 20000)\n"
    "  --files=N       files a thread, about (default 8)\n"
    "  --threads=N     threads (default 2)\n"
    "  --max-size=SIZE largest file (default 1MB)\n"
    "  --semantics=S   posix, or versions: a reader holds the version it opened (default posix)\n"
    "  --evict-cmd=CMD shell command that evicts the path it gets as its argument, run now and then\n"
    "  --evict-any     memory is short: closed files may vanish, ENOSPC is an answer\n"
    "  --break=KIND:N  for tests of this program: the N-th fitting call of a thread is answered wrongly\n"
    "  --keep          leave the files\n";

struct run {
	struct world *w;
	int ret;
	pthread_t thread;
};

/* Set by the first thread that finds a difference; the others stop. */
static atomic_bool stop;

static void report(struct world *w)
{
	const struct options *o = w->opt;

	flockfile(stdout);
	for (unsigned i = HISTORY - 1; i > 0; i--)
		if (w->op >= i)
			printf("  op %lu: %s\n", w->op - i, w->history[(w->op - i) % HISTORY]);
	printf("  op %lu: %s\n", w->op, w->history[w->op % HISTORY]);
	printf("DIFFERENCE at seed %llu, thread %u, op %lu: %s\n", (unsigned long long)o->seed, w->id, w->op, w->error);
	printf("replay: exerciser --seed=%llu --ops=%lu --files=%u --threads=%u --max-size=%zu --semantics=%s%s%s%s%s "
	       "%s\n",
	       (unsigned long long)o->seed, o->ops, o->files, o->threads, o->max_size,
	       o->versions ? "versions" : "posix", o->evict_cmd ? " --evict-cmd='" : "",
	       o->evict_cmd ? o->evict_cmd : "", o->evict_cmd ? "'" : "", o->evict_any ? " --evict-any" : "", o->dir);
	fflush(stdout);
	funlockfile(stdout);
}

static void *run_thread(void *arg)
{
	struct run *r = arg;
	struct world *w = r->w;
	unsigned long ops = w->opt->ops / w->opt->threads;

	for (w->op = 0; w->op < ops && !r->ret && !atomic_load(&stop); w->op++)
		if (ops_step(w)) {
			r->ret = 1;
			break;
		}
	if (!r->ret && !atomic_load(&stop) && ops_finish(w))
		r->ret = 1;
	if (r->ret) {
		atomic_store(&stop, true);
		report(w);
	}
	return NULL;
}

static void make_dirs(const struct options *o)
{
	static const char *const dirs[] = {"", "/a", "/b", "/shared"};
	char path[PATH_MAX];

	for (unsigned i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s%s", o->dir, dirs[i]);
		if (mkdir(path, 0755) && (i || errno != EEXIST))
			err(2, "exerciser: mkdir %s", path);
	}
}

static void remove_dirs(const struct options *o)
{
	static const char *const dirs[] = {"/a", "/b", "/shared"};
	char path[PATH_MAX];

	for (unsigned i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s%s", o->dir, dirs[i]);
		if (rmdir(path))
			err(2, "exerciser: rmdir %s", path);
	}
}

static unsigned long number(const char *text, unsigned long min, unsigned long max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (!*text || *end || n < min || n > max)
		errx(2, "exerciser: \"%s\" is not a number from %lu to %lu", text, min, max);
	return n;
}

static void break_option(char *text)
{
	char *colon = strchr(text, ':');

	if (!colon)
		errx(2, "exerciser: --break needs KIND:N");
	*colon = 0;
	if (!lie_parse(text))
		errx(2, "exerciser: --break does not know \"%s\"", text);
	lie_set(lie_parse(text), number(colon + 1, 1, 1000000000));
}

static void one_option(struct options *o, int c, char *arg)
{
	uint64_t size;

	switch (c) {
	case 's':
		o->seed = number(arg, 0, ULONG_MAX - 1);
		break;
	case 'o':
		o->ops = number(arg, 1, 1000000000);
		break;
	case 'f':
		o->files = (unsigned)number(arg, 1, 100000);
		break;
	case 't':
		o->threads = (unsigned)number(arg, 1, 64);
		break;
	case 'm':
		if (size_parse(arg, &size) || size < 4096 || size > 1ull << 30)
			errx(2, "exerciser: --max-size must be from 4KB to 1GB");
		o->max_size = size;
		break;
	case 'v':
		if (strcmp(arg, "posix") && strcmp(arg, "versions"))
			errx(2, "exerciser: --semantics must be posix or versions");
		o->versions = *arg == 'v';
		break;
	case 'e':
		o->evict_cmd = arg;
		break;
	case 'a':
		o->evict_any = true;
		break;
	case 'b':
		break_option(arg);
		break;
	case 'k':
		o->keep = true;
		break;
	case 'h':
		fputs(usage_text, stdout);
		exit(0);
	default:
		exit(2);
	}
}

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
	    {"seed", 1, NULL, 's'},	 {"ops", 1, NULL, 'o'},	      {"files", 1, NULL, 'f'},
	    {"threads", 1, NULL, 't'},	 {"max-size", 1, NULL, 'm'},  {"semantics", 1, NULL, 'v'},
	    {"evict-cmd", 1, NULL, 'e'}, {"evict-any", 0, NULL, 'a'}, {"break", 1, NULL, 'b'},
	    {"keep", 0, NULL, 'k'},	 {"help", 0, NULL, 'h'},      {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0)
		one_option(o, c, optarg);
	if (optind != argc - 1)
		errx(2, "exerciser: give one directory; --help tells the options");
	o->dir = argv[optind];
}

int main(int argc, char **argv)
{
	struct options o = {.ops = 20000, .files = 8, .threads = 2, .max_size = 1 << 20};
	unsigned long evicted = 0, busy = 0, enospc = 0;
	struct run *runs;
	int ret = 0;

	o.seed = (uint64_t)time(NULL);
	parse(&o, argc, argv);
	if (o.evict_cmd && io_command_server(o.evict_cmd))
		err(2, "exerciser: cannot start the process for the evict command");
	make_dirs(&o);
	io_catch_sigbus();
	runs = calloc(o.threads, sizeof(*runs));
	if (!runs)
		err(2, "exerciser: out of memory");
	for (unsigned i = 0; i < o.threads; i++) {
		runs[i].w = world_new(&o, i);
		if (pthread_create(&runs[i].thread, NULL, run_thread, &runs[i]))
			errx(2, "exerciser: cannot start a thread");
	}
	for (unsigned i = 0; i < o.threads; i++) {
		pthread_join(runs[i].thread, NULL);
		ret |= runs[i].ret;
		evicted += runs[i].w->evicted;
		busy += runs[i].w->busy;
		enospc += runs[i].w->enospc;
		world_free(runs[i].w);
	}
	free(runs);
	if (!ret && !o.keep)
		remove_dirs(&o);
	if (!ret)
		printf("ok: seed=%llu ops=%lu evicted=%lu busy=%lu enospc=%lu\n", (unsigned long long)o.seed, o.ops,
		       evicted, busy, enospc);
	return ret;
}
