/* SPDX-License-Identifier: Apache-2.0 */
#include "store/config_keys.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/log.h"
#include "common/size.h"
#include "net/addr.h"
#include "net/utf8.h"

#define NAME_LEN_MAX 128
#define SHOWN_MAX 256
#define SECOND UINT64_C(1000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)
#define GIB (UINT64_C(1) << 30)

#define FIELD(f) offsetof(struct config, f)

const struct config_key config_keys[] = {
    {"instance_key", "instance", CONFIG_NAME, FIELD(instance_key), 0, 0, false, false, false},
    {CONFIG_POOL ".dram", "dram", CONFIG_SIZE, FIELD(dram), CONFIG_DRAM_MIN, INT64_MAX, false, false, false},
    {CONFIG_SPEC ".cluster_name", "cluster", CONFIG_NAME, FIELD(cluster_name), 0, 0, false, false, false},
    {"run_dir", NULL, CONFIG_PATH, FIELD(run_dir), 0, 0, false, false, false},
    {"state_dir", NULL, CONFIG_PATH, FIELD(state_dir), 0, 0, false, false, false},
    {"catalog", NULL, CONFIG_PATH, FIELD(catalog), 0, 0, true, false, false},
    {"listen", NULL, CONFIG_ADDRESS, FIELD(listen), 0, 0, false, false, true},
    {"cluster_key_file", NULL, CONFIG_PATH, FIELD(cluster_key_file), 0, 0, true, false, false},
    {"data_listen", NULL, CONFIG_ADDRESS, FIELD(data_listen), 0, 0, true, false, false},
    {"data_address", NULL, CONFIG_NAME, FIELD(data_address), 0, 0, true, false, false},
    {"control_socket", NULL, CONFIG_PATH, FIELD(control_socket), 0, 0, true, false, false},
    {"control_mode", NULL, CONFIG_MODE, FIELD(control_mode), 0, 0777, false, false, false},
    {"auto_namespace", NULL, CONFIG_BOOL, FIELD(auto_namespace), 0, 0, false, false, false},
    {"block_size", NULL, CONFIG_BLOCK, FIELD(block_size), 4096, GIB, false, false, false},
    {"negative_timeout", NULL, CONFIG_TIME, FIELD(negative_timeout), 0, HOUR, false, false, false},
    {"entry_timeout", NULL, CONFIG_TIME, FIELD(entry_timeout), 0, DAY, false, false, false},
    {"fuse_threads", NULL, CONFIG_COUNT, FIELD(fuse_threads), 0, CONFIG_FUSE_THREADS_MAX, false, false, false},
    {"passthrough", NULL, CONFIG_TRY, FIELD(passthrough), 0, 0, false, false, false},
    {"passthrough_max", NULL, CONFIG_SIZE, FIELD(passthrough_max), 0, GIB, false, false, false},
    {"allow_other", NULL, CONFIG_BOOL, FIELD(allow_other), 0, 0, false, false, false},
    {"ssd_direct", NULL, CONFIG_BOOL, FIELD(ssd_direct), 0, 0, false, false, false},
    {"ssd_retry", NULL, CONFIG_TIME, FIELD(ssd_retry), SECOND, DAY, false, false, false},
    {"ssd_io_depth", NULL, CONFIG_COUNT, FIELD(ssd_io_depth), 1, 4096, false, false, false},
    {"ssd_shards", NULL, CONFIG_COUNT, FIELD(ssd_shards), 1, 64, false, false, false},
    {"persist_backlog", NULL, CONFIG_SIZE, FIELD(persist_backlog), 0, INT64_MAX, false, false, false},
    {"staging_size", NULL, CONFIG_SIZE, FIELD(staging_size), 0, INT64_MAX, false, false, false},
    {"put_deadline", NULL, CONFIG_TIME, FIELD(put_deadline), 5 * SECOND, DAY, false, false, false},
    {"leg_deadline", NULL, CONFIG_TIME, FIELD(leg_deadline), 100, HOUR, false, false, false},
    {"log_level", NULL, CONFIG_LEVEL, FIELD(log_level), 0, 0, false, true, false},
};
const size_t config_n_keys = sizeof(config_keys) / sizeof(config_keys[0]);

static void *field(struct config *c, const struct config_key *key)
{
	return (char *)c + key->offset;
}

static const void *const_field(const struct config *c, const struct config_key *key)
{
	return (const char *)c + key->offset;
}

const char *config_key_last(const struct config_key *key)
{
	const char *dot = strchr(key->name, '.');

	return dot ? dot + 1 : key->name;
}

const struct config_key *config_key_find(const char *name)
{
	for (size_t i = 0; i < config_n_keys; i++)
		if (!strcmp(config_keys[i].name, name))
			return &config_keys[i];
	return NULL;
}

const char *config_type_words(enum config_type type)
{
	switch (type) {
	case CONFIG_NAME:
		return "a name";
	case CONFIG_PATH:
		return "a path";
	case CONFIG_ADDRESS:
		return "an address";
	case CONFIG_SIZE:
	case CONFIG_BLOCK:
		return "a size";
	case CONFIG_TIME:
		return "a time";
	case CONFIG_COUNT:
		return "a whole number";
	case CONFIG_BOOL:
		return "true or false";
	case CONFIG_MODE:
		return "a file mode";
	case CONFIG_LEVEL:
		return "a log level";
	case CONFIG_TRY:
		return "auto, on or off";
	}
	return "a value";
}

/* The next code point of valid UTF-8; -1 for anything else. *p moves behind it. */
static int32_t next_code_point(const char **p)
{
	size_t n = utf8_sequence(*p, strnlen(*p, 4));
	int32_t cp = n ? (int32_t)utf8_code_point(*p, n) : -1;

	*p += n;
	return cp;
}

/* A value ends up in messages, in the dump and in path names: no control characters, no broken UTF-8. */
static bool is_text(const char *s)
{
	while (*s) {
		int32_t cp = next_code_point(&s);

		if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
			return false;
	}
	return true;
}

const char *config_shown(const char *text)
{
	return strlen(text) > SHOWN_MAX ? "..." : is_text(text) ? text : "?";
}

static int read_name(const char *text, struct errmsg *e)
{
	if (*text && strlen(text) <= NAME_LEN_MAX && !strchr(text, '/') && strcmp(text, ".") && strcmp(text, "..") &&
	    is_text(text))
		return 0;
	return errmsg_set(e, -EINVAL, "\"%s\" is not a name; write 1 to %d characters without \"/\"",
			  config_shown(text), NAME_LEN_MAX);
}

int config_read_path(const char *text, struct errmsg *e)
{
	if (*text == '/' && strlen(text) < PATH_MAX / 2 && is_text(text))
		return 0;
	return errmsg_set(e, -EINVAL, "\"%s\" is not an absolute path", config_shown(text));
}

static int read_address(const char *text, struct errmsg *e)
{
	struct sockaddr_storage at;

	if (addr_parse_number(text, &at, NULL) == 0)
		return 0;
	return errmsg_set(e, -EINVAL,
			  "\"%s\" is not an address; write NUMBER:PORT such as 127.0.0.1:7450 or [::1]:7450",
			  config_shown(text));
}

int config_read_size(const char *text, uint64_t min, uint64_t *ret, struct errmsg *e)
{
	uint64_t bytes;
	int r = size_parse(text, &bytes);

	if (r == -ERANGE)
		return errmsg_set(e, r, "\"%s\" is larger than any size", config_shown(text));
	if (r < 0)
		return errmsg_set(e, r, "\"%s\" is not a size; write bytes or a number with B, KB, MB, GB or TB",
				  config_shown(text));
	if (bytes > INT64_MAX)
		return errmsg_set(e, -ERANGE, "\"%s\" is larger than any size", config_shown(text));
	if (bytes < min)
		return errmsg_set(e, -ERANGE, "\"%s\" is less than %" PRIu64 " bytes", config_shown(text), min);
	*ret = bytes;
	return 0;
}

static int read_digits(const char *text, const char **end, uint64_t *ret)
{
	uint64_t v = 0;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	for (; isdigit((unsigned char)*text); text++) {
		if (v > (UINT64_MAX - 9) / 10)
			return -ERANGE;
		v = v * 10 + (uint64_t)(*text - '0');
	}
	*end = text;
	*ret = v;
	return 0;
}

/* Seconds unless a unit says otherwise. A fraction finer than a millisecond is cut off. */
static int time_parse(const char *text, uint64_t *ret)
{
	static const struct {
		const char *word;
		uint64_t ms;
	} units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60 * SECOND}, {"min", 60 * SECOND}, {"h", HOUR}};
	uint64_t whole, frac = 0, scale = 1;
	int r = read_digits(text, &text, &whole);

	if (r < 0 || whole > DAY * 1000)
		return -EINVAL;
	if (*text == '.') {
		if (!isdigit((unsigned char)*++text))
			return -EINVAL;
		for (; isdigit((unsigned char)*text); text++)
			if (scale < UINT64_C(1000000000)) {
				frac = frac * 10 + (uint64_t)(*text - '0');
				scale *= 10;
			}
	}
	text += strspn(text, " ");
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(text, units[i].word)) {
			*ret = whole * units[i].ms + frac * units[i].ms / scale;
			return 0;
		}
	return -EINVAL;
}

static int read_time(const char *text, uint64_t *ret, struct errmsg *e)
{
	if (time_parse(text, ret) == 0)
		return 0;
	return errmsg_set(e, -EINVAL, "\"%s\" is not a time; write seconds (0.1) or a number with ms, s, m or h",
			  config_shown(text));
}

static int read_count(const char *text, uint64_t *ret, struct errmsg *e)
{
	const char *end;
	uint64_t v;

	if (read_digits(text, &end, &v) < 0 || *end)
		return errmsg_set(e, -EINVAL, "\"%s\" is not a whole number", config_shown(text));
	*ret = v;
	return 0;
}

static int read_mode(const char *text, uint64_t *ret, struct errmsg *e)
{
	const char *digits = !strncmp(text, "0o", 2) ? text + 2 : text;

	if (!*digits || strlen(digits) > 6 || digits[strspn(digits, "01234567")])
		return errmsg_set(e, -EINVAL, "\"%s\" is not a file mode; write octal digits such as 0600",
				  config_shown(text));
	*ret = strtoull(digits, NULL, 8);
	return 0;
}

static int read_bool(const char *text, bool *ret, struct errmsg *e)
{
	static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcasecmp(text, words[i])) {
			*ret = i & 1;
			return 0;
		}
	return errmsg_set(e, -EINVAL, "\"%s\" is neither true nor false", config_shown(text));
}

static int read_level(const char *text, uint64_t *ret, struct errmsg *e)
{
	enum log_level level;

	if (log_level_parse(text, &level) < 0)
		return errmsg_set(e, -EINVAL, "\"%s\" is not a log level; write error, warn, info or debug",
				  config_shown(text));
	*ret = level;
	return 0;
}

static const char *const try_words[] = {[CONFIG_TRY_AUTO] = "auto", [CONFIG_TRY_ON] = "on", [CONFIG_TRY_OFF] = "off"};

static int read_try(const char *text, uint64_t *ret, struct errmsg *e)
{
	bool on;

	if (!strcasecmp(text, try_words[CONFIG_TRY_AUTO]))
		*ret = CONFIG_TRY_AUTO;
	else if (read_bool(text, &on, NULL) == 0)
		*ret = on ? CONFIG_TRY_ON : CONFIG_TRY_OFF;
	else
		return errmsg_set(e, -EINVAL, "\"%s\" is not auto, on or off", config_shown(text));
	return 0;
}

static int check_range(const struct config_key *key, const char *text, uint64_t v, struct errmsg *e)
{
	char min[32], max[32];

	if (v >= key->min && v <= key->max)
		return 0;
	if (key->type == CONFIG_SIZE || key->type == CONFIG_BLOCK) {
		size_format(key->min, min, sizeof(min));
		size_format(key->max, max, sizeof(max));
	} else if (key->type == CONFIG_TIME) {
		snprintf(min, sizeof(min), "%g s", (double)key->min / 1000);
		snprintf(max, sizeof(max), "%g s", (double)key->max / 1000);
	} else {
		snprintf(min, sizeof(min), key->type == CONFIG_MODE ? "%04" PRIo64 : "%" PRIu64, key->min);
		snprintf(max, sizeof(max), key->type == CONFIG_MODE ? "%04" PRIo64 : "%" PRIu64, key->max);
	}
	if (key->max == INT64_MAX)
		return errmsg_set(e, -ERANGE, "\"%s\" is less than %s", config_shown(text), min);
	return errmsg_set(e, -ERANGE, "\"%s\" is not between %s and %s", config_shown(text), min, max);
}

static int read_number(const struct config_key *key, const char *text, uint64_t *ret, struct errmsg *e)
{
	uint64_t v = 0;
	int r;

	switch (key->type) {
	case CONFIG_SIZE:
	case CONFIG_BLOCK:
		r = config_read_size(text, 0, &v, e);
		break;
	case CONFIG_TIME:
		r = read_time(text, &v, e);
		break;
	case CONFIG_MODE:
		r = read_mode(text, &v, e);
		break;
	default:
		r = read_count(text, &v, e);
		break;
	}
	if (r == 0)
		r = check_range(key, text, v, e);
	if (r == 0 && key->type == CONFIG_BLOCK && (v & (v - 1)))
		r = errmsg_set(e, -EINVAL, "\"%s\" is not a power of two", config_shown(text));
	if (r == 0)
		*ret = v;
	return r;
}

static int set_string(char **field_of, const char *text, struct errmsg *e)
{
	char *copy = strdup(text);

	if (!copy)
		return errmsg_set(e, -ENOMEM, "no memory");
	free(*field_of);
	*field_of = copy;
	return 0;
}

int config_key_set(struct config *c, const struct config_key *key, const char *text, struct errmsg *e)
{
	int r;

	switch (key->type) {
	case CONFIG_NAME:
		r = read_name(text, e);
		return r < 0 ? r : set_string(field(c, key), text, e);
	case CONFIG_PATH:
		r = config_read_path(text, e);
		return r < 0 ? r : set_string(field(c, key), text, e);
	case CONFIG_ADDRESS:
		r = read_address(text, e);
		return r < 0 ? r : set_string(field(c, key), text, e);
	case CONFIG_BOOL:
		return read_bool(text, field(c, key), e);
	case CONFIG_LEVEL:
		return read_level(text, field(c, key), e);
	case CONFIG_TRY:
		return read_try(text, field(c, key), e);
	default:
		return read_number(key, text, field(c, key), e);
	}
}

static bool is_string(const struct config_key *key)
{
	return key->type == CONFIG_NAME || key->type == CONFIG_PATH || key->type == CONFIG_ADDRESS;
}

void config_key_clear(struct config *c, const struct config_key *key)
{
	char **s = field(c, key);

	free(*s);
	*s = NULL;
}

/* In double quotes, with everything but plain ASCII as an escape: no reader can take it for anything else. */
void config_print_string(const char *s, FILE *f)
{
	fputc('"', f);
	while (*s) {
		int32_t cp = next_code_point(&s);

		if (cp < 0)
			break; /* is_text() let none of these in */
		if (cp == '"' || cp == '\\')
			fputc('\\', f);
		if (cp < 0x80)
			fputc(cp, f);
		else
			fprintf(f, "\\U%08" PRIx32, (uint32_t)cp);
	}
	fputc('"', f);
}

void config_key_print(const struct config *c, const struct config_key *key, FILE *f)
{
	const void *p = const_field(c, key);

	switch (key->type) {
	case CONFIG_NAME:
	case CONFIG_PATH:
	case CONFIG_ADDRESS:
		if (*(char *const *)p)
			config_print_string(*(char *const *)p, f);
		else
			fputs("null", f);
		break;
	case CONFIG_BOOL:
		fputs(*(const bool *)p ? "true" : "false", f);
		break;
	case CONFIG_LEVEL:
		fputs(log_level_word((enum log_level) * (const uint64_t *)p), f);
		break;
	case CONFIG_TRY:
		fputs(try_words[*(const uint64_t *)p], f);
		break;
	case CONFIG_TIME:
		fprintf(f, "%" PRIu64 "ms", *(const uint64_t *)p);
		break;
	case CONFIG_MODE:
		fprintf(f, "%04" PRIo64, *(const uint64_t *)p);
		break;
	default:
		fprintf(f, "%" PRIu64, *(const uint64_t *)p);
		break;
	}
}

bool config_key_equal(const struct config *a, const struct config *b, const struct config_key *key)
{
	const void *x = const_field(a, key), *y = const_field(b, key);

	if (is_string(key)) {
		const char *s = *(char *const *)x, *t = *(char *const *)y;

		return s && t ? !strcmp(s, t) : s == t;
	}
	if (key->type == CONFIG_BOOL)
		return *(const bool *)x == *(const bool *)y;
	return *(const uint64_t *)x == *(const uint64_t *)y;
}

int config_key_copy(struct config *dst, const struct config *src, const struct config_key *key)
{
	const void *from = const_field(src, key);

	if (is_string(key)) {
		if (*(char *const *)from)
			return set_string(field(dst, key), *(char *const *)from, NULL);
		config_key_clear(dst, key);
	} else if (key->type == CONFIG_BOOL) {
		*(bool *)field(dst, key) = *(const bool *)from;
	} else {
		*(uint64_t *)field(dst, key) = *(const uint64_t *)from;
	}
	return 0;
}
