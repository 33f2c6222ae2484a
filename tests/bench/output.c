/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/output.h"

#include <errno.h>

#include "tests/bench/head.h"

static int print_json(const struct bench *b, const char *command, const char *directory, const char *fs)
{
	json_t *root = head_json(b->o, command, directory, fs);
	int r;

	r = root && json_object_set_new(root, "threads", json_integer(b->o->threads)) == 0 &&
		    json_object_set_new(root, "warmup", json_integer(b->o->warmup)) == 0
		? report_json(b->report, root)
		: -ENOMEM;
	if (r == 0)
		r = json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) < 0 ? -EIO : 0;
	putchar('\n');
	json_decref(root);
	return r;
}

int output_print(const struct bench *b, const char *command, const char *directory, const char *fs)
{
	const struct bench_options *o = b->o;

	if (o->json)
		return print_json(b, command, directory, fs);
	printf("fluxkv-bench %s: %s%s(%s), %u runs in turn, %u thread%s, seed %u\n", command, directory,
	       *directory ? " " : "", fs, o->runs, o->threads, o->threads > 1 ? "s" : "", o->seed);
	report_print(b->report, stdout);
	return ferror(stdout) ? -EIO : 0;
}
