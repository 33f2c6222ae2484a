/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/mount_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_KEY "config="
#define REMOUNT "remount"

/* The length of the first option: up to a comma that no backslash escapes. */
static size_t option_length(const char *list)
{
	size_t n;

	for (n = 0; list[n] && list[n] != ','; n++)
		if (list[n] == '\\' && list[n + 1])
			n++;
	return n;
}

/* The value of config= is a file's name here, not an option any more: its escapes go. */
static int set_config(struct mount_options *o, const char *option, size_t len)
{
	char *copy = malloc(len + 1), *out = copy;

	if (!copy)
		return -ENOMEM;
	for (size_t i = sizeof(CONFIG_KEY) - 1; i < len; i++) {
		if (option[i] == '\\' && i + 1 < len)
			i++;
		*out++ = option[i];
	}
	*out = '\0';
	free(o->config);
	o->config = copy;
	return 0;
}

/* rest has room. */
static void append_rest(struct mount_options *o, const char *option, size_t len)
{
	size_t have = strlen(o->rest);

	if (have)
		o->rest[have++] = ',';
	memcpy(o->rest + have, option, len);
	o->rest[have + len] = '\0';
}

int mount_options_add(struct mount_options *o, const char *list)
{
	size_t have = o->rest ? strlen(o->rest) : 0;
	char *rest = realloc(o->rest, have + strlen(list) + 2);
	int r = 0;

	if (!rest)
		return -ENOMEM;
	rest[have] = '\0';
	o->rest = rest;
	while (*list && !r) {
		size_t n = option_length(list);

		if (!strncmp(list, CONFIG_KEY, sizeof(CONFIG_KEY) - 1))
			r = set_config(o, list, n);
		else if (n == strlen(REMOUNT) && !strncmp(list, REMOUNT, n))
			o->remount = true;
		else if (n)
			append_rest(o, list, n);
		list += n;
		list += *list == ',';
	}
	return r;
}

void mount_options_done(struct mount_options *o)
{
	free(o->config);
	free(o->rest);
	*o = (struct mount_options){0};
}
