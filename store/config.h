/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node is told: fluxkv.yaml, and the same keys as mount options (-o key=value), which win. fluxkv-master reads
 * the same file, and its keys are no mount options. Parsing is a pure function of the bytes. Every refusal is one line
 * with file, line and what was expected.
 *
 * A struct config is plain data that its owner may read from any thread as long as nobody changes it; a reload makes a
 * second one and compares.
 */
#ifndef STORE_CONFIG_H
#define STORE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errmsg.h"

struct config_ssd {
	char *path;
	uint64_t limit; /* bytes; 0 when large_limit_size is absent: no SSD tier */
};

#define CONFIG_FUSE_THREADS_MAX 256 /* that may be asked for */

/* Of what may not be possible: use it where it is, insist on it, do without. */
enum config_try { CONFIG_TRY_AUTO, CONFIG_TRY_ON, CONFIG_TRY_OFF };

/* Times are in milliseconds. Strings are never NULL unless said; all are UTF-8 without control characters. */
struct config {
	char *instance_key;	/* default: the host's name; one path component, as cluster_name is */
	char *cluster_name;	/* fluxonkv_spec.cluster_name, default "fluxkv" */
	uint64_t dram;		/* contribute_to_cluster_pool_size.dram; default 1 GiB, at least 1 MiB */
	struct config_ssd *ssd; /* fluxonkv_spec.large_file_paths with large_limit_size */
	size_t n_ssd;
	bool ssd_enabled;     /* large_limit_size is there and not null, or ssd= was given */
	bool ssd_from_option; /* the list is that of ssd= options, so the next one adds to it */

	char *run_dir;		/* /run/fluxkv */
	char *state_dir;	/* /var/lib/fluxkv */
	char *catalog;		/* NULL: config_catalog_path() says <state_dir>/<instance_key>/catalogue.db */
	char *listen;		/* fluxkv-master's; "127.0.0.1:7450" */
	char *cluster_key_file; /* NULL: none */
	char *data_listen;	/* NULL: 0.0.0.0:0, without a key 127.0.0.1:0 */
	char *data_address;	/* the host that others are told; NULL: the one the master is reached from */
	char *control_socket;	/* NULL: config_control_path() says <run_dir>/<instance_key>/control */
	uint64_t control_mode;	/* 0600 */

	bool auto_namespace;	   /* true */
	uint64_t block_size;	   /* 64 MiB; of namespaces made without one */
	uint64_t negative_timeout; /* 100 ms */
	uint64_t entry_timeout;	   /* 1 h; changes are pushed to the kernel */
	uint64_t fuse_threads;	   /* 0: as many as CPUs and two more, 16 at most */
	uint64_t passthrough;	   /* enum config_try; auto */
	uint64_t passthrough_max;  /* 64 MiB; what an open brings into memory for it */
	bool allow_other;	   /* false */
	bool read_only;		   /* -o ro */
	bool no_exec;		   /* -o noexec */

	bool ssd_direct;	  /* true */
	uint64_t ssd_retry;	  /* 30 s: when a failed device is tried again */
	uint64_t ssd_io_depth;	  /* 128 */
	uint64_t ssd_shards;	  /* 4 */
	uint64_t persist_backlog; /* bytes of dirty blocks; default 0: a quarter of dram */
	uint64_t staging_size;	  /* 64 MiB; bytes of the SSD tier that are on their way to other nodes */
	uint64_t put_deadline;	  /* 60 s; 5 s at least */
	uint64_t leg_deadline;	  /* 5 s: a remote or SSD leg of a get */
	uint64_t log_level;	  /* enum log_level; info */
};

/* Fills in the defaults. 0 or -ENOMEM, and then nothing is to be freed. */
int config_init(struct config *c);
/* Frees what c owns and leaves it zeroed. Takes NULL and a zeroed struct. */
void config_done(struct config *c);

/*
 * Reads YAML text over what c holds. name is for messages ("fluxkv.yaml"). On an error c is unchanged and *e holds
 * the one line. Pure: no file is opened.
 */
int config_parse(const char *buf, size_t len, const char *name, struct config *c, struct errmsg *e);
/* Reads a regular file (at most 64 KiB) and parses it. Never waits for what is no file. */
int config_load(const char *path, struct config *c, struct errmsg *e);
/*
 * Takes one -o list ("dram=2GB,ssd=/data/a:4GB,ro"); a backslash keeps the character behind it from meaning anything.
 * A key is its YAML name, whole or its last part, or one of dram, ssd, instance, cluster. May be called several times:
 * later wins, but each ssd=PATH:SIZE adds one to a list that takes the place of the file's. What mount(8) passes on and
 * means nothing here (defaults, _netdev, x-..., user=, nosuid and nodev, which always hold, ...) is accepted. On an
 * error c is unchanged.
 */
int config_options(const char *list, struct config *c, struct errmsg *e);
/* One key by its whole name. On an error c is unchanged, and *e says what is wrong with the text. */
int config_set(struct config *c, const char *key, const char *text, struct errmsg *e);
/* What only the whole can tell: a socket path that is too long. After file and options. */
int config_check(const struct config *c, struct errmsg *e);

/* The result is malloc'ed; NULL: no memory. */
char *config_catalog_path(const struct config *c);
char *config_control_path(const struct config *c);

/* All effective values as YAML that config_parse() reads back; for .fluxkv/config. malloc'ed; NULL: no memory. */
char *config_dump(const struct config *c);

/*
 * Compares for a reload. ret_live and ret_restart get the names of the changed keys, separated by ", ", malloc'ed,
 * never NULL: those that config_apply_live() takes over, and those that wait for a restart. 0 or -ENOMEM.
 */
int config_reloadable_diff(const struct config *old, const struct config *new, char **ret_live, char **ret_restart);
/* Copies the live keys of new into c. Call with whatever guards c held. */
void config_apply_live(struct config *c, const struct config *new);

#endif
