/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"

#define INIT_TIMEOUT_NS (10 * NS_PER_SEC)
#define DRAIN_NS (10 * NS_PER_SEC)
#define POLL_NS (20 * NS_PER_MS)
#define MAX_BACKGROUND 256u /* read-ahead requests in flight */
#define READ_AHEAD_KB "1024"

/* ---- the kernel's INIT -------------------------------------------------------------------------------------- */

bool fs_set_feature(struct fuse_conn_info *conn, uint64_t flag, bool on)
{
#if HAVE_DECL_FUSE_SET_FEATURE_FLAG
	if (on)
		return fuse_set_feature_flag(conn, flag);
	fuse_unset_feature_flag(conn, flag);
#else
	conn->want &= ~(unsigned)flag;
	if (on && !(conn->capable & (unsigned)flag))
		return false;
	if (on)
		conn->want |= (unsigned)flag;
#endif
	return true;
}

static void fs_op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = userdata;

	/* Copying through pipes and cached writes were slower, and writes must be with us when write(2) returns. */
	fs_set_feature(conn, FUSE_CAP_SPLICE_READ, false);
	fs_set_feature(conn, FUSE_CAP_SPLICE_WRITE, false);
	fs_set_feature(conn, FUSE_CAP_SPLICE_MOVE, false);
	fs_set_feature(conn, FUSE_CAP_WRITEBACK_CACHE, false);
	/* A version's pages are good for ever, whatever happens to its times. */
	fs_set_feature(conn, FUSE_CAP_AUTO_INVAL_DATA, false);
	/* The kernel clears the set-id bits, with a setattr, where it can. */
	fs_set_feature(conn, FUSE_CAP_HANDLE_KILLPRIV, false);
	fs_set_feature(conn, FUSE_CAP_ATOMIC_O_TRUNC, true);
	fs_set_feature(conn, FUSE_CAP_ASYNC_READ, true);
	fs_set_feature(conn, FUSE_CAP_PARALLEL_DIROPS, true);
	passthrough_init(fs, conn);
	if (conn->max_write > FS_IO_MAX || !conn->max_write)
		conn->max_write = FS_IO_MAX;
	conn->max_read = FS_IO_MAX;
	conn->max_readahead = FS_IO_MAX;
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = conn->max_background / 4 * 3;
	atomic_store(&fs->max_write, conn->max_write);
	atomic_store(&fs->init_come, true);
}

static const struct fuse_lowlevel_ops ops = {
    .init = fs_op_init,
    .lookup = fs_op_lookup,
    .forget = fs_op_forget,
    .forget_multi = fs_op_forget_multi,
    .getattr = fs_op_getattr,
    .setattr = fs_op_setattr,
    .statfs = fs_op_statfs,
    .mknod = fs_op_mknod,
    .mkdir = fs_op_mkdir,
    .unlink = fs_op_unlink,
    .rmdir = fs_op_rmdir,
    .symlink = fs_op_symlink,
    .rename = fs_op_rename,
    .link = fs_op_link,
    .create = fs_op_create,
#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_TMPFILE
    .tmpfile = fs_op_tmpfile,
#endif
    .open = fs_op_open,
    .release = fs_op_release,
    .read = fs_op_read,
    .write = fs_op_write,
    .flush = fs_op_flush,
    .fsync = fs_op_fsync,
    .fallocate = fs_op_fallocate,
    .opendir = fs_op_opendir,
    .readdir = fs_op_readdir,
    .readdirplus = fs_op_readdirplus,
    .releasedir = fs_op_releasedir,
    .fsyncdir = fs_op_fsyncdir,
    .setxattr = fs_op_setxattr,
    .getxattr = fs_op_getxattr,
    .listxattr = fs_op_listxattr,
    .removexattr = fs_op_removexattr,
};

/* ---- libfuse's messages ------------------------------------------------------------------------------------- */

static _Thread_local char last_message[256];

static void log_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[256];
	size_t n;

	vsnprintf(text, sizeof(text), fmt, ap);
	n = strlen(text);
	while (n && text[n - 1] == '\n')
		text[--n] = '\0';
	memcpy(last_message, text, sizeof(text));
	if (level >= FUSE_LOG_DEBUG)
		log_debug("libfuse: %s", text);
	else if (level >= FUSE_LOG_NOTICE)
		log_info("libfuse: %s", text);
	else
		log_warn("libfuse: %s", text);
}

static const char *libfuse_reason(void)
{
	return last_message[0] ? last_message : "no reason given";
}

/* ---- the parts of a struct fs ------------------------------------------------------------------------------- */

static char *copy_string(const char *s)
{
	return s ? strdup(s) : NULL;
}

static bool copy_config(struct fs *fs, const struct fs_config *cfg)
{
	fs->cfg = *cfg;
	fs->cfg.mountpoint = copy_string(cfg->mountpoint);
	fs->cfg.source = copy_string(cfg->source);
	fs->cfg.instance_key = copy_string(cfg->instance_key);
	fs->cfg.options = NULL; /* used by fs_mount() alone */
	fs->node = cfg->node;
	return fs->cfg.mountpoint && fs->cfg.source && (fs->cfg.instance_key || !cfg->instance_key);
}

static struct fs *fs_free(struct fs *fs)
{
	if (fs->se)
		fuse_session_destroy(fs->se);
	keeper_free(fs->keeper);
	retries_free(fs->retries);
	notify_free(fs->notify);
	inode_table_free(fs->inodes);
	passthrough_free(fs->passthrough);
	pthread_mutex_destroy(&fs->handles_lock);
	sem_destroy(&fs->wake);
	free((char *)fs->cfg.mountpoint);
	free((char *)fs->cfg.source);
	free((char *)fs->cfg.instance_key);
	free(fs);
	return NULL;
}

static struct fs *fs_new(const struct fs_config *cfg)
{
	struct fs *fs = calloc(1, sizeof(*fs));

	if (!fs)
		return NULL;
	pthread_mutex_init(&fs->handles_lock, NULL);
	list_init(&fs->handles);
	sem_init(&fs->wake, 0, 0);
	fs->start_ns = (uint64_t)clock_real_ns();
	fs->inodes = inode_table_new();
	fs->retries = retries_new();
	fs->passthrough = passthrough_new();
	if (!copy_config(fs, cfg) || !fs->inodes || !fs->retries || !fs->passthrough)
		return fs_free(fs);
	return fs;
}

/* ---- mounting ----------------------------------------------------------------------------------------------- */

/* "-o" and the mount options, as libfuse takes them. */
static int build_args(const struct fs_config *cfg, struct fuse_args *args)
{
	char *opts = NULL, fsname[320], max_read[32];
	int r;

	snprintf(fsname, sizeof(fsname), "fsname=%s", cfg->source);
	snprintf(max_read, sizeof(max_read), "max_read=%u", FS_IO_MAX);
	r = fuse_opt_add_opt(&opts, "subtype=fluxkv");
	if (!r)
		r = fuse_opt_add_opt_escaped(&opts, fsname);
	if (!r)
		r = fuse_opt_add_opt(&opts, "default_permissions");
	if (!r)
		r = fuse_opt_add_opt(&opts, max_read);
	if (!r && cfg->allow_other)
		r = fuse_opt_add_opt(&opts, "allow_other");
	if (!r && cfg->ro)
		r = fuse_opt_add_opt(&opts, "ro");
	if (!r && cfg->options && cfg->options[0])
		r = fuse_opt_add_opt(&opts, cfg->options);
	if (!r)
		r = fuse_opt_add_arg(args, "fluxkvd") || fuse_opt_add_arg(args, "-o") || fuse_opt_add_arg(args, opts);
	free(opts);
	return r ? -ENOMEM : 0;
}

static int session_new(struct fs *fs, const struct fs_config *cfg, struct errmsg *e)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int r;

	fuse_set_log_func(log_libfuse);
	last_message[0] = '\0';
	r = build_args(cfg, &args);
	if (!r) {
		fs->se = fuse_session_new(&args, &ops, sizeof(ops), fs);
		if (!fs->se)
			r = -EINVAL;
	}
	fuse_opt_free_args(&args);
	return r < 0 ? errmsg_set(e, r, "mount options are not accepted: %s", libfuse_reason()) : 0;
}

static int session_mount(struct fs *fs, struct errmsg *e)
{
	int r;

	errno = 0;
	if (!fuse_session_mount(fs->se, fs->cfg.mountpoint)) {
		fs->mounted = true;
		return 0;
	}
	r = errno ? -errno : -EPERM;
	return errmsg_set(e, r, "cannot mount on %s: %s", fs->cfg.mountpoint, libfuse_reason());
}

/* Keeper, notifiers and workers, none of which takes signals. */
static int start_threads(struct fs *fs, struct errmsg *e)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	fs->keeper = keeper_new(fs, e);
	fs->notify = fs->keeper ? notify_new(fs, e) : NULL;
	r = fs->notify ? workers_start(fs, e) : -EAGAIN;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

/* False when the time is over. */
static bool wait_wake(struct fs *fs, uint64_t until_ns)
{
	int64_t left = (int64_t)(until_ns - clock_ns()), at = clock_real_ns() + (left > 0 ? left : 0);
	struct timespec ts = {.tv_sec = at / (int64_t)NS_PER_SEC, .tv_nsec = at % (int64_t)NS_PER_SEC};

	while (sem_timedwait(&fs->wake, &ts) < 0)
		if (errno != EINTR)
			return false;
	return true;
}

static int wait_init(struct fs *fs, struct errmsg *e)
{
	uint64_t until = clock_ns() + INIT_TIMEOUT_NS;

	while (!atomic_load(&fs->init_done) && !atomic_load(&fs->ended))
		if (!wait_wake(fs, until))
			return errmsg_set(e, -ETIMEDOUT, "%s: the kernel does not talk to the mount",
					  fs->cfg.mountpoint);
	if (atomic_load(&fs->init_done))
		return 0;
	return errmsg_set(e, -ECONNABORTED, "%s: the mount ended at once: %s", fs->cfg.mountpoint, libfuse_reason());
}

/* Its number, and its read-ahead: the kernel's own is 128 KiB, and large reads are cut to requests of that size. */
static int know_device(struct fs *fs, struct errmsg *e)
{
	struct statx st;
	char path[96];
	int fd;

	/*
	 * No request of our own mount: a daemon that is killed while it waits for one would hang, as its device closes
	 * with its last thread.
	 */
	if (statx(AT_FDCWD, fs->cfg.mountpoint, AT_STATX_DONT_SYNC, 0, &st) < 0)
		return errmsg_set(e, -errno, "%s does not answer: %s", fs->cfg.mountpoint, strerror(errno));
	fs->device = makedev(st.stx_dev_major, st.stx_dev_minor);
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", st.stx_dev_major, st.stx_dev_minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, READ_AHEAD_KB, strlen(READ_AHEAD_KB)) < 0)
		log_warn("%s cannot be set to " READ_AHEAD_KB " (%s): reads come in small requests, ignoring", path,
			 strerror(errno));
	if (fd >= 0)
		close(fd);
	return 0;
}

static int root_inode(struct fs *fs)
{
	struct msg_attr root = {
	    .id = MSG_ROOT_DIR,
	    .kind = MSG_KIND_DIR,
	    .mode = S_IFDIR | 0755,
	    .nlink = 2,
	};
	struct inode *i = inode_know(fs->inodes, &root, NULL, 0, NULL);

	/* The lookup that was counted is the one the kernel has by mounting. */
	inode_unref(fs->inodes, i);
	return i ? 0 : -ENOMEM;
}

int fs_mount(const struct fs_config *cfg, struct fs **ret, struct errmsg *e)
{
	struct fs *fs = fs_new(cfg);
	int r;

	if (!fs || root_inode(fs) < 0) {
		if (fs)
			fs_free(fs);
		return errmsg_set(e, -ENOMEM, "out of memory");
	}
	r = session_new(fs, cfg, e);
	if (!r)
		r = session_mount(fs, e);
	if (!r)
		r = start_threads(fs, e);
	if (!r) {
		node_set_events(fs->node, &(struct node_events){.gone = notify_gone, .arg = fs});
		r = wait_init(fs, e);
	}
	if (!r)
		r = passthrough_start(fs, e);
	if (!r)
		r = know_device(fs, e);
	if (r < 0) {
		fs_unmount(fs);
		return r;
	}
	*ret = fs;
	return 0;
}

dev_t fs_device(const struct fs *fs)
{
	return fs->device;
}

/* ---- the end ------------------------------------------------------------------------------------------------ */

void fs_exit(struct fs *fs)
{
	atomic_store(&fs->exiting, true);
	sem_post(&fs->wake);
}

static bool busy(struct fs *fs)
{
	return atomic_load(&fs->writers) || atomic_load(&fs->count.in_flight);
}

static void tell_given_up(struct fs *fs)
{
	unsigned writers = atomic_load(&fs->writers);
	unsigned long long waiting = atomic_load(&fs->count.in_flight);

	if (writers)
		log_warn("%s: files are still open for writing (%u), what was written to them is given up",
			 fs->cfg.mountpoint, writers);
	if (waiting)
		log_warn("%s: requests still wait (%llu), they are answered with an error", fs->cfg.mountpoint,
			 waiting);
}

/* What is being written gets its time to be finished; readers are served meanwhile, and not waited for. */
static void drain(struct fs *fs)
{
	uint64_t until = clock_ns() + DRAIN_NS;

	atomic_store(&fs->draining, true);
	while (busy(fs) && !atomic_load(&fs->ended) && clock_ns() < until)
		wait_wake(fs, clock_ns() + POLL_NS);
	if (!atomic_load(&fs->ended))
		tell_given_up(fs);
}

int fs_loop(struct fs *fs)
{
	while (!atomic_load(&fs->ended) && !atomic_load(&fs->exiting))
		while (sem_wait(&fs->wake) < 0 && errno == EINTR)
			;
	if (!atomic_load(&fs->ended))
		drain(fs);
	return atomic_load(&fs->loop_error);
}

/* No worker starts an op any more: what has no answer waits and gets one, or is just being given it. */
static void wait_answers(struct fs *fs)
{
	while (atomic_load_explicit(&fs->count.answered, memory_order_acquire) != atomic_load(&fs->count.requests)) {
		if (fs->keeper)
			keeper_fail_all(fs->keeper, -ENOTCONN);
		usleep(100);
	}
}

/* The store ends each call within its deadline. */
static void wait_store(struct fs *fs)
{
	uint64_t warned = clock_ns();

	while (atomic_load_explicit(&fs->count.in_flight, memory_order_acquire)) {
		wait_wake(fs, clock_ns() + POLL_NS);
		if (clock_ns() - warned < DRAIN_NS)
			continue;
		warned = clock_ns();
		log_warn("%s: still waiting for %llu requests", fs->cfg.mountpoint,
			 (unsigned long long)atomic_load(&fs->count.in_flight));
	}
}

struct fs *fs_unmount(struct fs *fs)
{
	if (!fs)
		return NULL;
	/* A notifier may hang on a lock that a caller of ours holds: the workers serve until it is through. */
	if (fs->keeper)
		keeper_fail_all(fs->keeper, -ENOTCONN);
	notify_stop(fs->notify);
	workers_stop(fs);
	wait_answers(fs);
	passthrough_stop(fs);
	/* From here on nobody uses the session's descriptor: no request is left in any op. */
	if (fs->mounted)
		fuse_session_unmount(fs->se);
	wait_store(fs);
	if (fs->notify)
		node_set_events(fs->node, &(struct node_events){0});
	handles_free_all(fs);
	return fs_free(fs);
}

/* ---- numbers ------------------------------------------------------------------------------------------------ */

#define GET(field) ret->field = atomic_load_explicit(&fs->count.field, memory_order_relaxed)

void fs_get_stats(struct fs *fs, struct fs_stats *ret)
{
	GET(lookups);
	GET(opens);
	GET(creates);
	GET(reads);
	GET(read_bytes);
	GET(writes);
	GET(write_bytes);
	GET(flushes);
	GET(renames);
	GET(unlinks);
	GET(readdirs);
	GET(requests);
	GET(in_flight);
	GET(parked);
	GET(interrupted);
	GET(errors_io);
	GET(estale);
	GET(handles);
	GET(invalidations);
	ret->inodes = inode_count(fs->inodes);
	ret->passthrough_held = passthrough_held(fs);
	ret->no_passthrough = passthrough_why_not(fs);
	ret->max_write = atomic_load(&fs->max_write);
}
