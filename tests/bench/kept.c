/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/kept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whatever may differ between two runs whose cells stand in one table: the time, and how many of them there are. */
static const char *const must_agree[] = {"version", "machine", "seed", "workload"};

/* What differs, in words: the member of the object, or the value itself. */
static const char *difference(json_t *then, json_t *now, const char *name)
{
	const char *member;
	json_t *value;

	json_object_foreach (now, member, value)
		if (!json_equal(value, json_object_get(then, member)))
			return member;
	return name;
}

static int compare(json_t *then, const json_t *now, const char *file, struct errmsg *e)
{
	const char *program = json_string_value(json_object_get(then, "program"));
	const char *command = json_string_value(json_object_get(then, "command"));
	json_t *a, *b;

	if (!program || strcmp(program, "fluxkv-bench") || !command || strcmp(command, "pressure") ||
	    !json_equal(json_object_get(then, "schema"), json_object_get(now, "schema")) ||
	    !json_is_array(json_object_get(then, "cells")))
		return errmsg_set(e, -EBADMSG, "--save: %s is there, and was not written by this command", file);
	for (size_t i = 0; i < sizeof(must_agree) / sizeof(must_agree[0]); i++) {
		a = json_object_get(then, must_agree[i]);
		b = json_object_get(now, must_agree[i]);
		if (!json_equal(a, b))
			return errmsg_set(e, -EEXIST, "--save: %s has the cells of a run with another %s", file,
					  difference(a, b, must_agree[i]));
	}
	return 0;
}

int kept_load(struct kept *k, const char *file, const json_t *now, struct errmsg *e)
{
	struct kept found = {0};
	json_error_t why;
	int r;

	if (access(file, F_OK) < 0 && errno == ENOENT)
		return 0;
	found.file = json_load_file(file, 0, &why);
	if (!found.file)
		return errmsg_set(e, -EBADMSG, "--save: %s: line %d: %s", file, why.line, why.text);
	r = compare(found.file, now, file, e);
	found.cells = json_object_get(found.file, "cells");
	if (r == 0) {
		found.taken = calloc(json_array_size(found.cells) + 1, sizeof(*found.taken));
		r = found.taken ? 0 : errmsg_set(e, -ENOMEM, "no memory for the cells of %s", file);
	}
	if (r < 0)
		kept_free(&found);
	else
		*k = found;
	return r;
}

void kept_free(struct kept *k)
{
	json_decref(k->file);
	free(k->taken);
	*k = (struct kept){0};
}

json_t *kept_take(struct kept *k, const struct cell *c)
{
	json_t *j;
	size_t i;

	json_array_foreach (k->cells, i, j)
		if (!k->taken[i] && cell_is(c, j)) {
			k->taken[i] = true;
			return j;
		}
	return NULL;
}
