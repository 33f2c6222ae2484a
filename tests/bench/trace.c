/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"

#define REQUEST_BLOCKS_MAX (1u << 20)

/* Makes room for one more element behind n. */
static int grow(void **v, size_t n, size_t *cap, size_t size)
{
	size_t more = *cap ? *cap * 2 : 1024;
	void *p;

	if (n < *cap)
		return 0;
	p = reallocarray(*v, more, size);
	if (!p)
		return -ENOMEM;
	*v = p;
	*cap = more;
	return 0;
}

static int add_id(struct trace *t, const json_t *id, struct errmsg *e)
{
	if (!json_is_integer(id) || json_integer_value(id) < 0)
		return errmsg_set(e, -EBADMSG, "hash_ids must be integers from 0");
	if (grow((void **)&t->ids, t->n_ids, &t->cap_ids, sizeof(*t->ids)) < 0)
		return -ENOMEM;
	t->ids[t->n_ids++] = (uint64_t)json_integer_value(id);
	return 0;
}

static int add_request(struct trace *t, const json_t *root, struct errmsg *e)
{
	const json_t *ids = json_object_get(root, "hash_ids");
	size_t first = t->n_ids;
	int r;

	if (!json_is_array(ids))
		return errmsg_set(e, -EBADMSG, "there is no array hash_ids");
	if (json_array_size(ids) > REQUEST_BLOCKS_MAX)
		return errmsg_set(e, -EBADMSG, "there are more than %u hash_ids", REQUEST_BLOCKS_MAX);
	r = grow((void **)&t->requests, t->n_requests, &t->cap_requests, sizeof(*t->requests));
	for (size_t i = 0; r == 0 && i < json_array_size(ids); i++)
		r = add_id(t, json_array_get(ids, i), e);
	if (r < 0) {
		t->n_ids = first;
		return r;
	}
	t->requests[t->n_requests++] = (struct trace_request){first, t->n_ids - first};
	return 0;
}

int trace_add_line(struct trace *t, const char *line, size_t len, struct errmsg *e)
{
	json_error_t why;
	json_t *root = json_loadb(line, len, 0, &why);
	int r;

	if (!root)
		return errmsg_set(e, -EBADMSG, "no JSON object: %s", why.text);
	r = add_request(t, root, e);
	json_decref(root);
	return r;
}

static bool blank(const char *line)
{
	return !line[strspn(line, " \t\r\n")];
}

static int load_lines(FILE *f, const char *path, size_t max, struct trace *t, struct errmsg *e)
{
	unsigned long number = 0;
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int r = 0;

	while (r == 0 && t->n_requests < max && (n = getline(&line, &cap, f)) >= 0) {
		number++;
		if (!blank(line))
			r = trace_add_line(t, line, (size_t)n, e);
	}
	free(line);
	if (r == -EBADMSG)
		return errmsg_prefix(e, r, "%s:%lu", path, number);
	if (r == 0 && ferror(f))
		return errmsg_set(e, -EIO, "%s: cannot be read", path);
	if (r == 0 && !t->n_ids)
		return errmsg_set(e, -EBADMSG, "%s: there is no request in it", path);
	return r == -ENOMEM ? errmsg_set(e, r, "%s: not enough memory", path) : r;
}

int trace_load(const char *path, size_t max, struct trace *ret, struct errmsg *e)
{
	struct trace t = {0};
	FILE *f = fopen(path, "re");
	int r;

	if (!f)
		return errmsg_set(e, -errno, "cannot open %s: %s", path, strerror(errno));
	r = load_lines(f, path, max, &t, e);
	fclose(f);
	if (r < 0)
		trace_free(&t);
	else
		*ret = t;
	return r;
}

void trace_free(struct trace *t)
{
	free(t->ids);
	free(t->requests);
	memset(t, 0, sizeof(*t));
}

/* Ids that were stored, as open addressing with at most half of the slots in use; an id is kept plus one. */
struct id_set {
	uint64_t *slots;
	size_t mask;
};

static uint64_t *id_slot(const struct id_set *s, uint64_t id)
{
	size_t i = (size_t)hash_u64(id) & s->mask;

	while (s->slots[i] && s->slots[i] != id + 1)
		i = (i + 1) & s->mask;
	return &s->slots[i];
}

int trace_bound(const struct trace *t, struct trace_bound *ret)
{
	struct trace_bound b = {0};
	struct id_set s = {.mask = 1023};
	uint64_t *slot;
	bool hit;

	while (s.mask / 2 < t->n_ids)
		s.mask = s.mask * 2 + 1;
	s.slots = calloc(s.mask + 1, sizeof(*s.slots));
	if (!s.slots)
		return -ENOMEM;
	for (size_t i = 0; i < t->n_requests; i++) {
		hit = true;
		for (size_t k = 0; k < t->requests[i].n; k++) {
			slot = id_slot(&s, t->ids[t->requests[i].first + k]);
			hit = hit && *slot; /* the first miss ends the prefix */
			b.hits += hit;
			b.stores += !hit;
			b.distinct += !*slot;
			*slot = t->ids[t->requests[i].first + k] + 1;
		}
	}
	free(s.slots);
	*ret = b;
	return 0;
}
