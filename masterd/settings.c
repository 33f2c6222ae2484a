/* SPDX-License-Identifier: Apache-2.0 */
#include "masterd/settings.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/addr.h"
#include "net/auth.h"

static int set_listen(const struct settings_args *args, struct config *c, struct errmsg *e)
{
	int r = args->listen ? config_set(c, "listen", args->listen, e) : 0;

	return r < 0 ? errmsg_prefix(e, r, "--listen") : 0;
}

/* A name on a command line is meant where the person is. */
static char *absolute(const char *path)
{
	char *here, *whole;

	if (*path == '/' || !*path)
		return strdup(path);
	here = getcwd(NULL, 0);
	if (!here || asprintf(&whole, "%s/%s", here, path) < 0)
		whole = NULL;
	free(here);
	return whole;
}

static int set_catalog(const struct settings_args *args, struct config *c, struct errmsg *e)
{
	char *path;
	int r;

	if (!args->catalog)
		return 0;
	path = absolute(args->catalog);
	if (!path)
		return errmsg_set(e, -errno, "--catalog %s: %s", args->catalog, strerror(errno));
	r = config_set(c, "catalog", path, e);
	free(path);
	return r < 0 ? errmsg_prefix(e, r, "--catalog") : 0;
}

/* Not where a standalone fluxkvd that reads the same file has its own. */
static int name_catalogue(struct settings *s, struct errmsg *e)
{
	if (s->cfg.catalog)
		s->catalogue = strdup(s->cfg.catalog);
	else if (asprintf(&s->catalogue, "%s/fluxkv-master/catalogue.db", s->cfg.state_dir) < 0)
		s->catalogue = NULL;
	return s->catalogue ? 0 : errmsg_set(e, -ENOMEM, "out of memory");
}

/* What the listener would refuse as well; but this is the configuration's fault, and known before anything is made. */
static int check_key(const struct config *c, struct errmsg *e)
{
	struct sockaddr_storage at;
	struct auth_key key;
	int r;

	if (c->cluster_key_file) {
		r = auth_key_load(c->cluster_key_file, &key, e);
		sodium_memzero(&key, sizeof(key));
		return r;
	}
	r = addr_parse_number(c->listen, &at, e);
	if (!r && !addr_is_loopback(&at))
		r = errmsg_set(e, -EPERM,
			       "listen %s: without cluster_key_file only the loopback may be listened on; make a key "
			       "(fluxkv-master(8)), or listen on 127.0.0.1",
			       c->listen);
	return r;
}

int settings_read(const struct settings_args *args, struct settings *ret, struct errmsg *e)
{
	struct settings s = {.catalogue = NULL};
	int r = config_init(&s.cfg);

	if (r)
		return errmsg_set(e, r, "out of memory");
	if (args->config_file)
		r = config_load(args->config_file, &s.cfg, e);
	if (!r)
		r = set_listen(args, &s.cfg, e);
	if (!r)
		r = set_catalog(args, &s.cfg, e);
	if (!r)
		r = name_catalogue(&s, e);
	if (!r)
		r = check_key(&s.cfg, e);
	if (r < 0) {
		settings_done(&s);
		return r;
	}
	*ret = s;
	return 0;
}

void settings_done(struct settings *s)
{
	config_done(&s->cfg);
	free(s->catalogue);
	*s = (struct settings){.catalogue = NULL};
}
