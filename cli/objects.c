/* SPDX-License-Identifier: Apache-2.0 */
/* rm, evict, prefetch, pin, unpin, ttl: one request an object. */
#include <stdlib.h>
#include <string.h>

#include "cli/walk.h"

static json_t *rm_request(const struct walk *w, const char *path, bool dir)
{
	return session_request(dir ? "rmdir" : "rm", path);
}

int cmd_rm(const struct cli_options *o, int n, char **words)
{
	struct walk w = {.recursive = o->recursive, .directories = true, .request = rm_request};

	return walk_words(o, &w, n, words);
}

static json_t *evict_request(const struct walk *w, const char *path, bool dir)
{
	const struct cli_options *o = w->arg;

	/* Of many, those that have no copy there are as they were wanted. */
	return json_pack("{s:s,s:o,s:s,s:b,s:b}", "op", "evict", "path", ctl_name_to_json(path), "tier", o->tier,
			 "force", (int)o->force, "absent_ok", (int)o->recursive);
}

int cmd_evict(const struct cli_options *o, int n, char **words)
{
	struct walk w = {.recursive = o->recursive, .request = evict_request, .arg = o};

	if (!o->tier) {
		cli_error("evict: from which tier? Say --tier dram or --tier ssd");
		return CLI_USAGE;
	}
	return walk_words(o, &w, n, words);
}

static json_t *prefetch_request(const struct walk *w, const char *path, bool dir)
{
	return session_request("prefetch", path);
}

int cmd_prefetch(const struct cli_options *o, int n, char **words)
{
	struct walk w = {.recursive = o->recursive, .request = prefetch_request};

	return walk_words(o, &w, n, words);
}

static json_t *pin_request(const struct walk *w, const char *path, bool dir)
{
	return json_pack("{s:s,s:o,s:b}", "op", "pin", "path", ctl_name_to_json(path), "pin", w->arg ? 1 : 0);
}

int cmd_pin(const struct cli_options *o, int n, char **words)
{
	struct walk w = {.recursive = o->recursive, .request = pin_request, .arg = o};

	return walk_words(o, &w, n, words);
}

int cmd_unpin(const struct cli_options *o, int n, char **words)
{
	struct walk w = {.recursive = o->recursive, .request = pin_request, .arg = NULL};

	return walk_words(o, &w, n, words);
}

static json_t *ttl_request(const struct walk *w, const char *path, bool dir)
{
	const uint64_t *seconds = w->arg;

	return json_pack("{s:s,s:o,s:I}", "op", "ttl", "path", ctl_name_to_json(path), "seconds", (json_int_t)*seconds);
}

int cmd_ttl(const struct cli_options *o, int n, char **words)
{
	uint64_t seconds;
	struct walk w = {.recursive = o->recursive, .request = ttl_request, .arg = &seconds};

	if (cli_parse_seconds(words[1], &seconds)) {
		cli_error("ttl: %s: expected " CLI_TIME_EXPECTED, words[1]);
		return CLI_USAGE;
	}
	return walk_words(o, &w, 1, words);
}
