/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/argv.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "common/size.h"

#define OPTIONS_MAX 64

struct parser {
	const struct argv_option *table;
	size_t n;
	unsigned command;
	void *out;
	struct errmsg *e;
};

static int unknown(const struct parser *p, const char *name, size_t len)
{
	const char *names[OPTIONS_MAX + 1], *near;
	char word[64];
	size_t n = 0;

	snprintf(word, sizeof(word), "%.*s", (int)len, name);
	for (size_t i = 0; i < p->n && n < OPTIONS_MAX; i++)
		if (p->table[i].commands & p->command)
			names[n++] = p->table[i].name;
	names[n] = NULL;
	near = nearest_word(word, names);
	if (near)
		return errmsg_set(p->e, -EINVAL, "unknown option '--%s'; did you mean '--%s'?", word, near);
	return errmsg_set(p->e, -EINVAL, "unknown option '--%s'", word);
}

static int find_long(const struct parser *p, const char *name, size_t len, const struct argv_option **ret)
{
	const struct argv_option *o, *others = NULL;

	for (size_t i = 0; i < p->n; i++) {
		o = &p->table[i];
		if (strlen(o->name) != len || strncmp(o->name, name, len))
			continue;
		if (o->commands & p->command) {
			*ret = o;
			return 0;
		}
		others = o;
	}
	if (others)
		return errmsg_set(p->e, -EINVAL, "option '--%s' does not belong to this command", others->name);
	return unknown(p, name, len);
}

static int find_short(const struct parser *p, char letter, const struct argv_option **ret)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->table[i].letter == letter && p->table[i].commands & p->command) {
			*ret = &p->table[i];
			return 0;
		}
	return errmsg_set(p->e, -EINVAL, "unknown option '-%c'", letter);
}

static int read_uint(const struct argv_option *o, const char *text, unsigned *ret, struct errmsg *e)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end)
		return errmsg_set(e, -EINVAL, "--%s: '%s' is not a number", o->name, text);
	if (errno || v < o->min || v > o->max)
		return errmsg_set(e, -EINVAL, "--%s: %s is out of range (%llu to %llu)", o->name, text,
				  (unsigned long long)o->min, (unsigned long long)o->max);
	*ret = (unsigned)v;
	return 0;
}

static int read_size(const struct argv_option *o, const char *text, uint64_t *ret, struct errmsg *e)
{
	char least[24], most[24];
	uint64_t v;

	if (size_parse(text, &v) < 0)
		return errmsg_set(e, -EINVAL, "--%s: '%s' is not a size (such as 4096, 64KiB, 16MiB)", o->name, text);
	if (v < o->min || v > o->max)
		return errmsg_set(e, -EINVAL, "--%s: %s is out of range (%s to %s)", o->name, text,
				  size_format(o->min, least, sizeof(least)), size_format(o->max, most, sizeof(most)));
	*ret = v;
	return 0;
}

static int add_size(const struct argv_option *o, uint64_t v, struct argv_sizes *s, struct errmsg *e)
{
	if (!s->given)
		s->n = 0;
	s->given = true;
	if (s->n == ARGV_SIZES_MAX)
		return errmsg_set(e, -EINVAL, "--%s: at most %d of them", o->name, ARGV_SIZES_MAX);
	s->v[s->n++] = v;
	return 0;
}

static int read_sizes(const struct argv_option *o, const char *text, struct argv_sizes *s, struct errmsg *e)
{
	uint64_t v;
	int r = read_size(o, text, &v, e);

	return r < 0 ? r : add_size(o, v, s, e);
}

static int read_uints(const struct argv_option *o, const char *text, struct argv_sizes *s, struct errmsg *e)
{
	unsigned v;
	int r = read_uint(o, text, &v, e);

	return r < 0 ? r : add_size(o, v, s, e);
}

static int read_choice(const struct argv_option *o, const char *text, unsigned *ret, struct errmsg *e)
{
	const char *near;
	unsigned n = 0;

	for (; o->choices[n]; n++)
		if (!strcmp(o->choices[n], text)) {
			*ret = n;
			return 0;
		}
	near = nearest_word(text, o->choices);
	if (near)
		return errmsg_set(e, -EINVAL, "--%s: no '%s'; did you mean '%s'?", o->name, text, near);
	return errmsg_set(e, -EINVAL, "--%s: '%s' is none of %s", o->name, text, o->metavar);
}

static int read_set(const struct argv_option *o, const char *text, unsigned *set, struct errmsg *e)
{
	unsigned v;
	int r = read_choice(o, text, &v, e);

	if (r == 0)
		*set |= 1u << v;
	return r;
}

static int store(const struct parser *p, const struct argv_option *o, const char *text)
{
	void *field = (char *)p->out + o->offset;

	switch (o->kind) {
	case ARGV_FLAG:
		*(bool *)field = true;
		return 0;
	case ARGV_UINT:
		return read_uint(o, text, field, p->e);
	case ARGV_SIZE:
		return read_size(o, text, field, p->e);
	case ARGV_SIZES:
		return read_sizes(o, text, field, p->e);
	case ARGV_UINTS:
		return read_uints(o, text, field, p->e);
	case ARGV_CHOICE:
		return read_choice(o, text, field, p->e);
	case ARGV_SET:
		return read_set(o, text, field, p->e);
	case ARGV_STRING:
		*(const char **)field = text;
		return *text ? 0 : errmsg_set(p->e, -EINVAL, "--%s: the value is empty", o->name);
	}
	return -EINVAL;
}

/* One option at argv[0]; *ret_used: how many words of argv it takes. */
static int take_option(const struct parser *p, int argc, char **argv, int *ret_used)
{
	const char *word = argv[0], *value = NULL;
	const struct argv_option *o = NULL;
	bool is_long = word[1] == '-';
	size_t len = strcspn(word, "=");
	int r = is_long ? find_long(p, word + 2, len - 2, &o) : find_short(p, word[1], &o);

	if (r < 0)
		return r;
	*ret_used = 1;
	if (is_long && word[len])
		value = word + len + 1;
	else if (!is_long && word[2])
		value = word + 2;
	if (o->kind == ARGV_FLAG && value)
		return errmsg_set(p->e, -EINVAL, "option '--%s' takes no value", o->name);
	if (o->kind != ARGV_FLAG && !value) {
		if (argc < 2)
			return errmsg_set(p->e, -EINVAL, "option '--%s' needs a value (%s)", o->name, o->metavar);
		value = argv[1];
		*ret_used = 2;
	}
	return store(p, o, value);
}

int argv_parse(int argc, char **argv, const struct argv_option *table, size_t n, unsigned command, void *out,
	       const char **ret_words, unsigned *ret_n_words, struct errmsg *e)
{
	struct parser p = {.table = table, .n = n, .command = command, .out = out, .e = e};
	bool options = true;
	int r, used = 1;

	*ret_n_words = 0;
	for (int i = 0; i < argc; i += used) {
		used = 1;
		if (options && !strcmp(argv[i], "--")) {
			options = false;
		} else if (options && argv[i][0] == '-' && argv[i][1]) {
			r = take_option(&p, argc - i, argv + i, &used);
			if (r < 0)
				return r;
		} else {
			ret_words[(*ret_n_words)++] = argv[i];
		}
	}
	return 0;
}
