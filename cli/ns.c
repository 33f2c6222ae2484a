/* SPDX-License-Identifier: Apache-2.0 */
/* ns: the namespaces. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/nearest.h"
#include "cli/session.h"
#include "cli/text.h"
#include "common/size.h"
#include "net/json.h"

/* One request, whose answer is of no further interest. Takes over req. */
static int simple_call(const struct cli_options *o, json_t *req)
{
	struct session s;
	int r;

	r = session_open(o, NULL, &s);
	if (r) {
		json_decref(req);
		return r;
	}
	r = session_call(&s, req, NULL);
	session_close(&s);
	return r;
}

static json_t *ns_request(const char *op, const struct cli_options *o, const char *name)
{
	json_t *req = json_pack("{s:s,s:o}", "op", op, "name", ctl_name_to_json(name));
	uint64_t seconds;

	if (o->block_size)
		json_object_set_new(req, "block_size", json_integer((json_int_t)o->block_size));
	if (o->ttl && !cli_parse_seconds(o->ttl, &seconds))
		json_object_set_new(req, "ttl_seconds", json_integer((json_int_t)seconds));
	if (o->persist)
		json_object_set_new(req, "persist", json_boolean(!strcmp(o->persist, "yes")));
	if (o->has_mode)
		json_object_set_new(req, "mode", json_integer((json_int_t)o->mode));
	return req;
}

static int ns_create(const struct cli_options *o, const char *name)
{
	return simple_call(o, ns_request("ns_create", o, name));
}

static int ns_set(const struct cli_options *o, const char *name)
{
	if (o->has_mode) {
		cli_error("ns set: --mode is for ns create; change the permissions of the directory with chmod");
		return CLI_USAGE;
	}
	if (!o->block_size && !o->ttl && !o->persist) {
		cli_error("ns set: set what? Say --block-size, --ttl or --persist");
		return CLI_USAGE;
	}
	return simple_call(o, ns_request("ns_set", o, name));
}

static int ns_rm(const struct cli_options *o, const char *name)
{
	return simple_call(o, ns_request("ns_rm", o, name));
}

static void print_namespace(const json_t *ns)
{
	char bytes[24], block[24], ttl[32] = "none", name[1024] = "?";
	uint64_t seconds = json_u64(ns, "ttl_seconds");

	if (seconds)
		snprintf(ttl, sizeof(ttl), "%" PRIu64 " s", seconds);
	ctl_name_from_json(json_str(ns, "name"), name, sizeof(name));
	printf("%10" PRIu64 " %10s %10s %12s %7s  ", json_u64(ns, "objects"),
	       size_format(json_u64(ns, "bytes"), bytes, sizeof(bytes)),
	       size_format(json_u64(ns, "block_size"), block, sizeof(block)), ttl,
	       json_is_true(json_at(ns, "persist")) ? "yes" : "no");
	text_print_name(name);
	putchar('\n');
}

static int ns_list(const struct cli_options *o, const char *name)
{
	json_t *answer, *list, *ns;
	struct session s;
	size_t i;
	int r;

	r = session_open(o, NULL, &s);
	if (r)
		return r;
	r = session_call(&s, json_pack("{s:s}", "op", "ns_list"), &answer);
	session_close(&s);
	if (r)
		return r;
	list = json_at(answer, "namespaces");
	if (o->json) {
		json_dumpf(list, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
		putchar('\n');
	} else {
		printf("%10s %10s %10s %12s %7s  %s\n", "OBJECTS", "BYTES", "BLOCK", "TTL", "PERSIST", "NAME");
		json_array_foreach (list, i, ns)
			print_namespace(ns);
	}
	json_decref(answer);
	return CLI_OK;
}

int cmd_ns(const struct cli_options *o, int n, char **words)
{
	static const struct {
		const char *word;
		int names; /* that it takes */
		int (*run)(const struct cli_options *o, const char *name);
	} verbs[] = {{"create", 1, ns_create}, {"set", 1, ns_set}, {"list", 0, ns_list}, {"rm", 1, ns_rm}};
	static const char *const words_known[] = {"create", "set", "list", "rm", NULL};
	const char *near = nearest_word(words[0], words_known);

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(words[0], verbs[i].word))
			continue;
		if (n - 1 == verbs[i].names)
			return verbs[i].run(o, n > 1 ? words[1] : NULL);
		cli_error("ns %s: %s; see: fluxkv help ns", words[0],
			  verbs[i].names ? "which namespace?" : "takes no name");
		return CLI_USAGE;
	}
	if (near)
		cli_error("no command 'ns %s'; did you mean 'ns %s'?", words[0], near);
	else
		cli_error("no command 'ns %s'; there are create, set, list and rm", words[0]);
	return CLI_USAGE;
}
