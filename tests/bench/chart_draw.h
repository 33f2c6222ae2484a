/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws a chart with cairo: a panel for each output and payload, above the hit rates, below the bars of what the hits
 * brought, stacked by tier. Without cairo it says so. Main thread.
 */
#ifndef TESTS_BENCH_CHART_DRAW_H
#define TESTS_BENCH_CHART_DRAW_H

#include "tests/bench/chart.h"

/* Writes base.png and base.svg. 0; -ENOSYS: this was built without cairo; another negative errno; the reason is in e.
 */
int chart_draw(const struct chart *c, const char *base, struct errmsg *e);

#endif
