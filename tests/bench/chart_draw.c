/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/chart_draw.h"

#include <errno.h>

#ifdef HAVE_CAIRO

#include <cairo-svg.h>
#include <fontconfig/fontconfig.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/size.h"

/* Points; a PNG has SCALE pixels for each. */
#define SCALE 2
#define MARGIN 24
#define TITLE_H 64
#define ROW_TITLE_H 34
#define PANEL_TITLE_H 20
#define AXIS_W 46
#define RATES_H 84
#define BARS_H 176
#define BETWEEN 18
#define CLIENTS_H 36
#define PANEL_H (PANEL_TITLE_H + RATES_H + BETWEEN + BARS_H + CLIENTS_H)
#define PANEL_GAP 14
#define BAR_W 13
#define GROUP_GAP 18	/* at least */
#define WIDTH_LEAST 760 /* of the title */
#define LEGEND_LINE 20
#define LEGEND_W 210
#define FONT 11.5

struct colour {
	double r, g, b;
};

/* Okabe and Ito's, which people see apart whatever they see of colours. */
static const struct {
	const char *target;
	struct colour c;
} colours[] = {
    {"fluxkv", {0.00, 0.45, 0.70}}, {"memcached", {0.90, 0.62, 0.00}}, {"redis", {0.80, 0.47, 0.65}},
    {"files", {0.00, 0.62, 0.45}},  {"dir", {0.35, 0.35, 0.35}},
};

struct page {
	cairo_t *cr;
	const struct chart *c;
	double panel_w, group_gap, width, height;
	double least; /* of the hit rates' axis */
};

struct panel {
	unsigned output, size;
	double x, y;	  /* of the upper left corner of the hit rates */
	double top, step; /* of the bars' axis, GiB/s */
};

static struct colour colour_of(const char *target)
{
	for (size_t i = 0; i < sizeof(colours) / sizeof(colours[0]); i++)
		if (!strcmp(colours[i].target, target))
			return colours[i].c;
	return (struct colour){0.34, 0.71, 0.91};
}

/* As much of the colour as share says; the rest is white, or black for more than 1. */
static void set_colour(cairo_t *cr, struct colour c, double share)
{
	if (share <= 1)
		cairo_set_source_rgb(cr, 1 - share + share * c.r, 1 - share + share * c.g, 1 - share + share * c.b);
	else
		cairo_set_source_rgb(cr, c.r / share, c.g / share, c.b / share);
}

static void set_grey(cairo_t *cr, double level)
{
	cairo_set_source_rgb(cr, level, level, level);
}

/* align: 0 the text begins at x, 0.5 it is centred, 1 it ends there. y is its base line. */
static void text(cairo_t *cr, double x, double y, double align, const char *s)
{
	cairo_text_extents_t ext;

	cairo_text_extents(cr, s, &ext);
	cairo_move_to(cr, x - align * ext.x_advance, y);
	cairo_show_text(cr, s);
}

static void set_font(cairo_t *cr, double size, bool bold)
{
	cairo_select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
			       bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
	cairo_set_font_size(cr, size);
}

static bool with_ssd(const struct chart_series *s)
{
	return strcmp(s->tiers, "dram") != 0;
}

/* ---- one panel */

static double bar_x(const struct page *p, const struct panel *n, unsigned client, unsigned series)
{
	return n->x + p->group_gap / 2 + client * (p->c->n_series * BAR_W + p->group_gap) + series * BAR_W;
}

static double rate_y(const struct page *p, const struct panel *n, double rate)
{
	return n->y + RATES_H * (1 - (rate - p->least) / (1 - p->least));
}

static double bars_bottom(const struct panel *n)
{
	return n->y + RATES_H + BETWEEN + BARS_H;
}

static double value_y(const struct panel *n, double v)
{
	return bars_bottom(n) - BARS_H * v / n->top;
}

/* A thin line across the panel, and what it stands for at its left. */
static void draw_mark(const struct page *p, const struct panel *n, double y, const char *label)
{
	set_grey(p->cr, 0.86);
	cairo_set_line_width(p->cr, 0.8);
	cairo_move_to(p->cr, n->x, y);
	cairo_line_to(p->cr, n->x + p->panel_w, y);
	cairo_stroke(p->cr);
	set_grey(p->cr, 0.25);
	text(p->cr, n->x - 6, y + FONT * 0.35, 1, label);
}

static void draw_axes(const struct page *p, const struct panel *n)
{
	char label[32];

	set_font(p->cr, FONT, false);
	for (unsigned i = 0; i <= 2; i++) {
		snprintf(label, sizeof(label), "%.0f %%", 100 * (p->least + (1 - p->least) * i / 2));
		draw_mark(p, n, rate_y(p, n, p->least + (1 - p->least) * i / 2), label);
	}
	for (unsigned i = 0; i * n->step <= n->top * 1.001; i++) {
		snprintf(label, sizeof(label), "%.*f", n->step < 0.1 ? 2 : n->step < 1 ? 1 : 0, i * n->step);
		draw_mark(p, n, value_y(n, i * n->step), label);
	}
	for (unsigned i = 0; i < p->c->n_clients; i++) {
		snprintf(label, sizeof(label), "c%llu", (unsigned long long)p->c->clients[i]);
		text(p->cr, bar_x(p, n, i, 0) + p->c->n_series * BAR_W / 2.0, bars_bottom(n) + 16, 0.5, label);
	}
}

static void fill_bar(const struct page *p, double x, double from, double to, struct colour c, double share)
{
	set_colour(p->cr, c, share);
	cairo_rectangle(p->cr, x + 1, to, BAR_W - 2, from - to);
	cairo_fill(p->cr);
}

static void draw_bar(const struct page *p, const struct panel *n, double x, const struct chart_series *s,
		     const struct chart_value *v)
{
	struct colour c = colour_of(s->target);
	double base = bars_bottom(n), dram = value_y(n, v->dram), ssd = value_y(n, v->dram + v->ssd);
	double top = value_y(n, v->dram + v->ssd + v->unknown);

	fill_bar(p, x, base, dram, c, with_ssd(s) ? 0.55 : 0.2);
	fill_bar(p, x, dram, ssd, c, 1.25);
	fill_bar(p, x, ssd, top, (struct colour){0.6, 0.6, 0.6}, 1);
	set_colour(p->cr, c, 1.25);
	cairo_set_line_width(p->cr, 0.9);
	cairo_rectangle(p->cr, x + 1, top, BAR_W - 2, base - top);
	cairo_stroke(p->cr);
}

/* A disc where there is an SSD tier, a ring where there is none. */
static void draw_point(cairo_t *cr, double x, double y, const struct chart_series *s)
{
	cairo_new_path(cr);
	cairo_arc(cr, x, y, 3.2, 0, 2 * M_PI);
	if (with_ssd(s))
		set_colour(cr, colour_of(s->target), 1);
	else
		set_grey(cr, 1);
	cairo_fill_preserve(cr);
	set_colour(cr, colour_of(s->target), 1.25);
	cairo_set_line_width(cr, 1.3);
	cairo_stroke(cr);
}

static void draw_bound(cairo_t *cr, double x, double y)
{
	set_grey(cr, 0.2);
	cairo_set_line_width(cr, 1.4);
	cairo_move_to(cr, x - BAR_W / 2.0, y);
	cairo_line_to(cr, x + BAR_W / 2.0, y);
	cairo_stroke(cr);
}

/* The line of one contender through its clients, under the points of all; broken where there is no SSD tier. */
static void draw_line(const struct page *p, const struct panel *n, unsigned series)
{
	static const double dashes[] = {4, 3};
	struct chart_value v;

	cairo_new_path(p->cr);
	for (unsigned i = 0; i < p->c->n_clients; i++)
		if (chart_at(p->c, n->output, n->size, i, series, &v))
			cairo_line_to(p->cr, bar_x(p, n, i, series) + BAR_W / 2.0, rate_y(p, n, v.hit_rate));
	set_colour(p->cr, colour_of(p->c->series[series].target), 0.75);
	cairo_set_line_width(p->cr, 1.1);
	cairo_set_dash(p->cr, dashes, with_ssd(&p->c->series[series]) ? 0 : 2, 0);
	cairo_stroke(p->cr);
	cairo_set_dash(p->cr, dashes, 0, 0);
}

static void draw_values(const struct page *p, const struct panel *n)
{
	struct chart_value v;
	double x;

	for (unsigned s = 0; s < p->c->n_series; s++)
		draw_line(p, n, s);
	for (unsigned i = 0; i < p->c->n_clients; i++)
		for (unsigned s = 0; s < p->c->n_series; s++) {
			if (!chart_at(p->c, n->output, n->size, i, s, &v))
				continue;
			x = bar_x(p, n, i, s);
			draw_bar(p, n, x, &p->c->series[s], &v);
			if (v.bound >= p->least && v.bound < 1)
				draw_bound(p->cr, x + BAR_W / 2.0, rate_y(p, n, v.bound));
			draw_point(p->cr, x + BAR_W / 2.0, rate_y(p, n, v.hit_rate), &p->c->series[s]);
		}
}

static void draw_sideways(cairo_t *cr, double x, double y, const char *s)
{
	cairo_save(cr);
	cairo_translate(cr, x, y);
	cairo_rotate(cr, -M_PI / 2);
	text(cr, 0, 0, 0.5, s);
	cairo_restore(cr);
}

static void draw_panel(const struct page *p, struct panel *n)
{
	char size[24], title[64];

	n->step = chart_step(chart_top(p->c, n->output, n->size) * 1.05, 4);
	n->top = n->step * ceil(chart_top(p->c, n->output, n->size) * 1.05 / n->step);
	if (!(n->top > 0))
		n->top = n->step;
	snprintf(title, sizeof(title), "values of %s", size_format(p->c->sizes[n->size], size, sizeof(size)));
	set_font(p->cr, FONT + 0.5, true);
	set_grey(p->cr, 0.1);
	text(p->cr, n->x + p->panel_w / 2, n->y - 10, 0.5, title);
	draw_axes(p, n);
	draw_values(p, n);
	set_grey(p->cr, 0.3);
	cairo_set_line_width(p->cr, 1);
	cairo_move_to(p->cr, n->x, bars_bottom(n));
	cairo_line_to(p->cr, n->x + p->panel_w, bars_bottom(n));
	cairo_stroke(p->cr);
	if (n->size)
		return;
	set_font(p->cr, FONT, false);
	set_grey(p->cr, 0.1);
	draw_sideways(p->cr, n->x - AXIS_W - 4, n->y + RATES_H / 2.0, "hit rate");
	draw_sideways(p->cr, n->x - AXIS_W - 4, bars_bottom(n) - BARS_H / 2.0, "hit payload, GiB/s");
}

/* ---- the page */

static const char *output_title(const char *output)
{
	if (!strcmp(output, "holder"))
		return "holder: a reference to the bytes, all in memory";
	return strcmp(output, "bytes") ? output : "bytes: all of them copied to the caller";
}

static void draw_rows(const struct page *p)
{
	struct panel n;

	for (unsigned o = 0; o < p->c->n_outputs; o++) {
		n.y = MARGIN + TITLE_H + o * (ROW_TITLE_H + PANEL_H) + ROW_TITLE_H + PANEL_TITLE_H;
		set_font(p->cr, FONT + 1.5, true);
		set_grey(p->cr, 0.1);
		text(p->cr, MARGIN, n.y - PANEL_TITLE_H - 14, 0, output_title(p->c->outputs[o]));
		for (unsigned s = 0; s < p->c->n_sizes; s++) {
			n.output = o;
			n.size = s;
			n.x = MARGIN + 12 + AXIS_W + s * (p->panel_w + AXIS_W + PANEL_GAP);
			draw_panel(p, &n);
		}
	}
}

/* What the stores could hold, as far as it is known. */
static const char *limits_text(const struct chart *c, char *buf, size_t len)
{
	char dram[24], ssd[24];
	int n = 0;

	buf[0] = '\0';
	if (c->dram)
		n = snprintf(buf, len, "; %s of DRAM", size_format(c->dram, dram, sizeof(dram)));
	if (c->dram && c->ssd)
		snprintf(buf + n, len - (size_t)n, ", up to %s of SSD", size_format(c->ssd, ssd, sizeof(ssd)));
	return buf;
}

static void draw_title(const struct page *p)
{
	const struct chart *c = p->c;
	char line[256], dataset[24], limits[128];

	set_font(p->cr, 17, true);
	set_grey(p->cr, 0.1);
	text(p->cr, MARGIN, MARGIN + 16, 0, "fluxkv-bench pressure: more values than DRAM holds, read by popularity");
	snprintf(line, sizeof(line), "%s of values, Zipf 0.99%s; %s", size_format(c->dataset, dataset, sizeof(dataset)),
		 limits_text(c, limits, sizeof(limits)),
		 strcmp(c->on_miss, "put") ? "reads only" : "what is missed is put again");
	set_font(p->cr, FONT, false);
	set_grey(p->cr, 0.3);
	text(p->cr, MARGIN, MARGIN + 36, 0, line);
	snprintf(line, sizeof(line), "cN: N clients; windows of %u s; %u CPUs, Linux %s%s", c->window, c->cpus,
		 c->kernel, c->any_unknown ? "; grey: hits of an unknown tier" : "");
	text(p->cr, MARGIN, MARGIN + 52, 0, line);
}

static void draw_swatch(const struct page *p, double x, double y, const struct chart_series *s)
{
	struct colour c = colour_of(s->target);

	set_colour(p->cr, c, with_ssd(s) ? 0.55 : 0.2);
	cairo_rectangle(p->cr, x, y - 9, with_ssd(s) ? 11 : 22, 11);
	cairo_fill(p->cr);
	if (with_ssd(s)) {
		set_colour(p->cr, c, 1.25);
		cairo_rectangle(p->cr, x + 11, y - 9, 11, 11);
		cairo_fill(p->cr);
	}
	set_colour(p->cr, c, 1.25);
	cairo_set_line_width(p->cr, 0.9);
	cairo_rectangle(p->cr, x, y - 9, 22, 11);
	cairo_stroke(p->cr);
	draw_point(p->cr, x + 34, y - 3.5, s);
}

static unsigned legend_columns(const struct page *p)
{
	unsigned n = (unsigned)((p->width - 2 * MARGIN) / LEGEND_W);

	return n ? n : 1;
}

static void draw_legend(const struct page *p)
{
	double top = MARGIN + TITLE_H + p->c->n_outputs * (ROW_TITLE_H + PANEL_H) + 6, x, y;
	unsigned columns = legend_columns(p), rows = (p->c->n_series + columns - 1) / columns;
	char label[64];

	set_font(p->cr, FONT, false);
	for (unsigned i = 0; i < p->c->n_series; i++) {
		x = MARGIN + i % columns * LEGEND_W;
		y = top + i / columns * LEGEND_LINE + 12;
		draw_swatch(p, x, y, &p->c->series[i]);
		snprintf(label, sizeof(label), "%s, %s", p->c->series[i].target, p->c->series[i].tiers);
		set_grey(p->cr, 0.1);
		text(p->cr, x + 46, y, 0, label);
	}
	y = top + rows * LEGEND_LINE + 12;
	set_grey(p->cr, 0.3);
	text(p->cr, MARGIN, y, 0, "Bars: hits from DRAM below, hits from the SSD dark on top. Points: hit rates.");
	draw_bound(p->cr, MARGIN + BAR_W / 2.0, y + LEGEND_LINE - 4);
	set_grey(p->cr, 0.3);
	text(p->cr, MARGIN + BAR_W + 6, y + LEGEND_LINE, 0, "the best hit rate of a static cache of these bytes");
}

static void layout(struct page *p)
{
	const struct chart *c = p->c;
	struct chart_value v;
	unsigned rows;
	const double around = 2 * MARGIN + 12 + c->n_sizes * (AXIS_W + PANEL_GAP),
		     bars = c->n_clients * c->n_series * BAR_W;
	const double least = (WIDTH_LEAST - around) / c->n_sizes, wanted = bars + c->n_clients * GROUP_GAP;

	p->panel_w = wanted > least ? wanted : least;
	p->group_gap = (p->panel_w - bars) / c->n_clients;
	p->width = around + c->n_sizes * p->panel_w;
	rows = (c->n_series + legend_columns(p) - 1) / legend_columns(p);
	p->height = MARGIN + TITLE_H + c->n_outputs * (ROW_TITLE_H + PANEL_H) + (rows + 2) * LEGEND_LINE + MARGIN;
	p->least = 0.5; /* unless something is below */
	for (unsigned o = 0; o < c->n_outputs; o++)
		for (unsigned i = 0; i < c->n_sizes * c->n_clients * c->n_series; i++)
			if (chart_at(c, o, i / c->n_series / c->n_clients, i / c->n_series % c->n_clients,
				     i % c->n_series, &v) &&
			    v.hit_rate < 0.5)
				p->least = 0;
}

static void draw_page(struct page *p)
{
	set_grey(p->cr, 1);
	cairo_paint(p->cr);
	draw_title(p);
	draw_rows(p);
	draw_legend(p);
}

static int draw_on(const struct chart *c, cairo_surface_t *surface)
{
	struct page p = {.c = c};
	cairo_status_t status;

	layout(&p);
	p.cr = cairo_create(surface);
	draw_page(&p);
	cairo_show_page(p.cr);
	status = cairo_status(p.cr);
	cairo_destroy(p.cr);
	return status == CAIRO_STATUS_SUCCESS ? 0 : status == CAIRO_STATUS_NO_MEMORY ? -ENOMEM : -EIO;
}

static int write_png(const struct chart *c, const char *path, double width, double height)
{
	cairo_surface_t *s =
	    cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)ceil(width * SCALE), (int)ceil(height * SCALE));
	int r;

	cairo_surface_set_device_scale(s, SCALE, SCALE);
	r = draw_on(c, s);
	if (r == 0 && cairo_surface_write_to_png(s, path) != CAIRO_STATUS_SUCCESS)
		r = -EIO;
	cairo_surface_destroy(s);
	return r;
}

static int write_svg(const struct chart *c, const char *path, double width, double height)
{
	cairo_surface_t *s = cairo_svg_surface_create(path, width, height);
	int r = draw_on(c, s);

	cairo_surface_finish(s); /* here it is written */
	if (r == 0 && cairo_surface_status(s) != CAIRO_STATUS_SUCCESS)
		r = -EIO;
	cairo_surface_destroy(s);
	return r;
}

int chart_draw(const struct chart *c, const char *base, struct errmsg *e)
{
	char png[PATH_MAX], svg[PATH_MAX];
	struct page size = {.c = c};
	int r;

	if (snprintf(png, sizeof(png), "%s.png", base) >= (int)sizeof(png) ||
	    snprintf(svg, sizeof(svg), "%s.svg", base) >= (int)sizeof(svg))
		return errmsg_set(e, -ENAMETOOLONG, "%s: the name is too long", base);
	layout(&size);
	r = write_png(c, png, size.width, size.height);
	if (r == 0)
		r = write_svg(c, svg, size.width, size.height);
	/* The libraries keep fonts for the next picture, which a leak checker takes for lost. */
	cairo_debug_reset_static_data();
	FcFini();
	return r < 0 ? errmsg_set(e, r, "cannot write the pictures %s: %s", base, strerror(-r)) : 0;
}

#else

int chart_draw(const struct chart *c, const char *base, struct errmsg *e)
{
	return errmsg_set(e, -ENOSYS,
			  "no pictures: this fluxkv-bench was built without cairo (Debian, Ubuntu: libcairo2-dev; "
			  "Fedora: cairo-devel)");
}

#endif
