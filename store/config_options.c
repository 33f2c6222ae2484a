/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration's keys as mount options. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "store/config_keys.h"

/*
 * What mount(8), fstab and systemd pass on and that asks for nothing here: either it is theirs alone, or it holds in
 * any case (nosuid, nodev, default_permissions), or it is about times and writing that a memory store has its own way
 * with.
 */
static const char *const ignored[] = {
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "async",
    "sync",
    "dirsync",
    "atime",
    "noatime",
    "nodiratime",
    "diratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "default_permissions",
    NULL,
};

/* Flags of the mount that are no keys of the file. */
static bool set_flag(struct config *c, const char *word)
{
	if (!strcmp(word, "ro") || !strcmp(word, "rw"))
		c->read_only = word[1] == 'o';
	else if (!strcmp(word, "noexec"))
		c->no_exec = true;
	else
		return false;
	return true;
}

static bool is_ignored(const char *word, const char *value)
{
	/* user=NAME is what mount(8) writes down; comment= and x- are anybody's notes */
	if (!strncasecmp(word, "x-", 2) || !strcmp(word, "comment") || (value && !strcmp(word, "user")))
		return true;
	for (size_t i = 0; !value && ignored[i]; i++)
		if (!strcmp(word, ignored[i]))
			return true;
	return false;
}

static const struct config_key *find(const char *word)
{
	for (size_t i = 0; i < config_n_keys; i++) {
		const struct config_key *key = &config_keys[i];

		if (!key->master && (!strcmp(word, key->name) || !strcmp(word, config_key_last(key)) ||
				     (key->alias && !strcmp(word, key->alias))))
			return key;
	}
	return NULL;
}

static int unknown(const char *word, struct errmsg *e)
{
	const char *words[64];
	size_t n = 0;

	words[n++] = "ssd";
	words[n++] = "noexec";
	for (size_t i = 0; i < config_n_keys && n < 62; i++) {
		if (config_keys[i].master)
			continue;
		words[n++] = config_key_last(&config_keys[i]);
		if (config_keys[i].alias)
			words[n++] = config_keys[i].alias;
	}
	words[n] = NULL;
	if (!strcmp(word, CONFIG_PATHS) || !strcmp(word, CONFIG_LIMITS))
		return errmsg_set(e, -EINVAL, "give each device as ssd=PATH:SIZE");
	if (config_key_find(word) && config_key_find(word)->master)
		return errmsg_set(e, -EINVAL, "that is fluxkv-master's, and no option of a node");
	if (!strcmp(word, "remount"))
		return errmsg_set(e, -EINVAL, "a mount cannot be changed; unmount it and mount it again");
	if (nearest_word(word, words))
		return errmsg_set(e, -EINVAL, "unknown option; did you mean \"%s\"?", nearest_word(word, words));
	return errmsg_set(e, -EINVAL, "unknown option");
}

/* PATH:SIZE; the path may hold colons, the size does not. */
static int set_ssd(struct config *c, char *value, struct errmsg *e)
{
	char *colon = value ? strrchr(value, ':') : NULL;
	uint64_t limit;
	int r;

	if (!colon)
		return errmsg_set(e, -EINVAL, "expected PATH:SIZE");
	*colon = '\0';
	r = config_read_path(value, e);
	if (r == 0)
		r = config_read_size(colon + 1, CONFIG_SSD_LIMIT_MIN, &limit, e);
	if (r < 0)
		return r;
	if (!c->ssd_from_option)
		config_ssd_free(c);
	c->ssd_from_option = c->ssd_enabled = true;
	return config_ssd_add(c, value, limit, e);
}

static int set_option(struct config *c, const char *word, char *value, struct errmsg *e)
{
	const struct config_key *key = find(word);

	if (!strcmp(word, "ssd"))
		return set_ssd(c, value, e);
	if (key && !value && key->type == CONFIG_BOOL)
		return config_key_set(c, key, "true", e);
	if (key && !value)
		return errmsg_set(e, -EINVAL, "expected %s: %s=...", config_type_words(key->type), word);
	if (key)
		return config_key_set(c, key, value, e);
	return is_ignored(word, value) || (!value && set_flag(c, word)) ? 0 : unknown(word, e);
}

/*
 * Cuts the first option off *list, in place: at a comma, and at the first "=" into word and value, both without the
 * backslashes. False at the end.
 */
static bool next_option(char **list, char **ret_word, char **ret_value)
{
	char *in = *list, *out = in;

	*ret_word = in;
	*ret_value = NULL;
	if (!*in)
		return false;
	for (; *in && *in != ','; in++) {
		if (*in == '=' && !*ret_value) {
			*out++ = '\0';
			*ret_value = out;
			continue;
		}
		if (*in == '\\' && in[1])
			in++;
		*out++ = *in;
	}
	*list = *in ? in + 1 : in;
	*out = '\0';
	return true;
}

int config_options(const char *list, struct config *c, struct errmsg *e)
{
	char *copy = strdup(list), *rest = copy, *word, *value;
	struct config new;
	int r = copy ? config_dup(c, &new) : -ENOMEM;

	if (r < 0) {
		free(copy);
		return errmsg_set(e, r, "no memory");
	}
	while (r == 0 && next_option(&rest, &word, &value)) {
		if (!*word && !value)
			continue; /* ",," */
		if (!*word) {
			r = errmsg_set(e, -EINVAL, "-o =%s: a value of nothing; write option=value",
				       config_shown(value));
			break;
		}
		r = set_option(&new, word, value, e);
		if (r < 0)
			errmsg_prefix(e, r, "-o %s", config_shown(word));
	}
	free(copy);
	if (r < 0) {
		config_done(&new);
		return r;
	}
	config_done(c);
	*c = new;
	return 0;
}
