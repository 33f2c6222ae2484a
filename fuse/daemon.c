/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start: places and lock → master → node → mount → control socket → READY. The end goes the other way. Every step
 * that fails undoes the ones before it, so nothing is left of a daemon that could not serve.
 */
#include "fuse/daemon.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/places.h"
#include "common/signals.h"
#include "common/size.h"
#include "fuse/check.h"
#include "fuse/ctl.h"
#include "fuse/fs.h"
#include "fuse/mountpoint.h"
#include "fuse/pidfile.h"
#include "fuse/report.h"
#include "master/local.h"
#include "net/addr.h"
#include "net/rpc_client.h"
#include "net/status.h"
#include "store/node.h"

#define LOCK_TRIES 4

struct daemon {
	const struct daemon_args *args;
	struct ready *ready;
	pthread_mutex_t lock;
	struct config cfg; /* lock, once threads run: a reload changes what can be changed */
	char *mountpoint, *dir, *log_path, *catalogue, *control;
	char *data_listen, *data_host; /* of a cluster's node; NULL: standalone */
	struct places places;
	struct pidfile *pidfile;
	struct local_master *master; /* standalone, */
	struct rpc_client *rpc;	     /* or the way to one elsewhere */
	struct node *node;
	pthread_mutex_t attach_lock;
	struct node *attached; /* attach_lock: who is told that the master waits for it */
	bool unattached;       /* attach_lock: it was to be told, and was not there yet */
	struct fs *fs;
	struct ctl *ctl;
	struct signals *signals;
	struct report report;
};

int daemon_configure(const struct daemon_args *args, struct config *ret, struct errmsg *e)
{
	struct config cfg;
	int r;

	r = config_init(&cfg);
	if (r)
		errmsg_set(e, r, "out of memory");
	if (!r && args->config_file)
		r = config_load(args->config_file, &cfg, e);
	for (size_t i = 0; !r && i < args->n_options; i++)
		r = config_options(args->options[i], &cfg, e);
	if (!r)
		r = config_check(&cfg, e);
	if (r) {
		config_done(&cfg);
		return r;
	}
	*ret = cfg;
	return 0;
}

bool daemon_is_standalone(const char *source)
{
	return !strcmp(source, "standalone");
}

/* ---- before anything is started ----------------------------------------------------------------------------- */

static int name_places(struct daemon *d, struct errmsg *e)
{
	const struct config *c = &d->cfg;

	if (asprintf(&d->dir, "%s/%s", c->run_dir, c->instance_key) < 0)
		d->dir = NULL;
	if (!d->dir || asprintf(&d->log_path, "%s/fluxkvd.log", d->dir) < 0)
		d->log_path = NULL;
	d->catalogue = config_catalog_path(c);
	d->control = config_control_path(c);
	if (!d->log_path || !d->catalogue || !d->control)
		return errmsg_set(e, -ENOMEM, "out of memory");
	return 0;
}

/* A daemon that leaves removes the directory, perhaps under our feet. */
static int lock_instance(struct daemon *d, struct errmsg *e)
{
	int r = -ENOENT;

	for (int i = 0; i < LOCK_TRIES && r == -ENOENT; i++) {
		r = places_mkdir(&d->places, d->dir, 0700, e);
		if (!r)
			r = pidfile_lock(d->dir, d->cfg.instance_key, &d->pidfile, e);
	}
	return r;
}

/* The person is told through the pipe. */
static int open_log(struct daemon *d, struct errmsg *e)
{
	return d->ready->background ? log_open(d->log_path, e) : 0;
}

static int prepare(struct daemon *d, struct errmsg *e)
{
	unsigned cleared = 0;
	int r;

	r = mountpoint_resolve(d->args->mountpoint, &d->mountpoint, e);
	/* From here on every path is absolute. A daemon must not keep a file system from being unmounted. */
	if (!r && d->ready->background && chdir("/"))
		r = errmsg_set(e, -errno, "/: %s", strerror(errno));
	if (!r)
		r = name_places(d, e);
	if (!r)
		r = check_descriptors(&d->cfg, e);
	if (!r)
		r = lock_instance(d, e);
	if (!r && d->ready->background)
		r = places_expect(&d->places, d->log_path, e);
	if (!r)
		r = open_log(d, e);
	if (!r)
		r = check_fuse_device(e);
	if (!r)
		r = mountpoint_prepare(d->mountpoint, &cleared, e);
	if (!r && cleared)
		log_warn("%s: unmounted what a fluxkvd that died had left there", d->mountpoint);
	return r;
}

/* ---- the parts ---------------------------------------------------------------------------------------------- */

/* The catalogue and what SQLite puts beside it, to be removed if they are new and the start fails. */
static int expect_catalogue(struct daemon *d, struct errmsg *e)
{
	static const char *const suffixes[] = {"", "-wal", "-shm"};
	char *dir = strdup(d->catalogue), *slash, *path;
	int r;

	slash = dir ? strrchr(dir, '/') : NULL;
	if (!slash) {
		free(dir);
		return errmsg_set(e, -EINVAL, "catalogue %s: the path must be absolute", d->catalogue);
	}
	*slash = '\0';
	r = places_mkdir(&d->places, *dir ? dir : "/", 0700, e);
	free(dir);
	for (size_t i = 0; !r && i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		if (asprintf(&path, "%s%s", d->catalogue, suffixes[i]) < 0)
			return errmsg_set(e, -ENOMEM, "out of memory");
		r = places_expect(&d->places, path, e);
		free(path);
	}
	return r;
}

#define MASTER_WAIT_MS 30000
#define REQUEST_MS 15000 /* an open waits no longer for a master that is away */

/* In one line, for a person who has just typed the address. */
static int no_master(const struct daemon *d, int err, struct errmsg *e)
{
	const char *source = d->args->source;

	switch (err) {
	case -EACCES:
		return errmsg_set(e, err, "%s: the master has another cluster key (cluster_key_file)", source);
	case -EPROTO:
		return errmsg_set(e, err, "%s: that is no fluxkv-master, or of another version", source);
	case -EHOSTUNREACH:
		return errmsg_set(e, err, "%s: the host is not known, or not reached", source);
	default:
		return errmsg_set(e, err, "%s: no master answers there: %s", source, strerror(-err));
	}
}

/* A wildcard is no address that others could be told. */
static int set_data_host(struct daemon *d, const char *local, struct errmsg *e)
{
	const struct config *c = &d->cfg;
	const char *listen = c->data_listen;
	struct addr at;
	int r;

	d->data_listen = strdup(listen ? listen : c->cluster_key_file ? "0.0.0.0:0" : "127.0.0.1:0");
	if (!d->data_listen)
		return errmsg_set(e, -ENOMEM, "out of memory");
	r = addr_parse(d->data_listen, &at, e);
	if (r < 0)
		return r;
	if (c->data_address)
		d->data_host = strdup(c->data_address);
	else
		d->data_host = strdup(!strcmp(at.host, "0.0.0.0") || !strcmp(at.host, "::") ? local : at.host);
	return d->data_host ? 0 : errmsg_set(e, -ENOMEM, "out of memory");
}

/* On the channel's thread. */
static void on_unattached(void *arg)
{
	struct daemon *d = arg;

	pthread_mutex_lock(&d->attach_lock);
	if (d->attached)
		node_unattached(d->attached);
	else
		d->unattached = true;
	pthread_mutex_unlock(&d->attach_lock);
}

static void attach(struct daemon *d, struct node *node)
{
	pthread_mutex_lock(&d->attach_lock);
	d->attached = node;
	if (node && d->unattached)
		node_unattached(node);
	d->unattached = false;
	pthread_mutex_unlock(&d->attach_lock);
}

/* Whoever starts a node and its master at once must not have to do it in an order. */
static int find_master(struct daemon *d, struct errmsg *e)
{
	const struct rpc_client_config cfg = {
	    .master = d->args->source,
	    .key_file = d->cfg.cluster_key_file,
	    .timeout_ms = REQUEST_MS,
	    .unattached = on_unattached,
	    .arg = d,
	};
	char local[64];
	int r = rpc_client_start(&cfg, &d->rpc, e);

	if (r < 0)
		return r;
	r = rpc_client_wait_up(d->rpc, MASTER_WAIT_MS, local, sizeof(local));
	return r < 0 ? no_master(d, r, e) : set_data_host(d, local, e);
}

static int start_master(struct daemon *d, struct errmsg *e)
{
	struct local_master_config cfg = {
	    .catalogue = d->catalogue,
	    .auto_namespace = d->cfg.auto_namespace,
	    .default_block_size = d->cfg.block_size,
	    .put_deadline_ns = d->cfg.put_deadline * NS_PER_MS,
	    .root_mode = S_IFDIR | 0755,
	    .root_uid = geteuid(),
	    .root_gid = getegid(),
	};
	int r;

	r = expect_catalogue(d, e);
	return r ? r : local_master_start(&cfg, &d->master, e);
}

/* Such values would stay in memory alone, and nobody would know why. */
static void warn_of_blocks(const struct daemon *d)
{
	uint64_t most = node_ssd_max_block(d->node);
	char has[24], takes[24];

	if (d->cfg.block_size <= most)
		return;
	log_warn(
	    "the SSD tier takes blocks of at most %s (a device's size divided by ssd_shards), and block_size is %s: "
	    "values of more than the one stay in memory alone; lower block_size",
	    size_format(most, takes, sizeof(takes)), size_format(d->cfg.block_size, has, sizeof(has)));
}

static int start_node(struct daemon *d, struct errmsg *e)
{
	const struct config *c = &d->cfg;
	size_t n = c->ssd_enabled ? c->n_ssd : 0;
	const char **paths = calloc(n + 1, sizeof(*paths));
	uint64_t *limits = calloc(n + 1, sizeof(*limits));
	struct node_config cfg = {
	    .master = d->master ? local_master_channel(d->master) : rpc_client_channel(d->rpc),
	    .instance_key = c->instance_key,
	    .cluster_name = c->cluster_name,
	    .run_dir = c->run_dir,
	    .dram = c->dram,
	    .ssd_paths = paths,
	    .ssd_limits = limits,
	    .n_ssd = n,
	    .ssd_direct = c->ssd_direct,
	    .ssd_io_depth = (unsigned)c->ssd_io_depth,
	    .ssd_shards = (unsigned)c->ssd_shards,
	    .ssd_retry_seconds = (unsigned)(c->ssd_retry / 1000),
	    .persist_backlog = c->persist_backlog,
	    .put_deadline_ms = c->put_deadline,
	    .leg_deadline_ms = c->leg_deadline,
	    .data_listen = d->data_listen,
	    .data_host = d->data_host,
	    .key_file = c->cluster_key_file,
	    .staging = c->staging_size,
	};
	int r;

	for (size_t i = 0; paths && limits && i < n; i++) {
		paths[i] = c->ssd[i].path;
		limits[i] = c->ssd[i].limit;
	}
	r = paths && limits ? node_start(&cfg, &d->node, e) : errmsg_set(e, -ENOMEM, "out of memory");
	if (r == 0 && d->rpc)
		attach(d, d->node);
	if (r == 0)
		warn_of_blocks(d);
	free(limits);
	free(paths);
	return r;
}

static int take_text(char *text, char **ret, size_t *ret_len)
{
	if (!text)
		return -ENOMEM;
	*ret = text;
	*ret_len = strlen(text);
	return 0;
}

static char *text_of_status(struct daemon *d)
{
	json_t *status = report_status(&d->report);
	char *text = status ? status_text(status) : NULL;

	json_decref(status);
	return text;
}

static char *text_of_config(struct daemon *d)
{
	char *text;

	pthread_mutex_lock(&d->lock);
	text = config_dump(&d->cfg);
	pthread_mutex_unlock(&d->lock);
	return text;
}

static int virtual_text(void *arg, enum fs_virtual which, char **ret, size_t *ret_len)
{
	struct daemon *d = arg;

	switch (which) {
	case FS_VIRTUAL_STATUS:
		return take_text(text_of_status(d), ret, ret_len);
	case FS_VIRTUAL_METRICS:
		return take_text(report_metrics(&d->report), ret, ret_len);
	case FS_VIRTUAL_CONFIG:
		return take_text(text_of_config(d), ret, ret_len);
	case FS_VIRTUAL_VERSION:
		return take_text(strdup(PACKAGE_VERSION "\n"), ret, ret_len);
	default:
		return -ENOENT;
	}
}

static int start_fs(struct daemon *d, struct errmsg *e)
{
	static const enum fs_passthrough passthrough[] = {
	    [CONFIG_TRY_AUTO] = FS_PASSTHROUGH_AUTO,
	    [CONFIG_TRY_ON] = FS_PASSTHROUGH_ON,
	    [CONFIG_TRY_OFF] = FS_PASSTHROUGH_OFF,
	};
	struct node_stats stats;
	struct fs_config cfg = {
	    .node = d->node,
	    .mountpoint = d->mountpoint,
	    .source = d->args->source,
	    .instance_key = d->cfg.instance_key,
	    .options = d->cfg.no_exec ? "nosuid,nodev,noexec" : "nosuid,nodev",
	    .allow_other = d->cfg.allow_other,
	    .ro = d->cfg.read_only,
	    .negative_timeout = (double)d->cfg.negative_timeout / 1000,
	    .entry_timeout = (double)d->cfg.entry_timeout / 1000,
	    .attr_timeout = (double)d->cfg.entry_timeout / 1000,
	    .passthrough = passthrough[d->cfg.passthrough],
	    .passthrough_max = d->cfg.passthrough_max,
	    .threads = (unsigned)d->cfg.fuse_threads,
	    .text = virtual_text,
	    .text_arg = d,
	};

	/* Of what there is: less than was configured where programs still map what an earlier daemon had. */
	node_get_stats(d->node, &stats);
	cfg.passthrough_hold = stats.dram_capacity / 2;
	return fs_mount(&cfg, &d->fs, e);
}

static json_t *ctl_hello(void *arg)
{
	return report_hello(arg);
}

static json_t *ctl_status(void *arg)
{
	return report_status(arg);
}

static void ctl_name_changed(void *arg, uint64_t dir, const char *name, uint64_t removed)
{
	struct report *r = arg;

	fs_forget_name(atomic_load(&r->fs), dir, name, removed);
}

/*
 * Whom control_mode lets connect must get through to the socket. The directory is 0700 when the segment has been
 * opened, and cannot be listed by others then either; what else is in it is the daemon's user's, and for the log its
 * group's.
 */
static int let_in(struct daemon *d, struct errmsg *e)
{
	mode_t mode = 0700;

	if (d->cfg.control_socket)
		return 0;
	if (d->cfg.control_mode & 0070)
		mode |= 0010;
	if (d->cfg.control_mode & 0007)
		mode |= 0001;
	return chmod(d->dir, mode) ? errmsg_set(e, -errno, "%s: %s", d->dir, strerror(errno)) : 0;
}

static int start_ctl(struct daemon *d, struct errmsg *e)
{
	struct ctl_config cfg = {
	    .path = d->control,
	    .mode = d->cfg.control_mode,
	    .node = d->node,
	    .hello = ctl_hello,
	    .status = ctl_status,
	    .name_changed = ctl_name_changed,
	    .arg = &d->report,
	};
	int r = let_in(d, e);

	return r ? r : ctl_start(&cfg, &d->ctl, e);
}

static void fill_report(struct daemon *d)
{
	d->report = (struct report){
	    .instance = d->cfg.instance_key,
	    .cluster = d->cfg.cluster_name,
	    .source = d->args->source,
	    .mountpoint = d->mountpoint,
	    .started = clock_ns(),
	    .node = d->node,
	    .master = d->master,
	    .rpc = d->rpc,
	};
}

/* ---- signals ------------------------------------------------------------------------------------------------ */

static void on_stop(void *arg, int sig)
{
	struct daemon *d = arg;

	log_info("signal %d: stopping", sig);
	pidfile_ends(d->pidfile);
	sd_notify(0, "STOPPING=1\nSTATUS=finishing what runs");
	fs_exit(d->fs);
}

static void reopen_log(struct daemon *d)
{
	struct errmsg e;

	if (open_log(d, &e))
		log_warn("reload: %s, going on with the old log", e.text);
}

static void take_over(struct daemon *d, const struct config *new)
{
	char *live, *restart;

	pthread_mutex_lock(&d->lock);
	if (config_reloadable_diff(&d->cfg, new, &live, &restart)) {
		pthread_mutex_unlock(&d->lock);
		log_warn("reload: out of memory, nothing is changed");
		return;
	}
	config_apply_live(&d->cfg, new);
	log_set_level(d->cfg.log_level);
	pthread_mutex_unlock(&d->lock);
	if (*live)
		log_info("reload: %s changed", live);
	if (*restart)
		log_warn("reload: %s changed in the configuration; that takes effect at the next start", restart);
	if (!*live && !*restart)
		log_info("reload: nothing changed");
	free(live);
	free(restart);
}

static void on_reload(void *arg)
{
	struct daemon *d = arg;
	struct config new;
	struct errmsg e;

	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(clock_ns() / 1000));
	reopen_log(d);
	if (daemon_configure(d->args, &new, &e)) {
		log_warn("reload: %s; going on with the old configuration", e.text);
	} else {
		take_over(d, &new);
		config_done(&new);
	}
	sd_notify(0, "READY=1");
}

/* ---- start and end ------------------------------------------------------------------------------------------ */

static int start(struct daemon *d, struct errmsg *e)
{
	int r;

	r = prepare(d, e);
	if (!r)
		r = daemon_is_standalone(d->args->source) ? start_master(d, e) : find_master(d, e);
	if (!r)
		r = start_node(d, e);
	if (r)
		return r;
	fill_report(d);
	r = start_fs(d, e);
	if (r)
		return r;
	atomic_store(&d->report.fs, d->fs);
	r = start_ctl(d, e);
	if (!r)
		r = pidfile_serves(d->pidfile, fs_device(d->fs), d->mountpoint, e);
	if (!r)
		r = signals_start(on_stop, on_reload, d, &d->signals, e);
	return r;
}

static void stop(struct daemon *d)
{
	d->signals = signals_stop(d->signals);
	d->ctl = ctl_stop(d->ctl);
	d->fs = fs_unmount(d->fs);
	attach(d, NULL);
	if (d->node)
		d->node = node_stop(d->node);
	d->master = local_master_stop(d->master);
	d->rpc = rpc_client_stop(d->rpc);
}

static void release(struct daemon *d)
{
	d->pidfile = pidfile_unlock(d->pidfile);
	/* Empty unless there is a log. */
	if (d->dir)
		rmdir(d->dir);
	places_keep(&d->places);
	free(d->mountpoint);
	free(d->dir);
	free(d->log_path);
	free(d->catalogue);
	free(d->control);
	free(d->data_listen);
	free(d->data_host);
	config_done(&d->cfg);
	pthread_mutex_destroy(&d->attach_lock);
	pthread_mutex_destroy(&d->lock);
}

static void serve(struct daemon *d, int *ret_status)
{
	char status[512];
	int r;

	log_set_level(d->cfg.log_level);
	snprintf(status, sizeof(status), "serving %s as instance %s", d->mountpoint, d->cfg.instance_key);
	log_info("fluxkvd %s: %s", PACKAGE_VERSION, status);
	ready_serving(d->ready, status);
	r = fs_loop(d->fs);
	pidfile_ends(d->pidfile);
	sd_notify(0, "STOPPING=1");
	if (r)
		log_error("%s: serving failed: %s", d->mountpoint, strerror(-r));
	*ret_status = r ? DAEMON_CANNOT_SERVE : DAEMON_OK;
}

/*
 * Whoever forces a busy mount off (umount -f), or aborts its connection, cuts the daemon off and leaves a mount that
 * answers nothing but errors. That is no end that was asked for: who watches over the daemon is to start it again.
 */
static void clear_cut_off(const struct daemon *d, int *ret_status)
{
	unsigned cleared = 0;
	struct errmsg e;

	if (mountpoint_clear_stale(d->mountpoint, &cleared, &e))
		log_warn("%s", e.text);
	if (!cleared)
		return;
	log_error("%s: the kernel has cut the connection (umount -f, or an abort): unmounted", d->mountpoint);
	*ret_status = DAEMON_CANNOT_SERVE;
}

int daemon_run(const struct daemon_args *args, struct config *cfg, struct ready *ready)
{
	struct daemon d = {
	    .args = args,
	    .ready = ready,
	    .cfg = *cfg,
	    .lock = PTHREAD_MUTEX_INITIALIZER,
	    .attach_lock = PTHREAD_MUTEX_INITIALIZER,
	};
	struct errmsg e = {.text = ""};
	int status;

	*cfg = (struct config){0};
	signals_block();
	/* A start that fails says one line; what led to it is worth a line only when it is a warning. */
	log_setup(d.cfg.log_level < LOG_LVL_WARN ? d.cfg.log_level : LOG_LVL_WARN, log_is_journal());
	if (start(&d, &e)) {
		stop(&d);
		d.pidfile = pidfile_unlock(d.pidfile);
		places_undo(&d.places);
		status = ready_failed(ready, DAEMON_CANNOT_SERVE, e.text);
	} else {
		serve(&d, &status);
		stop(&d);
		clear_cut_off(&d, &status);
		log_info("fluxkvd has stopped");
	}
	release(&d);
	return status;
}
