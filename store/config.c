/* SPDX-License-Identifier: Apache-2.0 */
#include "store/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "store/config_keys.h"
#include "store/staging.h"

/* Of what libyaml takes more time for than in proportion (directives, anchors), this much is read in a moment. */
#define FILE_MAX (64 << 10)

static char *host_name(void)
{
	char name[256];

	if (gethostname(name, sizeof(name)) < 0 || !*name)
		return strdup("localhost");
	name[sizeof(name) - 1] = '\0';
	return strdup(name);
}

int config_init(struct config *c)
{
	*c = (struct config){
	    .instance_key = host_name(),
	    .cluster_name = strdup("fluxkv"),
	    .dram = UINT64_C(1) << 30,
	    .run_dir = strdup(RUNSTATEDIR "/fluxkv"),
	    .state_dir = strdup(LOCALSTATEDIR "/fluxkv"),
	    .listen = strdup(CONFIG_LISTEN),
	    .control_mode = 0600,
	    .auto_namespace = true,
	    .block_size = UINT64_C(64) << 20,
	    .passthrough_max = UINT64_C(64) << 20,
	    .negative_timeout = 100,
	    .entry_timeout = 3600 * 1000,
	    .ssd_direct = true,
	    .ssd_retry = 30 * 1000,
	    .ssd_io_depth = 128,
	    .ssd_shards = 4,
	    .staging_size = STAGING_BOUND_DEFAULT,
	    .put_deadline = 60 * 1000,
	    .leg_deadline = 5 * 1000,
	    .log_level = LOG_LVL_INFO,
	};
	if (c->instance_key && c->cluster_name && c->run_dir && c->state_dir && c->listen)
		return 0;
	config_done(c);
	return -ENOMEM;
}

void config_ssd_free(struct config *c)
{
	for (size_t i = 0; i < c->n_ssd; i++)
		free(c->ssd[i].path);
	free(c->ssd);
	c->ssd = NULL;
	c->n_ssd = 0;
}

void config_done(struct config *c)
{
	if (!c)
		return;
	free(c->instance_key);
	free(c->cluster_name);
	free(c->run_dir);
	free(c->state_dir);
	free(c->catalog);
	free(c->listen);
	free(c->cluster_key_file);
	free(c->data_listen);
	free(c->data_address);
	free(c->control_socket);
	config_ssd_free(c);
	*c = (struct config){0};
}

int config_ssd_add(struct config *c, const char *path, uint64_t limit, struct errmsg *e)
{
	struct config_ssd *grown;
	char *copy;

	if (c->n_ssd == CONFIG_SSD_MAX)
		return errmsg_set(e, -E2BIG, "more than %d SSD paths", CONFIG_SSD_MAX);
	grown = realloc(c->ssd, (c->n_ssd + 1) * sizeof(*grown));
	if (grown)
		c->ssd = grown;
	copy = grown ? strdup(path) : NULL;
	if (!copy)
		return errmsg_set(e, -ENOMEM, "no memory");
	c->ssd[c->n_ssd++] = (struct config_ssd){copy, limit};
	return 0;
}

int config_dup(const struct config *src, struct config *ret)
{
	struct config c = {
	    .ssd_enabled = src->ssd_enabled,
	    .ssd_from_option = src->ssd_from_option,
	    .read_only = src->read_only,
	    .no_exec = src->no_exec,
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < config_n_keys; i++)
		r = config_key_copy(&c, src, &config_keys[i]);
	for (size_t i = 0; r == 0 && i < src->n_ssd; i++)
		r = config_ssd_add(&c, src->ssd[i].path, src->ssd[i].limit, NULL);
	if (r < 0)
		config_done(&c);
	else
		*ret = c;
	return r;
}

/*
 * A pipe or a device may have nothing to give and keep us waiting for ever, and has nothing any more when a reload
 * reads it again. Looked at before it is opened, for a device may do something at that, and after it, for the name may
 * have come to mean another.
 */
static int open_regular(const char *path, int *ret_fd, struct errmsg *e)
{
	struct stat st;
	int fd = -1, r = stat(path, &st) < 0 ? -errno : 0;

	if (r == 0 && S_ISREG(st.st_mode)) {
		fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		r = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
	}
	if (r < 0)
		errmsg_set(e, r, "%s: %s", path, strerror(-r));
	else if (S_ISDIR(st.st_mode))
		r = errmsg_set(e, -EISDIR, "%s: is a directory; a configuration is a file", path);
	else if (!S_ISREG(st.st_mode))
		r = errmsg_set(e, -EINVAL, "%s: is a pipe, a socket or a device; a configuration is a regular file",
			       path);
	if (r == 0)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return r;
}

/* A file may grow while it is read: what counts is what arrives. */
static int read_all(int fd, char *buf, size_t room, size_t *ret_len)
{
	size_t len = 0;
	ssize_t n;

	while (len < room && (n = read(fd, buf + len, room - len)) != 0) {
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			len += (size_t)n;
	}
	*ret_len = len;
	return 0;
}

int config_load(const char *path, struct config *c, struct errmsg *e)
{
	char *buf = NULL;
	size_t len = 0;
	int fd = -1, r = open_regular(path, &fd, e);

	if (r < 0)
		return r;
	buf = malloc(FILE_MAX + 1);
	r = buf ? read_all(fd, buf, FILE_MAX + 1, &len) : -ENOMEM;
	close(fd);
	if (r < 0)
		errmsg_set(e, r, "%s: %s", path, strerror(-r));
	else if (len > FILE_MAX)
		r = errmsg_set(e, -EFBIG, "%s: larger than %d KiB, which no configuration is", path, FILE_MAX >> 10);
	else
		r = config_parse(buf, len, path, c, e);
	free(buf);
	return r;
}

int config_set(struct config *c, const char *key, const char *text, struct errmsg *e)
{
	return config_key_set(c, config_key_find(key), text, e);
}

char *config_catalog_path(const struct config *c)
{
	char *path;

	if (c->catalog)
		return strdup(c->catalog);
	return asprintf(&path, "%s/%s/catalogue.db", c->state_dir, c->instance_key) < 0 ? NULL : path;
}

char *config_control_path(const struct config *c)
{
	char *path;

	if (c->control_socket)
		return strdup(c->control_socket);
	return asprintf(&path, "%s/%s/control", c->run_dir, c->instance_key) < 0 ? NULL : path;
}

int config_check(const struct config *c, struct errmsg *e)
{
	char *path;
	int r = 0;

	path = config_control_path(c);
	if (!path)
		return errmsg_set(e, -ENOMEM, "no memory");
	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		r = errmsg_set(e, -ENAMETOOLONG, "control_socket %s: %zu characters, a socket's path has at most %zu",
			       path, strlen(path), sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
	free(path);
	return r;
}

static void dump_ssd(const struct config *c, FILE *f)
{
	fputs("  " CONFIG_PATHS ": [", f);
	for (size_t i = 0; i < c->n_ssd; i++) {
		fputs(i ? ", " : "", f);
		config_print_string(c->ssd[i].path, f);
	}
	fputs("]\n  " CONFIG_LIMITS ": ", f);
	if (!c->ssd_enabled) {
		fputs("null\n", f);
		return;
	}
	for (size_t i = 0; i < c->n_ssd; i++)
		fprintf(f, "%s%" PRIu64, i ? ", " : "[", c->ssd[i].limit);
	fputs("]\n", f);
}

/* The node's keys of one group together, in the order of the table; group NULL: those of none. */
static void dump_group(const struct config *c, const char *group, FILE *f)
{
	if (group)
		fprintf(f, "%s:\n", group);
	for (size_t i = 0; i < config_n_keys; i++) {
		const struct config_key *key = &config_keys[i];
		const char *last = config_key_last(key);
		size_t prefix = (size_t)(last - key->name);

		if (key->master)
			continue;
		if (group ? prefix != strlen(group) + 1 || strncmp(key->name, group, prefix - 1) : prefix != 0)
			continue;
		fprintf(f, "%s%s: ", group ? "  " : "", last);
		config_key_print(c, key, f);
		fputc('\n', f);
	}
}

/* Closes a memory stream; NULL when anything could not be written to it. */
static char *finish(FILE *f, char **text)
{
	bool failed = ferror(f);

	if (fclose(f) == 0 && !failed)
		return *text;
	free(*text);
	return NULL;
}

char *config_dump(const struct config *c)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	dump_group(c, NULL, f);
	dump_group(c, CONFIG_POOL, f);
	dump_group(c, CONFIG_SPEC, f);
	dump_ssd(c, f);
	return finish(f, &text);
}

static bool ssd_equal(const struct config *a, const struct config *b)
{
	if (a->n_ssd != b->n_ssd || a->ssd_enabled != b->ssd_enabled)
		return false;
	for (size_t i = 0; i < a->n_ssd; i++)
		if (strcmp(a->ssd[i].path, b->ssd[i].path) || a->ssd[i].limit != b->ssd[i].limit)
			return false;
	return true;
}

/* The names of the changed keys that are, or are not, live. */
static char *changed(const struct config *a, const struct config *b, bool live)
{
	const char *separator = "";
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	for (size_t i = 0; i < config_n_keys; i++)
		if (!config_keys[i].master && config_keys[i].live == live && !config_key_equal(a, b, &config_keys[i])) {
			fprintf(f, "%s%s", separator, config_keys[i].name);
			separator = ", ";
		}
	if (!live && !ssd_equal(a, b))
		fprintf(f, "%s" CONFIG_SPEC "." CONFIG_PATHS " or " CONFIG_LIMITS, separator);
	return finish(f, &text);
}

int config_reloadable_diff(const struct config *old, const struct config *new, char **ret_live, char **ret_restart)
{
	char *live = changed(old, new, true), *restart = changed(old, new, false);

	if (!live || !restart) {
		free(live);
		free(restart);
		return -ENOMEM;
	}
	*ret_live = live;
	*ret_restart = restart;
	return 0;
}

void config_apply_live(struct config *c, const struct config *new)
{
	/* No live key is a string, so nothing can fail here. */
	for (size_t i = 0; i < config_n_keys; i++)
		if (config_keys[i].live)
			config_key_copy(c, new, &config_keys[i]);
}
