/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of the configuration, each with its type, its limits and its field: what the file, the mount options, the
 * dump and the reload all go by. Private to store/config*.c. Pure; any thread.
 */
#ifndef STORE_CONFIG_KEYS_H
#define STORE_CONFIG_KEYS_H

#include <stdio.h>

#include "store/config.h"

enum config_type {
	CONFIG_NAME,	/* one path component */
	CONFIG_PATH,	/* absolute */
	CONFIG_ADDRESS, /* a number and a port */
	CONFIG_SIZE,
	CONFIG_BLOCK, /* a size that is a power of two */
	CONFIG_TIME,  /* milliseconds */
	CONFIG_COUNT,
	CONFIG_BOOL,
	CONFIG_MODE, /* permission bits, octal */
	CONFIG_LEVEL,
	CONFIG_TRY, /* enum config_try */
};

struct config_key {
	const char *name;  /* "group.key" or "key" */
	const char *alias; /* short name as a mount option, or NULL */
	enum config_type type;
	size_t offset;	   /* of char *, bool or uint64_t in struct config */
	uint64_t min, max; /* of the numbers */
	bool nullable;	   /* of the strings */
	bool live;	   /* a reload takes it over */
	bool master;	   /* fluxkv-master's alone: no mount option, and of no effect on a node */
};

extern const struct config_key config_keys[];
extern const size_t config_n_keys;

/* The two lists and the groups, which are not in the table. */
#define CONFIG_POOL "contribute_to_cluster_pool_size"
#define CONFIG_SPEC "fluxonkv_spec"
#define CONFIG_PATHS "large_file_paths"
#define CONFIG_LIMITS "large_limit_size"
#define CONFIG_LISTEN "127.0.0.1:7450"
#define CONFIG_SSD_MAX 32
#define CONFIG_SSD_LIMIT_MIN 512
/* Less holds no value of the usual sizes, and is what a forgotten unit looks like ("dram: 64"). */
#define CONFIG_DRAM_MIN (UINT64_C(1) << 20)

/* The part of a key's name behind the dot. */
const char *config_key_last(const struct config_key *key);
/* Finds a key by its whole name; NULL: none. */
const struct config_key *config_key_find(const char *name);

/* Reads text into the key's field. On an error *e says what is wrong with the text, without a position. */
int config_key_set(struct config *c, const struct config_key *key, const char *text, struct errmsg *e);
/* Back to nothing; only for a nullable key. */
void config_key_clear(struct config *c, const struct config_key *key);
/* Writes the value as YAML. */
void config_key_print(const struct config *c, const struct config_key *key, FILE *f);
bool config_key_equal(const struct config *a, const struct config *b, const struct config_key *key);
/* Copies the value. 0 or -ENOMEM, and then dst is unchanged. */
int config_key_copy(struct config *dst, const struct config *src, const struct config_key *key);

/* "a size", "a list of paths": what is expected, for messages. */
const char *config_type_words(enum config_type type);

/* The text itself, or "?" when it would break the one line of a message, or "..." when it would push out the reason. */
const char *config_shown(const char *text);

int config_read_size(const char *text, uint64_t min, uint64_t *ret, struct errmsg *e);
int config_read_path(const char *text, struct errmsg *e);
void config_print_string(const char *s, FILE *f);

void config_ssd_free(struct config *c);
/* Adds a device to the list. 0, -ENOMEM, or -E2BIG with *e set. */
int config_ssd_add(struct config *c, const char *path, uint64_t limit, struct errmsg *e);
int config_dup(const struct config *src, struct config *ret);

#endif
