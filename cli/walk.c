/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/json.h"

/* The names of one directory, taken down before anything is done to them: a listing is not changed while it runs. */
struct names {
	char **name;
	bool *dir;
	size_t n, cap;
};

static int names_grow(struct names *l)
{
	size_t cap = l->cap ? 2 * l->cap : 256;
	char **name;
	bool *dir;

	name = realloc(l->name, cap * sizeof(*name));
	if (!name)
		return CLI_FAILED;
	l->name = name;
	dir = realloc(l->dir, cap * sizeof(*dir));
	if (!dir)
		return CLI_FAILED;
	l->dir = dir;
	l->cap = cap;
	return CLI_OK;
}

static int names_add(void *arg, const json_t *entry, const char *name)
{
	struct names *l = arg;

	if ((l->n == l->cap && names_grow(l)) || !(l->name[l->n] = strdup(name))) {
		cli_error("out of memory");
		return CLI_FAILED;
	}
	l->dir[l->n++] = !strcmp(json_str(entry, "kind"), "dir");
	return CLI_OK;
}

static void names_free(struct names *l)
{
	while (l->n)
		free(l->name[--l->n]);
	free(l->name);
	free(l->dir);
}

static int walk_one(struct session *s, const struct walk *w, const char *path, bool dir);

static int walk_below(struct session *s, const struct walk *w, const char *path)
{
	struct names l = {0};
	char child[PATH_MAX];
	int result, r;

	result = session_list(s, path, names_add, &l);
	for (size_t i = 0; !s->lost && i < l.n; i++) {
		if (snprintf(child, sizeof(child), "%s%s%s", path, *path ? "/" : "", l.name[i]) >= (int)sizeof(child)) {
			cli_error("%.64s...: the path is too long", path);
			result = CLI_FAILED;
			break;
		}
		r = walk_one(s, w, child, l.dir[i]);
		if (r)
			result = r;
	}
	names_free(&l);
	return result;
}

static int walk_one(struct session *s, const struct walk *w, const char *path, bool dir)
{
	int r = CLI_OK;

	if (dir && w->recursive) {
		r = walk_below(s, w, path);
		if (r || !w->directories)
			return r;
	}
	return session_call(s, w->request(w, path, dir), NULL);
}

static int walk_word(struct session *s, const struct walk *w, const char *word)
{
	char path[PATH_MAX];
	bool dir = false;
	json_t *j;
	int r;

	r = session_path(s, word, path);
	if (r)
		return r;
	if (w->recursive && w->directories && !*path) {
		cli_error("%s is the root of the file system, which stays; name what is to go", word);
		return CLI_USAGE;
	}
	if (w->recursive) {
		r = session_call(s, session_request("stat", path), &j);
		if (r)
			return r;
		dir = !strcmp(json_str(j, "kind"), "dir");
		json_decref(j);
	}
	return walk_one(s, w, path, dir);
}

int walk_words(const struct cli_options *o, const struct walk *w, int n, char **words)
{
	struct session s;
	int result, r;

	result = session_open(o, words[0], &s);
	if (result)
		return result;
	for (int i = 0; i < n && !s.lost; i++) {
		r = walk_word(&s, w, words[i]);
		if (r)
			result = r;
	}
	session_close(&s);
	return result;
}
