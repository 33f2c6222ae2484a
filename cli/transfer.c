/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put and get: through the mount, in large page-aligned pieces, which the mount turns into one copy each. The target
 * appears under its name when all of it is there: it is written beside it and renamed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/session.h"
#include "cli/text.h"

#define PIECE ((size_t)4 << 20)
#define PIECE_ALIGN ((size_t)2 << 20)

/* What a signal takes away: the file that was begun. doomed_set guards it against a half-written name. */
static char doomed[PATH_MAX];
static volatile sig_atomic_t doomed_set;

struct transfer {
	const char *from, *to; /* as the person named them */
	char target[PATH_MAX]; /* where it is to appear */
	char temp[PATH_MAX];   /* where it is written; "": straight to the target */
	int in, out;
	uint64_t size; /* of the source; 0: not known */
	bool sized;
	bool quiet;
};

/* A flag would be seen too late by a read that blocks. Without its name the file is not published at the exit. */
static void on_signal(int sig)
{
	static const char line[] = "\nfluxkv: interrupted; nothing was stored\n";

	if (doomed_set)
		unlink(doomed);
	if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
		_exit(CLI_FAILED);
	_exit(CLI_FAILED);
}

static void catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal};

	sigfillset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Opens a file that a signal removes. No signal comes between the two. */
static int open_doomed(const char *path, mode_t mode)
{
	sigset_t all, old;
	int fd, err;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	err = errno;
	if (fd >= 0) {
		snprintf(doomed, sizeof(doomed), "%s", path);
		doomed_set = 1;
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	errno = err;
	return fd;
}

static int write_all(int fd, const char *buf, size_t len, uint64_t *written)
{
	while (len) {
		ssize_t n = write(fd, buf, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		buf += n;
		len -= (size_t)n;
		*written += (uint64_t)n;
	}
	return 0;
}

/* A whole piece, if the source has one: a pipe gives 64 KiB at a time. */
static ssize_t read_piece(int fd, char *buf, size_t len)
{
	size_t have = 0;

	while (have < len) {
		ssize_t n = read(fd, buf + have, len - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

static int out_error(const struct transfer *t, int err, uint64_t written)
{
	if (err == -ENOSPC && t->sized)
		cli_error("%s: no space left after %" PRIu64 " of %" PRIu64 " bytes; see: fluxkv status", t->to,
			  written, t->size);
	else if (err == -ENOSPC)
		cli_error("%s: no space left after %" PRIu64 " bytes; see: fluxkv status", t->to, written);
	else
		cli_error("%s: writing fails after %" PRIu64 " bytes: %s", t->to, written, strerror(-err));
	return CLI_FAILED;
}

static int copy_pieces(struct transfer *t, char *buf, struct progress *p, uint64_t *written)
{
	for (;;) {
		ssize_t n = read_piece(t->in, buf, PIECE);
		int r;

		if (n < 0) {
			cli_error("%s: reading fails after %" PRIu64 " bytes: %s", t->from, *written,
				  strerror((int)-n));
			return CLI_FAILED;
		}
		if (!n)
			return CLI_OK;
		r = write_all(t->out, buf, (size_t)n, written);
		if (r)
			return out_error(t, r, *written);
		progress_add(p, (uint64_t)n);
	}
}

static int copy(struct transfer *t)
{
	struct progress p;
	uint64_t written = 0;
	char *buf;
	int r;

	if (posix_memalign((void **)&buf, PIECE_ALIGN, PIECE)) {
		cli_error("out of memory");
		return CLI_FAILED;
	}
	progress_start(&p, t->to, t->size, t->quiet);
	r = copy_pieces(t, buf, &p, &written);
	progress_end(&p);
	free(buf);
	if (!r && t->sized && written != t->size) {
		cli_error("%s: %s after %" PRIu64 " of %" PRIu64 " bytes; nothing was stored", t->from,
			  written < t->size ? "it ended" : "it grew", written, t->size);
		r = CLI_FAILED;
	}
	return r;
}

/* "dir/name" to "dir/.fluxkv-PID-0": in the same directory, short, and never the name itself. */
static int temp_name(struct transfer *t, unsigned try)
{
	const char *slash = strrchr(t->target, '/');
	int dir = slash ? (int)(slash - t->target + 1) : 0;

	return snprintf(t->temp, sizeof(t->temp), "%.*s.fluxkv-%ld-%u", dir, t->target, (long)getpid(), try) <
		       (int)sizeof(t->temp)
		   ? 0
		   : -ENAMETOOLONG;
}

static int open_temp(struct transfer *t, mode_t mode)
{
	for (unsigned try = 0; try < 100; try++) {
		if (temp_name(t, try))
			return -ENAMETOOLONG;
		t->out = open_doomed(t->temp, mode);
		if (t->out >= 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	t->temp[0] = '\0';
	return errno ? -errno : -EEXIST;
}

/* close(2) publishes, so its answer counts; then the name. */
static int finish(struct transfer *t, int r)
{
	if (t->in > STDERR_FILENO)
		close(t->in);
	if (t->out > STDERR_FILENO && close(t->out) && !r) {
		cli_error("%s: closing it fails: %s", t->to, strerror(errno));
		r = CLI_FAILED;
	}
	if (!r && t->temp[0] && rename(t->temp, t->target)) {
		cli_error("%s: renaming it into place fails: %s", t->to, strerror(errno));
		r = CLI_FAILED;
	}
	doomed_set = 0;
	if (r && t->temp[0])
		unlink(t->temp);
	return r;
}

static bool names_directory(const struct transfer *t)
{
	size_t n = strlen(t->to);
	struct stat st;

	return (n && t->to[n - 1] == '/') || (!stat(t->target, &st) && S_ISDIR(st.st_mode));
}

/* A directory as the target gets the name of the source. */
static int into_directory(struct transfer *t, const char *from)
{
	char copy[PATH_MAX];
	size_t n = strlen(t->target);

	if (!names_directory(t))
		return CLI_OK;
	if (!strcmp(from, "-")) {
		cli_error("%s is a directory; standard input has no name of its own, so give one: %s%sNAME", t->to,
			  t->to, t->to[strlen(t->to) - 1] == '/' ? "" : "/");
		return CLI_USAGE;
	}
	snprintf(copy, sizeof(copy), "%s", from);
	if (snprintf(t->target + n, sizeof(t->target) - n, "/%s", basename(copy)) >= (int)(sizeof(t->target) - n)) {
		cli_error("%s: the path is too long", t->to);
		return CLI_FAILED;
	}
	return CLI_OK;
}

static int open_source(struct transfer *t)
{
	struct stat st;

	t->in = strcmp(t->from, "-") ? open(t->from, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	if (t->in < 0 || fstat(t->in, &st)) {
		cli_error("%s: %s", t->from, strerror(errno));
		return CLI_FAILED;
	}
	if (S_ISDIR(st.st_mode)) {
		cli_error("%s is a directory; fluxkv copies single files, use cp -r with the mount for a tree",
			  t->from);
		return CLI_FAILED;
	}
	if (S_ISREG(st.st_mode)) {
		off_t at = lseek(t->in, 0, SEEK_CUR);

		/* Standard input may be a file that was read in part. */
		t->size = at > 0 && at < st.st_size ? (uint64_t)(st.st_size - at) : (uint64_t)st.st_size;
		t->sized = at <= 0 || at < st.st_size;
		/* /proc files have no size but bytes. */
		t->sized = t->sized && st.st_size;
	}
	return CLI_OK;
}

static int make_parents(char *path, size_t from)
{
	for (char *p = path + from; (p = strchr(p, '/')); p++) {
		int r;

		*p = '\0';
		r = mkdir(path, 0777);
		*p = '/';
		if (r && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* The mount's path of an object: what the daemon calls path, below its mount point. */
static int mounted_path(struct session *s, const char *arg, char out[PATH_MAX])
{
	char path[PATH_MAX];
	int r;

	r = session_path(s, arg, path);
	if (r)
		return r;
	if (snprintf(out, PATH_MAX, "%s/%s", s->mountpoint, path) >= PATH_MAX) {
		cli_error("%.64s...: the path is too long", arg);
		return CLI_USAGE;
	}
	return CLI_OK;
}

/* root: where in the target the path below the mount point begins. */
static int put_open_error(const struct transfer *t, size_t root, int err)
{
	if (err == -ENOENT)
		cli_error("%s: its directory does not exist; make it with --parents, or: fluxkv ns create NAME", t->to);
	else if (err == -EPERM && !strchr(t->target + root, '/'))
		cli_error("%s: the root holds namespaces only; say NAMESPACE/KEY", t->to);
	else
		cli_error("%s: %s", t->to, strerror(-err));
	return CLI_FAILED;
}

static int put_run(struct session *s, struct transfer *t, const struct cli_options *o)
{
	size_t root = strlen(s->mountpoint) + 1;
	int r;

	r = mounted_path(s, t->to, t->target);
	if (!r)
		r = into_directory(t, t->from);
	if (!r)
		r = open_source(t);
	if (r)
		return r;
	r = o->parents ? make_parents(t->target, root) : 0;
	if (!r)
		r = open_temp(t, 0666);
	if (r)
		return finish(t, put_open_error(t, root, r));
	return finish(t, copy(t));
}

int cmd_put(const struct cli_options *o, int n, char **words)
{
	struct transfer t = {.from = words[0], .to = words[1], .in = -1, .out = -1, .quiet = o->quiet};
	struct session s;
	int r;

	catch_signals();
	r = session_open(o, t.to, &s);
	if (r)
		return r;
	r = put_run(&s, &t, o);
	session_close(&s);
	return r;
}

static int get_open_source(struct session *s, struct transfer *t, char path[PATH_MAX])
{
	struct stat st;
	int r;

	r = mounted_path(s, t->from, path);
	if (r)
		return r;
	t->in = open(path, O_RDONLY | O_CLOEXEC);
	if (t->in < 0 || fstat(t->in, &st)) {
		cli_error("%s: %s", t->from,
			  errno == ENOENT ? "no such object (never stored, removed, expired or evicted)"
					  : strerror(errno));
		return CLI_FAILED;
	}
	if (S_ISDIR(st.st_mode)) {
		cli_error("%s is a directory; see what it holds with: fluxkv ls %s", t->from, t->from);
		return CLI_FAILED;
	}
	t->size = (uint64_t)st.st_size;
	t->sized = true;
	posix_fadvise(t->in, 0, 0, POSIX_FADV_SEQUENTIAL);
	return CLI_OK;
}

/* Devices, pipes and what /dev/stdout is are written to as they are. */
static int get_open_target(struct transfer *t)
{
	struct stat st;
	int r;

	if (!strcmp(t->to, "-")) {
		t->out = STDOUT_FILENO;
		return CLI_OK;
	}
	if (!stat(t->target, &st) && !S_ISREG(st.st_mode)) {
		t->out = open(t->target, O_WRONLY | O_CLOEXEC);
		r = t->out < 0 ? -errno : 0;
	} else {
		r = open_temp(t, 0666);
	}
	if (!r)
		return CLI_OK;
	cli_error("%s: %s", t->to, strerror(-r));
	return CLI_FAILED;
}

static int get_run(struct session *s, struct transfer *t)
{
	char path[PATH_MAX];
	int r;

	if (!*t->to) {
		cli_error("an empty path names nothing");
		return CLI_USAGE;
	}
	r = get_open_source(s, t, path);
	if (r)
		return finish(t, r);
	if (snprintf(t->target, sizeof(t->target), "%s", t->to) >= (int)sizeof(t->target)) {
		cli_error("%.64s...: the path is too long", t->to);
		return finish(t, CLI_USAGE);
	}
	if (strcmp(t->to, "-"))
		r = into_directory(t, path);
	if (!r)
		r = get_open_target(t);
	return finish(t, r ? r : copy(t));
}

int cmd_get(const struct cli_options *o, int n, char **words)
{
	struct transfer t = {.from = words[0], .to = words[1], .in = -1, .out = -1, .quiet = o->quiet};
	struct session s;
	int r;

	catch_signals();
	r = session_open(o, t.from, &s);
	if (r)
		return r;
	r = get_run(&s, &t);
	session_close(&s);
	return r;
}
