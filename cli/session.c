/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include <errno.h>
#include <glob.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "cli/path.h"
#include "common/mountinfo.h"
#include "net/json.h"

/* Longer than any deadline of the daemon's own: it should be the one that says what took so long. */
#define CALL_TIMEOUT_MS (15u * 60 * 1000)
#define HELLO_TIMEOUT_MS 10000u
#define CONTROL_NAME "control"

static int hello(struct session *s, struct errmsg *e)
{
	int r;

	r = ctl_call(s->stream, json_pack("{s:s}", "op", "hello"), HELLO_TIMEOUT_MS, &s->hello, e);
	if (r)
		return r;
	if (ctl_name_from_json(json_str(s->hello, "mountpoint"), s->mountpoint, sizeof(s->mountpoint)))
		return errmsg_set(e, -EPROTO, "fluxkvd names no mount point");
	if (json_u64(s->hello, "protocol") != CTL_PROTOCOL)
		return errmsg_set(e, -EPROTO,
				  "fluxkvd %s and fluxkv %s do not understand each other; install one version of both",
				  json_str(s->hello, "version"), PACKAGE_VERSION);
	return 0;
}

static int session_dial(const char *path, struct session *ret, struct errmsg *e)
{
	struct session s = {0};
	struct stat st;
	int r;

	if (!getcwd(s.cwd, sizeof(s.cwd)) || s.cwd[0] != '/')
		s.cwd[0] = '\0';
	if (!stat(path, &st) && !S_ISSOCK(st.st_mode))
		return errmsg_set(e, -ENOTSOCK, "%s is not a socket", path);
	r = ctl_connect(path, &s.stream, e);
	if (r)
		return r;
	r = hello(&s, e);
	if (r) {
		session_close(&s);
		return r;
	}
	*ret = s;
	return 0;
}

void session_close(struct session *s)
{
	json_decref(s->hello);
	s->stream = ctl_stream_free(s->stream);
	s->hello = NULL;
}

/* Does the path, or without one the current directory, lie below the session's mount point? */
static bool session_covers(const struct session *s, const char *path)
{
	char joined[2 * PATH_MAX], full[PATH_MAX];

	if (snprintf(joined, sizeof(joined), "%s/%s", path && *path == '/' ? "" : s->cwd, path ? path : "") >=
	    (int)sizeof(joined))
		return false;
	return !path_normalize(joined, full, sizeof(full)) && path_below(full, s->mountpoint);
}

/* Of the daemons whose sockets were found: those that live, and the one that covers the path. */
struct search {
	const char *path;
	struct session found;
	unsigned live, covering;
	char names[512];
	struct errmsg last;
};

static void search_try(struct search *f, const char *socket)
{
	struct session s;
	size_t n = strlen(f->names);
	bool covers;

	if (session_dial(socket, &s, &f->last))
		return;
	covers = session_covers(&s, f->path);
	snprintf(f->names + n, sizeof(f->names) - n, "%s%s", n ? ", " : "", json_str(s.hello, "instance"));
	f->live++;
	f->covering += covers;
	if (f->live == 1 || (covers && f->covering == 1)) {
		session_close(&f->found);
		f->found = s;
	} else {
		session_close(&s);
	}
}

/* What this user may not look into, the run directory or an instance's in it: a daemon may well run there. */
static bool search_denied(const char *dir, char ret_path[PATH_MAX])
{
	char pattern[PATH_MAX], path[PATH_MAX + sizeof(CONTROL_NAME)];
	bool denied = false;
	struct stat st;
	glob_t g = {0};

	snprintf(ret_path, PATH_MAX, "%s", dir);
	if (access(dir, R_OK | X_OK))
		return errno == EACCES;
	snprintf(pattern, sizeof(pattern), "%s/*", dir);
	if (!glob(pattern, 0, NULL, &g))
		for (size_t i = 0; !denied && i < g.gl_pathc; i++) {
			snprintf(ret_path, PATH_MAX, "%s", g.gl_pathv[i]);
			snprintf(path, sizeof(path), "%s/" CONTROL_NAME, ret_path);
			denied = lstat(path, &st) && errno == EACCES;
		}
	globfree(&g);
	return denied;
}

/*
 * Where FluxKV is mounted: the mount that the path lies below, or the current directory, or else any. The mount is not
 * asked whether its daemon lives: one that hangs would keep us waiting.
 */
static bool search_mount(const char *path, char ret_target[PATH_MAX])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct session s = {0};
	struct mount_line m;
	bool found = false;
	char *line = NULL;
	size_t cap = 0;

	if (!getcwd(s.cwd, sizeof(s.cwd)))
		s.cwd[0] = '\0';
	while (f && getline(&line, &cap, f) > 0) {
		if (mount_line_parse(line, &m) || strcmp(m.fstype, "fuse.fluxkv") || strlen(m.target) >= PATH_MAX)
			continue;
		strcpy(s.mountpoint, m.target);
		if (found && !session_covers(&s, path))
			continue;
		strcpy(ret_target, m.target);
		found = true;
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

static void tell_none(const char *dir, const char *pattern, const char *about)
{
	char path[PATH_MAX];

	if (search_denied(dir, path))
		cli_error("%s: permission denied; run fluxkv as the user that runs fluxkvd, or as root", path);
	else if (search_mount(about, path))
		cli_error(
		    "the daemon that serves %s is not found (there is no %s): it has died, or another run_dir; name "
		    "that with --run-dir DIR, or its socket with --socket PATH",
		    path, pattern);
	else
		cli_error("no daemon runs here (there is no %s); start one with: fluxkvd standalone MOUNTPOINT, or "
			  "name its socket with --socket PATH",
			  pattern);
}

static int search_result(struct search *f, struct session *ret)
{
	if (f->live == 1 || f->covering == 1) {
		*ret = f->found;
		return CLI_OK;
	}
	session_close(&f->found);
	if (f->live) {
		cli_error("several daemons run here (%s); say which with --instance NAME", f->names);
		return CLI_USAGE;
	}
	return CLI_UNREACHABLE;
}

static const char *run_dir(const struct cli_options *o)
{
	const char *env = getenv("FLUXKV_RUN_DIR");

	if (o->run_dir)
		return o->run_dir;
	return env && *env ? env : RUNSTATEDIR "/fluxkv";
}

static int session_search(const struct cli_options *o, const char *path, struct session *ret)
{
	struct search f = {.path = path};
	char pattern[PATH_MAX];
	glob_t g = {0};
	int r;

	snprintf(pattern, sizeof(pattern), "%s/*/" CONTROL_NAME, run_dir(o));
	if (!glob(pattern, 0, NULL, &g))
		for (size_t i = 0; i < g.gl_pathc; i++)
			search_try(&f, g.gl_pathv[i]);
	r = search_result(&f, ret);
	if (r == CLI_UNREACHABLE && g.gl_pathc)
		cli_error("%s", f.last.text);
	else if (r == CLI_UNREACHABLE)
		tell_none(run_dir(o), pattern, path);
	globfree(&g);
	return r;
}

static int check_options(const struct cli_options *o)
{
	if (o->socket && o->instance)
		cli_error("--socket and --instance both name the daemon; give one of them");
	else if ((o->socket && !*o->socket) || (o->run_dir && !*o->run_dir))
		cli_error("%s: the path is empty", o->socket ? "--socket" : "--run-dir");
	else if (o->instance && (!*o->instance || strchr(o->instance, '/')))
		cli_error("--instance \"%s\": not a name", o->instance);
	else
		return CLI_OK;
	return CLI_USAGE;
}

int session_open(const struct cli_options *o, const char *path, struct session *ret)
{
	const char *env = getenv("FLUXKV_SOCKET");
	char named[PATH_MAX];
	const char *socket = NULL;
	struct errmsg e;
	int r;

	r = check_options(o);
	if (r)
		return r;
	if (o->instance) {
		snprintf(named, sizeof(named), "%s/%s/" CONTROL_NAME, run_dir(o), o->instance);
		socket = named;
	} else if (o->socket) {
		socket = o->socket;
	} else if (env && *env) {
		socket = env;
	}
	if (!socket)
		return session_search(o, path, ret);
	if (!session_dial(socket, ret, &e))
		return CLI_OK;
	cli_error("%s", e.text);
	return CLI_UNREACHABLE;
}

/* An absolute path that goes through a symbolic link: the directory is resolved, the last name may be new. */
static int resolve_links(const char *arg, char out[PATH_MAX])
{
	char copy[PATH_MAX], dir[PATH_MAX];
	char *slash;

	if (snprintf(copy, sizeof(copy), "%s", arg) >= (int)sizeof(copy))
		return -ENAMETOOLONG;
	if (realpath(copy, out))
		return 0;
	slash = strrchr(copy, '/');
	if (!slash || slash == copy)
		return -ENOENT;
	*slash = '\0';
	if (!realpath(copy, dir))
		return -errno;
	return snprintf(out, PATH_MAX, "%s/%s", dir, slash + 1) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/*
 * We are somewhere on the mount, and by no way from its mount point: in a bind mount of it, or deeper than a path can
 * be. A relative name must not be taken from the mount's root then.
 */
static bool is_lost(const struct session *s)
{
	struct stat here, mnt;
	struct statfs fs;

	if (s->cwd[0] && path_below(s->cwd, s->mountpoint))
		return false;
	if (stat(".", &here) || statfs(".", &fs))
		return true;
	return fs.f_type == FUSE_SUPER_MAGIC && !stat(s->mountpoint, &mnt) && here.st_dev == mnt.st_dev;
}

int session_path(struct session *s, const char *arg, char out[PATH_MAX])
{
	char real[PATH_MAX];
	struct errmsg e;
	int r;

	/* An unset variable of a script, mostly: it must not stand for all there is. */
	if (!*arg) {
		cli_error("an empty path names nothing; the root is %s", s->mountpoint);
		return CLI_USAGE;
	}
	if (*arg != '/' && is_lost(s)) {
		cli_error("%s: where this directory lies below %s is not known; name it by its whole path", arg,
			  s->mountpoint);
		return CLI_USAGE;
	}
	r = path_map(arg, s->cwd, s->mountpoint, out, PATH_MAX, &e);
	if (r == -EXDEV && !resolve_links(arg, real) && !path_map(real, s->cwd, s->mountpoint, out, PATH_MAX, NULL))
		r = 0;
	if (!r)
		return CLI_OK;
	cli_error("%s", e.text);
	return CLI_USAGE;
}

int session_call(struct session *s, json_t *req, json_t **ret)
{
	json_t *answer;
	struct errmsg e;
	int r = ctl_call(s->stream, req, CALL_TIMEOUT_MS, &answer, &e);

	if (r) {
		s->lost = r == -ECONNRESET || r == -EPIPE || r == -ETIMEDOUT || r == -EBADMSG;
		cli_error("%s", e.text);
		return CLI_FAILED;
	}
	if (ret)
		*ret = answer;
	else
		json_decref(answer);
	return CLI_OK;
}

json_t *session_request(const char *op, const char *path)
{
	return json_pack("{s:s,s:o}", "op", op, "path", ctl_name_to_json(path));
}

static int list_page(const json_t *answer, session_entry_fn each, void *arg)
{
	char name[NAME_MAX + 1];
	json_t *entry;
	size_t i;
	int r;

	json_array_foreach (json_object_get(answer, "entries"), i, entry) {
		if (ctl_name_from_json(json_str(entry, "name"), name, sizeof(name))) {
			cli_error("the daemon gave a name that is none");
			return CLI_FAILED;
		}
		r = each(arg, entry, name);
		if (r)
			return r;
	}
	return CLI_OK;
}

int session_list(struct session *s, const char *path, session_entry_fn each, void *arg)
{
	json_t *answer;
	struct errmsg e;
	bool more;
	int r;

	r = session_call(s, session_request("ls", path), &answer);
	while (!r) {
		more = json_is_true(json_object_get(answer, "more"));
		r = list_page(answer, each, arg);
		json_decref(answer);
		if (r || !more)
			return r;
		if (ctl_next(s->stream, CALL_TIMEOUT_MS, &answer, &e)) {
			cli_error("%s", e.text);
			r = CLI_FAILED;
		}
	}
	return r;
}
