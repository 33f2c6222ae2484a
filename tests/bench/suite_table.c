/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/suite_table.h"

#include <errno.h>

#define LINE "%-50s %-26s %-26s %10s  %s%s%s\n"

void suite_table_head(const struct suite_table *t)
{
	if (t->out)
		fprintf(t->out, LINE, "what", "against", "ratio", "to reach", "", "", "");
}

/* As people read it: a ratio, or a value in its unit. */
static const char *number(const struct suite_line *l, double v, char buf[static 32])
{
	if (l->row->kind == SUITE_VALUE)
		return report_value(l->key.unit, v, buf, 32);
	snprintf(buf, 32, "%.2f", v);
	return buf;
}

static bool at_most(const struct suite_line *l)
{
	return l->row->kind != SUITE_RATIO;
}

static void print(const struct suite_table *t, const struct suite_line *l, const char *ratio, const char *result,
		  const char *why)
{
	char goal[40] = "", buf[32];

	if (!t->out)
		return;
	if (l->to_reach > 0)
		snprintf(goal, sizeof(goal), "%s%s", at_most(l) ? "<= " : "", number(l, l->to_reach, buf));
	fprintf(t->out, LINE, l->what, l->against, ratio, goal, result, *why ? ": " : "", why);
}

/* Takes values, the members that only a measured row has; NULL: no memory. */
static int keep(struct suite_table *t, const struct suite_line *l, const char *result, const char *why, json_t *values)
{
	static const char *const kinds[] = {
	    [SUITE_RATIO] = "ratio", [SUITE_GROWTH] = "growth", [SUITE_VALUE] = "value"};
	json_t *j =
	    json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:o, s:b, s:s, s:s}", "what", l->what, "against",
		      l->against, "kind", kinds[l->row->kind], "op", l->key.op, "state", l->key.state, "size",
		      (json_int_t)l->key.size, "objects", (json_int_t)l->key.objects, "unit",
		      report_unit_name(l->key.unit), "to_reach", l->to_reach > 0 ? json_real(l->to_reach) : json_null(),
		      "at_most", at_most(l), "result", result, "why", why);
	int r = j && values && json_object_update(j, values) == 0 ? 0 : -ENOMEM;

	json_decref(values);
	if (r < 0)
		json_decref(j);
	return r < 0 || json_array_append_new(t->rows, j) < 0 ? -ENOMEM : 0;
}

static bool is_missed(const struct suite_line *l, double median)
{
	if (l->to_reach <= 0)
		return false;
	return at_most(l) ? median > l->to_reach : median < l->to_reach;
}

int suite_table_add(struct suite_table *t, const struct suite_line *l, const struct report_pair *p)
{
	bool missed = is_missed(l, p->median);
	const char *result = missed ? "missed" : l->to_reach > 0 ? "reached" : "measured";
	char ratio[128], median[32], min[32], max[32];

	snprintf(ratio, sizeof(ratio), "%s (%s - %s)", number(l, p->median, median), number(l, p->min, min),
		 number(l, p->max, max));
	print(t, l, ratio, result, "");
	t->measured++;
	t->missed += missed;
	return keep(t, l, result, "",
		    json_pack("{s:f, s:f, s:f, s:o, s:o}", "median", p->median, "min", p->min, "max", p->max, "tested",
			      report_samples_json(p->tested), "compared",
			      p->against ? report_samples_json(p->against) : json_array()));
}

int suite_table_none(struct suite_table *t, const struct suite_line *l, bool failed, const char *why)
{
	const char *result = failed ? "failed" : "not measured";

	print(t, l, "", result, why);
	t->failed += failed;
	return keep(t, l, result, why,
		    json_pack("{s:n, s:n, s:n, s:[], s:[]}", "median", "min", "max", "tested", "compared"));
}

void suite_table_foot(const struct suite_table *t)
{
	size_t n = json_array_size(t->rows);

	if (t->out)
		fprintf(t->out, "%zu rows: %u measured, %u of them missed, %u failed, %zu not measured\n", n,
			t->measured, t->missed, t->failed, n - t->measured - t->failed);
}
