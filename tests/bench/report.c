/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/list.h"
#include "common/size.h"

struct series {
	struct list link;
	struct report_key key;
	char target[64];
	struct samples s;
};

struct note {
	struct list link;
	char text[512];
};

struct report {
	struct list series; /* in the order of their first sample */
	struct list notes;
};

/* What is shown of a series: it, or its ratio to another one. */
struct summary {
	double median, min, max;
};

static const char *const unit_names[] = {
    [REPORT_BYTES_PER_S] = "bytes/s", [REPORT_PER_S] = "1/s",	[REPORT_SECONDS] = "s",
    [REPORT_BYTES] = "bytes",	      [REPORT_COUNT] = "count", [REPORT_SHARE] = "share",
};

struct report *report_new(void)
{
	struct report *r = calloc(1, sizeof(*r));

	if (r) {
		list_init(&r->series);
		list_init(&r->notes);
	}
	return r;
}

struct report *report_free(struct report *r)
{
	struct list *pos, *tmp;
	struct series *s;

	if (!r)
		return NULL;
	list_for_each(pos, tmp, &r->series)
	{
		s = container_of(pos, struct series, link);
		samples_free(&s->s);
		free(s);
	}
	list_for_each(pos, tmp, &r->notes) free(container_of(pos, struct note, link));
	free(r);
	return NULL;
}

/* Whether they differ in the number of objects at most. */
static bool same_kind(const struct report_key *a, const struct report_key *b)
{
	return !strcmp(a->op, b->op) && !strcmp(a->state, b->state) && a->size == b->size && a->unit == b->unit;
}

static bool same_key(const struct report_key *a, const struct report_key *b)
{
	return same_kind(a, b) && a->objects == b->objects;
}

/* The series of the key and target; any target if NULL. NULL if there is none. */
static struct series *find_series(const struct report *r, const struct report_key *key, const char *target)
{
	struct list *pos, *tmp;
	struct series *s;

	list_for_each(pos, tmp, &r->series)
	{
		s = container_of(pos, struct series, link);
		if (same_key(&s->key, key) && (!target || !strcmp(s->target, target)))
			return s;
	}
	return NULL;
}

/* The first series on the target that has as many objects, or another number of them. */
static struct series *find_smallest(const struct report *r, const struct series *of)
{
	struct list *pos, *tmp;
	struct series *s;

	list_for_each(pos, tmp, &r->series)
	{
		s = container_of(pos, struct series, link);
		if (same_kind(&s->key, &of->key) && !strcmp(s->target, of->target))
			return s;
	}
	return NULL;
}

/* Behind the last series of its key, or else of its kind, so that what is compared stands together. */
static void place_series(struct report *r, struct series *s)
{
	struct list *pos, *tmp, *key = NULL, *kind = NULL;
	const struct series *at;

	list_for_each(pos, tmp, &r->series)
	{
		at = container_of(pos, struct series, link);
		if (same_key(&at->key, &s->key))
			key = pos;
		if (same_kind(&at->key, &s->key))
			kind = pos;
	}
	list_add(&s->link, key ? key : kind ? kind : r->series.prev);
}

int report_add(struct report *r, const struct report_key *key, const char *target, double value)
{
	struct series *s = find_series(r, key, target);

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		s->key = *key;
		snprintf(s->target, sizeof(s->target), "%s", target);
		place_series(r, s);
	}
	return samples_add(&s->s, value);
}

static bool has_note(const struct report *r, const char *text)
{
	struct list *pos, *tmp;
	bool found = false;

	list_for_each(pos, tmp, &r->notes) found = found || !strcmp(container_of(pos, struct note, link)->text, text);
	return found;
}

int report_note(struct report *r, const char *fmt, ...)
{
	struct note *n = calloc(1, sizeof(*n));
	va_list ap;

	if (!n)
		return -ENOMEM;
	va_start(ap, fmt);
	vsnprintf(n->text, sizeof(n->text), fmt, ap);
	va_end(ap);
	if (has_note(r, n->text))
		free(n);
	else
		list_add_tail(&n->link, &r->notes);
	return 0;
}

static int summarise(const struct samples *s, struct summary *ret)
{
	double median;
	int r = samples_median(s, &median);

	if (r < 0)
		return r;
	*ret = (struct summary){median, samples_min(s), samples_max(s)};
	return 0;
}

/* s as a multiple of what it is compared with: 1 with *ret filled, 0 if there is nothing to compare, -ENOMEM. */
static int compare(const struct series *s, const struct series *with, struct summary *ret)
{
	struct samples q = {0};
	int r;

	if (s == with || s->key.unit == REPORT_COUNT || s->key.unit == REPORT_SHARE)
		return 0;
	r = samples_ratios(&s->s, &with->s, &q);
	if (r == 0 && q.n)
		r = summarise(&q, ret);
	if (r == 0)
		r = q.n > 0;
	samples_free(&q);
	return r;
}

static int pair(const struct series *tested, const struct series *with, struct report_pair *ret)
{
	struct summary q;
	int n = tested && with ? compare(tested, with, &q) : 0;

	if (n <= 0)
		return n < 0 ? n : -ENOENT;
	*ret = (struct report_pair){q.median, q.min, q.max, &tested->s, &with->s};
	return 0;
}

int report_pair(const struct report *r, const struct report_key *key, const char *against, struct report_pair *ret)
{
	return pair(find_series(r, key, NULL), find_series(r, key, against), ret);
}

int report_growth(const struct report *r, const struct report_key *key, const char *target, struct report_pair *ret)
{
	const struct series *s = find_series(r, key, target);

	return pair(s, s ? find_smallest(r, s) : NULL, ret);
}

int report_single(const struct report *r, const struct report_key *key, const char *target, struct report_pair *ret)
{
	const struct series *s = find_series(r, key, target);
	struct summary v;
	int err = s ? summarise(&s->s, &v) : -ENOENT;

	if (err == 0)
		*ret = (struct report_pair){v.median, v.min, v.max, &s->s, NULL};
	return err;
}

const char *report_first_note(const struct report *r)
{
	return list_empty(&r->notes) ? NULL : container_of(r->notes.next, struct note, link)->text;
}

int report_copy_notes(struct report *r, const char *prefix, const struct report *from)
{
	struct list *pos, *tmp;
	int ret = 0;

	list_for_each(pos, tmp, &from->notes) if (ret == 0) ret =
	    report_note(r, "%s: %s", prefix, container_of(pos, struct note, link)->text);
	return ret;
}

const char *report_value(enum report_unit unit, double v, char *buf, size_t len)
{
	static const char *const times[] = {"s", "ms", "us", "ns"};
	unsigned i = 0;

	switch (unit) {
	case REPORT_BYTES_PER_S:
		snprintf(buf, len, v < 1e9 ? "%.1f MB/s" : "%.2f GB/s", v < 1e9 ? v / 1e6 : v / 1e9);
		break;
	case REPORT_PER_S:
		snprintf(buf, len, v < 1e4 ? "%.0f/s" : "%.1fk/s", v < 1e4 ? v : v / 1e3);
		break;
	case REPORT_SECONDS:
		for (; v > 0 && v < 1 && i < 3; i++)
			v *= 1000;
		snprintf(buf, len, "%.*f %s", v < 100 ? 1 : 0, v, times[i]);
		break;
	case REPORT_BYTES:
		snprintf(buf, len, "%.1f B", v);
		break;
	case REPORT_COUNT:
		snprintf(buf, len, "%.0f", v);
		break;
	case REPORT_SHARE:
		snprintf(buf, len, "%.*f %%", v < 0.1 ? 2 : 1, 100 * v);
		break;
	}
	return buf;
}

const char *report_unit_name(enum report_unit unit)
{
	return unit_names[unit];
}

int report_unit_of(const char *name)
{
	for (size_t i = 0; i < sizeof(unit_names) / sizeof(unit_names[0]); i++)
		if (!strcmp(unit_names[i], name))
			return (int)i;
	return -EINVAL;
}

/* What a row says beside its numbers: the ratios that it has a part in. */
static void ratio_text(const struct report *r, const struct series *s, char *buf, size_t len)
{
	const struct series *tested = find_series(r, &s->key, NULL), *smallest = find_smallest(r, s);
	struct summary q;
	size_t n = 0;

	*buf = '\0';
	if (compare(tested, s, &q) > 0)
		n = (size_t)snprintf(buf, len, "%.63s is %.2f (%.2f-%.2f) of it", tested->target, q.median, q.min,
				     q.max);
	if (n < len && compare(s, smallest, &q) > 0)
		snprintf(buf + n, len - n, "%s%.2f (%.2f-%.2f) of that with %llu", n ? "; " : "", q.median, q.min,
			 q.max, (unsigned long long)smallest->key.objects);
}

static void print_series(const struct report *r, const struct series *s, FILE *f)
{
	char median[32], min[32], max[32], size[24] = "", objects[24] = "", ratio[256];
	struct summary v;

	if (summarise(&s->s, &v) < 0)
		return;
	if (s->key.size)
		size_format(s->key.size, size, sizeof(size));
	if (s->key.objects)
		snprintf(objects, sizeof(objects), "x%llu", (unsigned long long)s->key.objects);
	ratio_text(r, s, ratio, sizeof(ratio));
	fprintf(f, "%-18s %-5s %8s %-10s %-12s %11s %11s %11s  %s\n", s->key.op, s->key.state, size, objects, s->target,
		report_value(s->key.unit, v.median, median, sizeof(median)),
		report_value(s->key.unit, v.min, min, sizeof(min)), report_value(s->key.unit, v.max, max, sizeof(max)),
		ratio);
}

void report_print(const struct report *r, FILE *f)
{
	struct list *pos, *tmp;

	list_for_each(pos, tmp, &r->notes) fprintf(f, "note: %s\n", container_of(pos, struct note, link)->text);
	if (list_empty(&r->series))
		return;
	fprintf(f, "%-18s %-5s %8s %-10s %-12s %11s %11s %11s\n", "operation", "", "size", "", "on", "median", "min",
		"max");
	list_for_each(pos, tmp, &r->series) print_series(r, container_of(pos, struct series, link), f);
}

json_t *report_samples_json(const struct samples *s)
{
	json_t *a = json_array();

	for (size_t i = 0; a && i < s->n; i++)
		if (json_array_append_new(a, json_real(s->v[i])) < 0) {
			json_decref(a);
			return NULL;
		}
	return a;
}

static json_t *series_json(const struct series *s)
{
	struct summary v;

	if (summarise(&s->s, &v) < 0)
		return NULL;
	return json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:f, s:f, s:f, s:o}", "op", s->key.op, "state", s->key.state,
			 "size", (json_int_t)s->key.size, "objects", (json_int_t)s->key.objects, "target", s->target,
			 "unit", unit_names[s->key.unit], "median", v.median, "min", v.min, "max", v.max, "runs",
			 report_samples_json(&s->s));
}

static json_t *ratio_json(const struct series *tested, const struct series *with, const struct summary *q)
{
	return json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "op", tested->key.op, "state",
			 tested->key.state, "size", (json_int_t)tested->key.size, "objects",
			 (json_int_t)tested->key.objects, "unit", unit_names[tested->key.unit], "target",
			 tested->target, "against", with->target, "against_objects", (json_int_t)with->key.objects,
			 "median", q->median, "min", q->min, "max", q->max);
}

/* Adds the ratio if there is something to compare. */
static int add_ratio(const struct series *tested, const struct series *with, json_t *ratios)
{
	struct summary q;
	int compared = compare(tested, with, &q);

	if (compared > 0 && json_array_append_new(ratios, ratio_json(tested, with, &q)) < 0)
		return -ENOMEM;
	return compared < 0 ? compared : 0;
}

static int fill_json(const struct report *r, json_t *results, json_t *ratios, json_t *notes)
{
	struct list *pos, *tmp;
	struct series *s;

	list_for_each(pos, tmp, &r->series)
	{
		s = container_of(pos, struct series, link);
		if (json_array_append_new(results, series_json(s)) < 0 ||
		    add_ratio(find_series(r, &s->key, NULL), s, ratios) < 0 ||
		    add_ratio(s, find_smallest(r, s), ratios) < 0)
			return -ENOMEM;
	}
	list_for_each(pos, tmp, &r->notes) if (json_array_append_new(
						   notes, json_string(container_of(pos, struct note, link)->text)) <
					       0) return -ENOMEM;
	return 0;
}

int report_json(const struct report *r, json_t *object)
{
	json_t *results = json_array(), *ratios = json_array(), *notes = json_array();
	int ret = results && ratios && notes ? fill_json(r, results, ratios, notes) : -ENOMEM;

	if (ret == 0 && (json_object_set(object, "results", results) < 0 ||
			 json_object_set(object, "ratios", ratios) < 0 || json_object_set(object, "notes", notes) < 0))
		ret = -ENOMEM;
	json_decref(results);
	json_decref(ratios);
	json_decref(notes);
	return ret;
}
