/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start: places → pid file (in the background) → catalogue and listener → READY. The end goes the other way. Two
 * masters of one catalogue are kept apart by the lock on that, whatever their places.
 */
#include "masterd/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "common/clock.h"
#include "common/lockfile.h"
#include "common/log.h"
#include "common/places.h"
#include "common/signals.h"
#include "master/server.h"

#define CONNECTIONS_MAX 4096u
/* Descriptors beside the nodes' connections: the listener, strangers, the catalogue, the log. */
#define NOFILE_BASE 256u
#define NOFILE_MIN 288u

struct serve {
	const struct settings_args *args;
	struct settings *settings;
	struct ready *ready;
	struct places places;
	char *pid_path, *log_path; /* in the background */
	int pid_fd;		   /* has the lock; -1 */
	struct master_server *server;
	struct signals *signals;
	sem_t end;
};

/* ---- places -------------------------------------------------------------------------------------------------- */

static int busy_error(int fd, const char *path, struct errmsg *e)
{
	long pid = lockfile_pid(fd);

	if (pid)
		return errmsg_set(
		    e, -EBUSY,
		    "fluxkv-master is running already, as pid %ld (%s); stop it, or give this one another "
		    "run_dir",
		    pid, path);
	return errmsg_set(e, -EBUSY, "fluxkv-master is starting or running already (%s is locked)", path);
}

/* Nobody waits for another's lock here, but one that leaves may unlink the file between our open and our lock. */
static int lock_pid_file(const char *path, int *ret, struct errmsg *e)
{
	int fd, r;

	do {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return errmsg_set(e, -errno, "%s: %s", path, strerror(errno));
		r = flock(fd, LOCK_EX | LOCK_NB) ? -errno : 0;
		if (!r && lockfile_is_at(fd, path)) {
			*ret = fd;
			return 0;
		}
		if (r)
			r = r == -EWOULDBLOCK ? busy_error(fd, path, e)
					      : errmsg_set(e, r, "%s: cannot lock it: %s", path, strerror(-r));
		close(fd);
	} while (!r);
	return r;
}

static int take_pid_file(struct serve *s, struct errmsg *e)
{
	int r = lock_pid_file(s->pid_path, &s->pid_fd, e);

	if (!r) {
		r = lockfile_write_pid(s->pid_fd);
		if (r)
			errmsg_set(e, r, "%s: %s", s->pid_path, strerror(-r));
	}
	return r;
}

/* In the foreground whoever started it knows its pid and has its standard error. */
static int prepare_background(struct serve *s, struct errmsg *e)
{
	const char *dir = s->settings->cfg.run_dir;
	int r;

	if (asprintf(&s->pid_path, "%s/fluxkv-master.pid", dir) < 0)
		s->pid_path = NULL;
	if (asprintf(&s->log_path, "%s/fluxkv-master.log", dir) < 0)
		s->log_path = NULL;
	if (!s->pid_path || !s->log_path)
		return errmsg_set(e, -ENOMEM, "out of memory");
	r = chdir("/") ? errmsg_set(e, -errno, "/: %s", strerror(errno)) : 0;
	if (!r)
		r = places_mkdir(&s->places, dir, 0755, e);
	if (!r)
		r = take_pid_file(s, e);
	if (!r)
		r = places_expect(&s->places, s->log_path, e);
	return r ? r : log_open(s->log_path, e);
}

/*
 * The directory alone. The file itself stays when the start fails: by then it may be another master's, who came when
 * it was there and is the one that serves.
 */
static int make_catalogue_dir(struct serve *s, struct errmsg *e)
{
	char *dir = strdup(s->settings->catalogue), *slash;
	int r;

	if (!dir)
		return errmsg_set(e, -ENOMEM, "out of memory");
	slash = strrchr(dir, '/');
	slash[slash == dir] = '\0';
	r = places_mkdir(&s->places, dir, 0700, e);
	free(dir);
	return r;
}

/* As many connections as there may be descriptors for. */
static int bound_connections(uint32_t *ret, struct errmsg *e)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		return errmsg_set(e, -errno, "limit of open files: %s", strerror(errno));
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl))
		return errmsg_set(e, -errno, "limit of open files: %s", strerror(errno));
	if (rl.rlim_max < NOFILE_MIN)
		return errmsg_set(e, -EMFILE,
				  "at most %llu files may be open, and %u are needed at least; raise the hard limit "
				  "(ulimit -Hn, or LimitNOFILE= in the systemd unit)",
				  (unsigned long long)rl.rlim_max, NOFILE_MIN);
	*ret = rl.rlim_max - NOFILE_BASE < CONNECTIONS_MAX ? (uint32_t)(rl.rlim_max - NOFILE_BASE) : CONNECTIONS_MAX;
	return 0;
}

/* ---- signals ------------------------------------------------------------------------------------------------- */

static void on_stop(void *arg, int sig)
{
	struct serve *s = arg;

	log_info("signal %d: stopping", sig);
	sd_notify(0, "STOPPING=1\nSTATUS=writing the catalogue");
	sem_post(&s->end);
}

static void on_reload(void *arg)
{
	struct serve *s = arg;
	struct settings new;
	struct errmsg e;

	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(clock_ns() / 1000));
	if (s->log_path && log_open(s->log_path, &e))
		log_warn("reload: %s, going on with the old log", e.text);
	if (settings_read(s->args, &new, &e)) {
		log_warn("reload: %s; going on with the old configuration", e.text);
	} else {
		log_set_level(new.cfg.log_level);
		settings_done(&new);
		log_info("reload: log_level is taken over; what else has changed waits for the next start");
	}
	sd_notify(0, "READY=1");
}

/* ---- start and end ------------------------------------------------------------------------------------------- */

static int start_server(struct serve *s, struct errmsg *e)
{
	const struct config *c = &s->settings->cfg;
	struct master_server_config cfg = {
	    .master =
		{
		    .catalogue = s->settings->catalogue,
		    .auto_namespace = c->auto_namespace,
		    .default_block_size = c->block_size,
		    .put_deadline_ns = c->put_deadline * NS_PER_MS,
		    .root_mode = S_IFDIR | 0755,
		    .root_uid = geteuid(),
		    .root_gid = getegid(),
		},
	    .rpc = {.listen = c->listen, .key_file = c->cluster_key_file},
	};
	int r = bound_connections(&cfg.rpc.max_connections, e);

	return r ? r : master_server_start(&cfg, &s->server, e);
}

static int start(struct serve *s, struct errmsg *e)
{
	int r = s->ready->background ? prepare_background(s, e) : 0;

	if (!r)
		r = make_catalogue_dir(s, e);
	if (!r)
		r = start_server(s, e);
	return r ? r : signals_start(on_stop, on_reload, s, &s->signals, e);
}

static void stop(struct serve *s)
{
	s->signals = signals_stop(s->signals);
	s->server = master_server_stop(s->server);
	if (s->pid_fd >= 0) {
		unlink(s->pid_path);
		close(s->pid_fd);
	}
	s->pid_fd = -1;
}

static void serve(struct serve *s)
{
	const char *listen = s->settings->cfg.listen;
	char status[512];

	/* The port may have been left to the system. */
	snprintf(status, sizeof(status), "listening on %.*s:%u", (int)(strrchr(listen, ':') - listen), listen,
		 master_server_port(s->server));
	log_set_level(s->settings->cfg.log_level);
	log_info("fluxkv-master %s: %s, catalogue %s", PACKAGE_VERSION, status, s->settings->catalogue);
	ready_serving(s->ready, status);
	while (sem_wait(&s->end))
		;
}

int serve_run(const struct settings_args *args, struct settings *settings, struct ready *ready)
{
	struct serve s = {.args = args, .settings = settings, .ready = ready, .pid_fd = -1};
	struct errmsg e = {.text = ""};
	int status = SERVE_OK;

	signals_block();
	sem_init(&s.end, 0, 0);
	/* A start that fails says one line; what led to it is worth a line only when it is a warning. */
	log_setup(settings->cfg.log_level < LOG_LVL_WARN ? settings->cfg.log_level : LOG_LVL_WARN, log_is_journal());
	if (start(&s, &e)) {
		stop(&s);
		places_undo(&s.places);
		status = ready_failed(ready, SERVE_CANNOT, e.text);
	} else {
		serve(&s);
		stop(&s);
		places_keep(&s.places);
		log_info("fluxkv-master has stopped");
	}
	sem_destroy(&s.end);
	free(s.pid_path);
	free(s.log_path);
	settings_done(settings);
	return status;
}
