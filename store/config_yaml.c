/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration file. libyaml's document tree, which keeps the line of every node, is walked by hand: each message
 * names the line of what is wrong.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "common/nearest.h"
#include "store/config_keys.h"

/* Of lists and groups in each other; a configuration has three, and one level more is what it would be refused for. */
#define NESTING_MAX 16

struct reader {
	const char *name; /* of the file, for messages */
	yaml_document_t *doc;
	struct config *c;
	struct errmsg *e;
	const yaml_node_t *paths, *limits; /* the two lists, when the file has them */
};

static const char *text_of(const yaml_node_t *node)
{
	return (const char *)node->data.scalar.value;
}

static bool is_null(const yaml_node_t *node)
{
	static const char *const words[] = {"", "~", "null", "Null", "NULL"};

	if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return false;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(text_of(node), words[i]))
			return true;
	return false;
}

static const char *found_words(const yaml_node_t *node)
{
	if (is_null(node))
		return "nothing";
	return node->type == YAML_SEQUENCE_NODE	 ? "a list"
	       : node->type == YAML_MAPPING_NODE ? "a group of keys"
						 : "a value";
}

/* Puts file, line and key before what *e says already. */
static int located(const struct reader *rd, const yaml_node_t *node, const char *key, int r)
{
	return errmsg_prefix(rd->e, r, "%s:%zu: %s", rd->name, node->start_mark.line + 1, key);
}

static int expected(const struct reader *rd, const yaml_node_t *node, const char *key, const char *what)
{
	errmsg_set(rd->e, -EINVAL, "expected %s, found %s", what, found_words(node));
	return located(rd, node, key, -EINVAL);
}

/* A scalar without NUL bytes, so that C strings hold all of it. */
static bool is_plain(const yaml_node_t *node)
{
	return node->type == YAML_SCALAR_NODE && !memchr(text_of(node), '\0', node->data.scalar.length);
}

static int read_key(struct reader *rd, const struct config_key *key, const yaml_node_t *value)
{
	int r;

	if (is_null(value) && key->nullable) {
		config_key_clear(rd->c, key);
		return 0;
	}
	if (!is_plain(value) || is_null(value))
		return expected(rd, value, key->name, config_type_words(key->type));
	r = config_key_set(rd->c, key, text_of(value), rd->e);
	return r < 0 ? located(rd, value, key->name, r) : 0;
}

/* All that may stand in a group (NULL: at the top), for guessing what was meant. */
static const char *nearest_key(const char *group, const char *word)
{
	const char *words[64];
	size_t n = 0;

	words[n++] = group ? CONFIG_PATHS : CONFIG_SPEC;
	words[n++] = group ? CONFIG_LIMITS : CONFIG_POOL;
	if (group && strcmp(group, CONFIG_SPEC))
		n = 0;
	for (size_t i = 0; i < config_n_keys && n < 63; i++) {
		const char *last = config_key_last(&config_keys[i]);
		size_t prefix = (size_t)(last - config_keys[i].name);

		if (group ? prefix == strlen(group) + 1 && !strncmp(config_keys[i].name, group, prefix - 1)
			  : prefix == 0)
			words[n++] = last;
	}
	words[n] = NULL;
	return nearest_word(word, words);
}

/* The key that is named so as an option, or in another group: where it stands in a file. NULL: none is. */
static const char *key_elsewhere(const char *word)
{
	if (!strcmp(word, "ssd") || !strcmp(word, CONFIG_PATHS))
		return CONFIG_SPEC "." CONFIG_PATHS;
	if (!strcmp(word, CONFIG_LIMITS))
		return CONFIG_SPEC "." CONFIG_LIMITS;
	for (size_t i = 0; i < config_n_keys; i++)
		if (!strcmp(word, config_key_last(&config_keys[i])) ||
		    (config_keys[i].alias && !strcmp(word, config_keys[i].alias)))
			return config_keys[i].name;
	return NULL;
}

static int unknown_in_file(struct reader *rd, const yaml_node_t *key, const char *word, const char *name)
{
	const char *dot = strchr(name, '.');

	if (dot)
		errmsg_set(rd->e, -EINVAL, "unknown key; in a file it is \"%s\" below \"%.*s\"", dot + 1,
			   (int)(dot - name), name);
	else
		errmsg_set(rd->e, -EINVAL, "unknown key; in a file it is \"%s\"%s", name,
			   strcmp(name, word) ? "" : " at the top");
	return located(rd, key, word, -EINVAL);
}

static int unknown_key(struct reader *rd, const char *group, const yaml_node_t *key)
{
	const char *word = is_plain(key) ? config_shown(text_of(key)) : "?", *meant = nearest_key(group, word);
	const char *elsewhere = key_elsewhere(word);

	if (elsewhere)
		return unknown_in_file(rd, key, word, elsewhere);
	errmsg_set(rd->e, -EINVAL, "unknown key%s%s%s%s%s", group ? " of " : "", group ? group : "",
		   meant ? "; did you mean \"" : "", meant ? meant : "", meant ? "\"?" : "");
	return located(rd, key, word, -EINVAL);
}

static int read_mapping(struct reader *rd, const char *group, const yaml_node_t *node);

static int read_pair(struct reader *rd, const char *group, const yaml_node_t *key, const yaml_node_t *value)
{
	const char *word = is_plain(key) ? text_of(key) : "";
	const struct config_key *known;
	char full[96];

	if (!group && (!strcmp(word, CONFIG_POOL) || !strcmp(word, CONFIG_SPEC)))
		return read_mapping(rd, !strcmp(word, CONFIG_POOL) ? CONFIG_POOL : CONFIG_SPEC, value);
	if (group && !strcmp(group, CONFIG_SPEC) && !strcmp(word, CONFIG_PATHS)) {
		rd->paths = value;
		return 0;
	}
	if (group && !strcmp(group, CONFIG_SPEC) && !strcmp(word, CONFIG_LIMITS)) {
		rd->limits = value;
		return 0;
	}
	snprintf(full, sizeof(full), "%s%s%s", group ? group : "", group ? "." : "", word);
	/* a dotted name at the top is not the key of a group */
	known = strchr(word, '.') ? NULL : config_key_find(full);
	return known ? read_key(rd, known, value) : unknown_key(rd, group, key);
}

static int check_twice(struct reader *rd, const yaml_node_t *map, const yaml_node_pair_t *pair)
{
	const yaml_node_t *key = yaml_document_get_node(rd->doc, pair->key);

	for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < pair; p++) {
		const yaml_node_t *other = yaml_document_get_node(rd->doc, p->key);

		if (is_plain(key) && is_plain(other) && !strcmp(text_of(key), text_of(other))) {
			errmsg_set(rd->e, -EINVAL, "is here for the second time; the first is in line %zu",
				   other->start_mark.line + 1);
			return located(rd, key, config_shown(text_of(key)), -EINVAL);
		}
	}
	return 0;
}

/* Two levels at most: a group holds only keys. An unknown key ends it, so that it is never long. */
static int read_mapping(struct reader *rd, const char *group, const yaml_node_t *node)
{
	int r = 0;

	if (is_null(node))
		return 0;
	if (node->type != YAML_MAPPING_NODE)
		return expected(rd, node, group ? group : "the file", "a group of keys");
	for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; r == 0 && p < node->data.mapping.pairs.top;
	     p++) {
		r = check_twice(rd, node, p);
		if (r == 0)
			r = read_pair(rd, group, yaml_document_get_node(rd->doc, p->key),
				      yaml_document_get_node(rd->doc, p->value));
	}
	return r;
}

static size_t list_length(const yaml_node_t *list)
{
	return list ? (size_t)(list->data.sequence.items.top - list->data.sequence.items.start) : 0;
}

static const yaml_node_t *list_item(const struct reader *rd, const yaml_node_t *list, size_t i)
{
	return yaml_document_get_node(rd->doc, list->data.sequence.items.start[i]);
}

/* Takes the list, or nothing for null. */
static int check_list(const struct reader *rd, const yaml_node_t **list, const char *key, const char *what)
{
	if (*list && is_null(*list))
		*list = NULL;
	if (*list && (*list)->type != YAML_SEQUENCE_NODE)
		return expected(rd, *list, key, what);
	return 0;
}

static int read_device(struct reader *rd, const yaml_node_t *path, const yaml_node_t *limit)
{
	uint64_t bytes = 0;
	int r;

	if (!is_plain(path) || is_null(path))
		return expected(rd, path, CONFIG_SPEC "." CONFIG_PATHS, "a path");
	r = config_read_path(text_of(path), rd->e);
	if (r == 0)
		r = config_ssd_add(rd->c, text_of(path), 0, rd->e);
	if (r < 0)
		return located(rd, path, CONFIG_SPEC "." CONFIG_PATHS, r);
	if (!limit)
		return 0;
	if (!is_plain(limit) || is_null(limit))
		return expected(rd, limit, CONFIG_SPEC "." CONFIG_LIMITS, "a size");
	r = config_read_size(text_of(limit), CONFIG_SSD_LIMIT_MIN, &bytes, rd->e);
	if (r < 0)
		return located(rd, limit, CONFIG_SPEC "." CONFIG_LIMITS, r);
	rd->c->ssd[rd->c->n_ssd - 1].limit = bytes;
	return 0;
}

/* The two lists belong together, whichever comes first in the file. */
static int read_devices(struct reader *rd)
{
	const yaml_node_t *paths = rd->paths, *limits = rd->limits;
	size_t n;
	int r;

	if (!paths && !limits)
		return 0;
	r = check_list(rd, &paths, CONFIG_SPEC "." CONFIG_PATHS, "a list of paths");
	if (r == 0)
		r = check_list(rd, &limits, CONFIG_SPEC "." CONFIG_LIMITS, "a list of sizes");
	if (r < 0)
		return r;
	n = list_length(paths);
	if (limits && list_length(limits) != n) {
		errmsg_set(rd->e, -EINVAL, "%zu sizes for %zu " CONFIG_PATHS "; give one for each", list_length(limits),
			   n);
		return located(rd, limits, CONFIG_SPEC "." CONFIG_LIMITS, -EINVAL);
	}
	config_ssd_free(rd->c);
	rd->c->ssd_from_option = false;
	rd->c->ssd_enabled = limits && n;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = read_device(rd, list_item(rd, paths, i), limits ? list_item(rd, limits, i) : NULL);
	return r;
}

static int syntax_error(const struct reader *rd, const yaml_parser_t *parser)
{
	/* A token that does not end is noticed far behind it; a structure that is wrong, where it is wrong. */
	bool token = parser->error == YAML_SCANNER_ERROR && parser->context;
	size_t line = token ? parser->context_mark.line : parser->problem_mark.line;

	if (parser->error == YAML_MEMORY_ERROR)
		return errmsg_set(rd->e, -ENOMEM, "%s: no memory", rd->name);
	if (parser->error == YAML_READER_ERROR)
		return errmsg_set(rd->e, -EINVAL, "%s: not text: %s at byte %zu", rd->name, parser->problem,
				  parser->problem_offset);
	return errmsg_set(rd->e, -EINVAL, "%s:%zu: not YAML: %s%s%s", rd->name, line + 1,
			  parser->context ? parser->context : "", parser->context ? ", " : "",
			  parser->problem ? parser->problem : "unknown error");
}

/* Fails when there is a second document behind the one that was read. */
static int check_end(const struct reader *rd, yaml_parser_t *parser)
{
	const yaml_node_t *root;
	yaml_document_t doc;
	int r = 0;

	if (!yaml_parser_load(parser, &doc))
		return syntax_error(rd, parser);
	root = yaml_document_get_root_node(&doc);
	if (root)
		r = errmsg_set(rd->e, -EINVAL, "%s:%zu: a second document; the file must have one", rd->name,
			       root->start_mark.line + 1);
	yaml_document_delete(&doc);
	return r;
}

static int read_document(struct reader *rd, yaml_parser_t *parser)
{
	yaml_document_t doc;
	yaml_node_t *root;
	int r;

	if (!yaml_parser_load(parser, &doc))
		return syntax_error(rd, parser);
	rd->doc = &doc;
	root = yaml_document_get_root_node(&doc);
	r = root ? read_mapping(rd, NULL, root) : 0;
	if (r == 0)
		r = read_devices(rd);
	yaml_document_delete(&doc);
	return r < 0 || !root ? r : check_end(rd, parser);
}

/* Counts how deep we are after the event; the line of it when that is too deep. */
static bool too_deep(const yaml_event_t *event, unsigned *depth, size_t *ret_line)
{
	if (event->type == YAML_SEQUENCE_START_EVENT || event->type == YAML_MAPPING_START_EVENT)
		++*depth;
	else if (event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT)
		--*depth;
	*ret_line = event->start_mark.line + 1;
	return *depth > NESTING_MAX;
}

/*
 * libyaml looks at every open bracket again for each token: the time goes with the square of their number. Here that
 * is found out before the document is loaded, at a cost that ends where the nesting is too deep. What is wrong
 * otherwise is left to the loading, which meets it as well.
 */
static int check_nesting(const struct reader *rd, const char *buf, size_t len)
{
	yaml_parser_t parser;
	yaml_event_t event;
	unsigned depth = 0;
	size_t line = 0;
	bool deep = false, end = false;

	if (!yaml_parser_initialize(&parser))
		return errmsg_set(rd->e, -ENOMEM, "%s: no memory", rd->name);
	yaml_parser_set_input_string(&parser, (const unsigned char *)buf, len);
	while (!deep && !end && yaml_parser_parse(&parser, &event)) {
		deep = too_deep(&event, &depth, &line);
		end = event.type == YAML_STREAM_END_EVENT;
		yaml_event_delete(&event);
	}
	yaml_parser_delete(&parser);
	if (!deep)
		return 0;
	return errmsg_set(rd->e, -EINVAL, "%s:%zu: lists and groups are nested deeper than in any configuration",
			  rd->name, line);
}

static int load(struct reader *rd, const char *buf, size_t len)
{
	yaml_parser_t parser;
	int r;

	if (!yaml_parser_initialize(&parser))
		return errmsg_set(rd->e, -ENOMEM, "%s: no memory", rd->name);
	yaml_parser_set_input_string(&parser, (const unsigned char *)buf, len);
	r = read_document(rd, &parser);
	yaml_parser_delete(&parser);
	return r;
}

int config_parse(const char *buf, size_t len, const char *name, struct config *c, struct errmsg *e)
{
	struct config new;
	struct reader rd = {.name = name, .c = &new, .e = e};
	int r = config_dup(c, &new);

	if (r < 0)
		return errmsg_set(e, r, "%s: no memory", name);
	r = check_nesting(&rd, buf, len);
	if (r == 0)
		r = load(&rd, buf, len);
	if (r < 0) {
		config_done(&new);
		return r;
	}
	config_done(c);
	*c = new;
	return 0;
}
