/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/suite_table.h"

#include <errno.h>

#define LINE "%-42s %-26s %-22s %8s  %s%s%s\n"

void suite_table_head(const struct suite_table *t)
{
	if (t->out)
		fprintf(t->out, LINE, "what", "against", "ratio", "to reach", "", "", "");
}

static void print(const struct suite_table *t, const struct suite_row *row, const char *ratio, const char *result,
		  const char *why)
{
	char goal[16] = "";

	if (!t->out)
		return;
	if (row->to_reach > 0)
		snprintf(goal, sizeof(goal), "%.2f", row->to_reach);
	fprintf(t->out, LINE, row->what, row->against, ratio, goal, result, *why ? ": " : "", why);
}

/* Takes values, the members that only a measured row has; NULL: no memory. */
static int keep(struct suite_table *t, const struct suite_row *row, const char *result, const char *why, json_t *values)
{
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:o, s:s, s:s}", "what", row->what, "against",
			      row->against, "op", row->key.op, "state", row->key.state, "size",
			      (json_int_t)row->key.size, "unit", report_unit_name(row->key.unit), "to_reach",
			      row->to_reach > 0 ? json_real(row->to_reach) : json_null(), "result", result, "why", why);
	int r = j && values && json_object_update(j, values) == 0 ? 0 : -ENOMEM;

	json_decref(values);
	if (r < 0)
		json_decref(j);
	return r < 0 || json_array_append_new(t->rows, j) < 0 ? -ENOMEM : 0;
}

int suite_table_add(struct suite_table *t, const struct suite_row *row, const struct report_pair *p)
{
	bool missed = row->to_reach > 0 && p->median < row->to_reach;
	const char *result = missed ? "missed" : row->to_reach > 0 ? "reached" : "measured";
	char ratio[64];

	snprintf(ratio, sizeof(ratio), "%.2f (%.2f - %.2f)", p->median, p->min, p->max);
	print(t, row, ratio, result, "");
	t->measured++;
	t->missed += missed;
	return keep(t, row, result, "",
		    json_pack("{s:f, s:f, s:f, s:o, s:o}", "median", p->median, "min", p->min, "max", p->max, "tested",
			      report_samples_json(p->tested), "compared", report_samples_json(p->against)));
}

int suite_table_none(struct suite_table *t, const struct suite_row *row, bool failed, const char *why)
{
	const char *result = failed ? "failed" : "not measured";

	print(t, row, "", result, why);
	t->failed += failed;
	return keep(t, row, result, why,
		    json_pack("{s:n, s:n, s:n, s:[], s:[]}", "median", "min", "max", "tested", "compared"));
}

void suite_table_foot(const struct suite_table *t)
{
	size_t n = json_array_size(t->rows);

	if (t->out)
		fprintf(t->out, "%zu rows: %u measured, %u of them missed, %u failed, %zu not measured\n", n,
			t->measured, t->missed, t->failed, n - t->measured - t->failed);
}
