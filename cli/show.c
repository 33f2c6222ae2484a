/* SPDX-License-Identifier: Apache-2.0 */
/* status, stat and ls: what only looks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/session.h"
#include "cli/text.h"
#include "common/size.h"
#include "net/json.h"
#include "net/status.h"

static int print_json(json_t *j)
{
	/* "ok" is the wire's business. */
	json_object_del(j, "ok");
	if (json_dumpf(j, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER)) {
		cli_error("standard output: %s", strerror(errno));
		return CLI_FAILED;
	}
	putchar('\n');
	return CLI_OK;
}

int cmd_status(const struct cli_options *o, int n, char **words)
{
	struct session s;
	json_t *status;
	char *text;
	int r;

	r = session_open(o, NULL, &s);
	if (r)
		return r;
	r = session_call(&s, json_pack("{s:s}", "op", "status"), &status);
	if (r)
		goto close;
	if (o->json) {
		r = print_json(status);
	} else {
		text = status_text(status);
		fputs(text ? text : "", stdout);
		free(text);
	}
	json_decref(status);
close:
	session_close(&s);
	return r;
}

static void print_time(const char *title, int64_t ns)
{
	time_t t = (time_t)(ns / 1000000000);
	char buf[64];
	struct tm tm;

	if (!localtime_r(&t, &tm) || !strftime(buf, sizeof(buf), "%Y-%m-%d %H:%M:%S %z", &tm))
		return;
	printf("%-9s %s\n", title, buf);
}

static void print_replicas(const json_t *j)
{
	uint64_t blocks = json_u64(j, "blocks");

	printf("copies    %" PRIu64 " block%s: %" PRIu64 " in DRAM, %" PRIu64 " on SSD\n", blocks,
	       blocks == 1 ? "" : "s", json_u64(j, "in_dram"), json_u64(j, "in_ssd"));
	if (*json_str(j, "checksum"))
		printf("checksum  %s (XXH3-64)\n", json_str(j, "checksum"));
}

static void print_stat(const char *name, const json_t *j)
{
	bool dir = !strcmp(json_str(j, "kind"), "dir");
	uint64_t size = json_u64(j, "size"), expires = json_u64(j, "expires_ns");
	char human[24];

	text_print_name(name);
	printf(":\n%-9s %s%s\n", "kind", dir ? "directory" : "object",
	       json_is_true(json_at(j, "private")) ? ", being written" : "");
	printf("%-9s %" PRIu64 "\n", dir ? "id" : "version", json_u64(j, "id"));
	if (!dir)
		printf("%-9s %" PRIu64 " bytes (%s)\n", "size", size, size_format(size, human, sizeof(human)));
	printf("%-9s %04" PRIo64 ", uid %" PRIu64 ", gid %" PRIu64 "\n", "mode", json_u64(j, "mode") & 07777,
	       json_u64(j, "uid"), json_u64(j, "gid"));
	print_time("modified", (int64_t)json_u64(j, "mtime_ns"));
	if (dir)
		return;
	if (expires)
		print_time("expires", (int64_t)expires);
	printf("%-9s %s\n", "pinned", json_is_true(json_at(j, "pin")) ? "yes" : "no");
	print_replicas(j);
}

static int stat_one(struct session *s, const struct cli_options *o, const char *arg)
{
	char path[PATH_MAX];
	json_t *j;
	int r;

	r = session_path(s, arg, path);
	if (!r)
		r = session_call(s, session_request("stat", path), &j);
	if (r)
		return r;
	if (o->json)
		r = print_json(j);
	else
		print_stat(arg, j);
	json_decref(j);
	return r;
}

int cmd_stat(const struct cli_options *o, int n, char **words)
{
	struct session s;
	int result, r;

	result = session_open(o, words[0], &s);
	if (result)
		return result;
	for (int i = 0; i < n; i++) {
		r = stat_one(&s, o, words[i]);
		if (r)
			result = r;
	}
	session_close(&s);
	return result;
}

/* D all blocks in DRAM, d some; S, s the same on the SSD; P pinned; w being written. */
static void tier_letters(const json_t *j, char out[5])
{
	uint64_t blocks = json_u64(j, "blocks"), dram = json_u64(j, "in_dram"), ssd = json_u64(j, "in_ssd");

	strcpy(out, "----");
	if (!strcmp(json_str(j, "kind"), "dir")) {
		out[0] = '/';
		return;
	}
	if (dram)
		out[0] = dram >= blocks ? 'D' : 'd';
	if (ssd)
		out[1] = ssd >= blocks ? 'S' : 's';
	if (json_is_true(json_at(j, "pin")))
		out[2] = 'P';
	if (json_is_true(json_at(j, "private")))
		out[3] = 'w';
}

static void print_long(const json_t *j)
{
	time_t t = (time_t)(json_u64(j, "mtime_ns") / 1000000000);
	char letters[5], when[32] = "-";
	struct tm tm;

	tier_letters(j, letters);
	if (localtime_r(&t, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
	printf("%s %12" PRIu64 " %s ", letters, json_u64(j, "size"), when);
}

static int print_entry(void *arg, const json_t *entry, const char *name)
{
	const struct cli_options *o = arg;

	if (o->json)
		json_dumpf(entry, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
	else if (o->long_format)
		print_long(entry);
	if (!o->json) {
		text_print_name(name);
		if (!strcmp(json_str(entry, "kind"), "dir"))
			putchar('/');
	}
	putchar('\n');
	/* A pipe that nobody reads any more ends a long listing. */
	return ferror(stdout) ? CLI_FAILED : CLI_OK;
}

int cmd_ls(const struct cli_options *o, int n, char **words)
{
	char path[PATH_MAX];
	struct session s;
	int r;

	r = session_open(o, n ? words[0] : NULL, &s);
	if (r)
		return r;
	r = session_path(&s, n ? words[0] : ".", path);
	if (!r)
		r = session_list(&s, path, print_entry, (void *)o);
	session_close(&s);
	return r;
}
