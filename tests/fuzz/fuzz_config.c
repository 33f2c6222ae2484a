/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as fluxkv.yaml and as a list of mount options: either one line says what is wrong, or what was understood
 * reads back from its own dump as the same.
 */
#include <stdlib.h>
#include <string.h>

#include "store/config.h"
#include "tests/fuzz/fuzz.h"

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void must_equal(const struct config *a, const struct config *b)
{
	char *live, *restart;

	must(config_reloadable_diff(a, b, &live, &restart) == 0);
	must(!*live && !*restart);
	free(live);
	free(restart);
}

static void check_result(struct config *c, int r, const struct errmsg *e)
{
	struct errmsg why = {""};
	struct config again;
	char *text;

	if (r < 0) {
		must(*e->text && !strchr(e->text, '\n'));
		return;
	}
	text = config_dump(c);
	must(text && config_init(&again) == 0);
	must(config_parse(text, strlen(text), "dump", &again, &why) == 0);
	must_equal(c, &again);
	config_done(&again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *list = malloc(size + 1);
	struct errmsg e = {""};
	struct config c;

	must(list && config_init(&c) == 0);
	check_result(&c, config_parse((const char *)data, size, "f", &c, &e), &e);
	config_done(&c);
	memcpy(list, data, size);
	list[size] = '\0';
	must(config_init(&c) == 0);
	check_result(&c, config_options(list, &c, &e), &e);
	config_done(&c);
	free(list);
	return 0;
}
