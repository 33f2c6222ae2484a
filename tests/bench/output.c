/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/output.h"

#include <errno.h>
#include <string.h>

#include "tests/bench/head.h"

int output_flush(struct fault *f)
{
	int r;

	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	/* What failed before now, with its errno forgotten, usually fails again. */
	r = errno ? -errno : -EIO;
	return fault_set(f, r, "cannot write to standard output: %s", strerror(-r));
}

int output_json(json_t *root, struct fault *f)
{
	int r = json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) < 0 ? -EIO : 0, flushed;

	putchar('\n');
	flushed = output_flush(f);
	return flushed < 0 ? flushed : r;
}

static int print_json(struct bench *b, const char *command, const char *directory, const char *fs)
{
	json_t *root = head_json(b->o, command, directory, fs);
	int r;

	r = root && json_object_set_new(root, "threads", json_integer(b->o->threads)) == 0 &&
		    json_object_set_new(root, "warmup", json_integer(b->o->warmup)) == 0
		? report_json(b->report, root)
		: -ENOMEM;
	if (r == 0)
		r = output_json(root, &b->fault);
	json_decref(root);
	return r;
}

int output_print(struct bench *b, const char *command, const char *directory, const char *fs)
{
	const struct bench_options *o = b->o;

	if (o->json)
		return print_json(b, command, directory, fs);
	printf("fluxkv-bench %s: %s%s(%s), %u runs in turn, %u thread%s, seed %u\n", command, directory,
	       *directory ? " " : "", fs, o->runs, o->threads, o->threads > 1 ? "s" : "", o->seed);
	report_print(b->report, stdout);
	return output_flush(&b->fault);
}
