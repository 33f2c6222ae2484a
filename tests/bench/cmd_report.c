/* SPDX-License-Identifier: Apache-2.0 */
/* report: tables of what the other commands wrote, to stdout, and pictures of pressure runs, to files. */
#include "tests/bench/commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/chart_draw.h"
#include "tests/bench/markdown.h"
#include "tests/bench/output.h"

static int load(struct bench *b, const char *path, json_t **ret)
{
	json_error_t why;
	json_t *j = json_load_file(path, 0, &why);

	if (!j)
		return fault_set(&b->fault, -EBADMSG, "%s: line %d: %s", path, why.line, why.text);
	*ret = j;
	return 0;
}

static int load_all(struct bench *b, json_t **files)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < b->n_files; i++)
		r = load(b, b->files[i], &files[i]);
	return r;
}

static int print_tables(struct bench *b, json_t *const *files)
{
	struct errmsg e = {{0}};
	int r;

	for (unsigned i = 0; i < b->n_files; i++) {
		r = markdown_write(files[i], stdout, &e);
		if (r < 0)
			return fault_set(&b->fault, r, "%s: %s", b->files[i], e.text);
	}
	return 0;
}

/* What is drawn is named in the Markdown; what is not, on stderr. */
static int draw(struct bench *b, const struct chart *c)
{
	char base[PATH_MAX], name[64];
	struct errmsg e = {{0}};
	int r;

	snprintf(name, sizeof(name), "pressure-%s", c->on_miss);
	if (snprintf(base, sizeof(base), "%s/%s", b->o->out_dir, name) >= (int)sizeof(base))
		return fault_set(&b->fault, -ENAMETOOLONG, "--out-dir: the name is too long");
	r = chart_draw(c, base, &e);
	if (r == -ENOSYS)
		fprintf(stderr, "fluxkv-bench: %s\n", e.text);
	else if (r < 0)
		return fault_set(&b->fault, r, "%s", e.text);
	else
		printf("![hit payload and hit rate](%s.svg)\n\n", name);
	return 0;
}

static int draw_all(struct bench *b, json_t *const *files)
{
	static const char *const on_miss[] = {"leave", "put"};
	struct errmsg e = {{0}};
	struct chart *c;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < sizeof(on_miss) / sizeof(on_miss[0]); i++) {
		c = NULL;
		r = chart_new(files, b->n_files, on_miss[i], &c, &e);
		if (r < 0)
			return fault_set(&b->fault, r, "%s", e.text);
		if (c)
			r = draw(b, c);
		chart_free(c);
	}
	return r;
}

int cmd_report(struct bench *b)
{
	json_t **files = calloc(b->n_files, sizeof(*files));
	int r = files ? load_all(b, files) : -ENOMEM;

	if (r == 0)
		r = print_tables(b, files);
	if (r == 0)
		r = draw_all(b, files);
	for (unsigned i = 0; files && i < b->n_files; i++)
		json_decref(files[i]);
	free(files);
	return r == 0 ? output_flush(&b->fault) : r;
}
