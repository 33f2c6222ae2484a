/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/evictor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/json.h"
#include "tests/bench/cpu_time.h"

#define CALL_MS 60000u

/* Whether path is the mount point or below it; *ret_rest is what follows. */
static bool below(const char *path, const char *mountpoint, const char **ret_rest)
{
	size_t len = strlen(mountpoint);

	if (strncmp(path, mountpoint, len) || (path[len] && path[len] != '/'))
		return false;
	*ret_rest = path + len + (path[len] == '/');
	return true;
}

/* Asks the daemon where it is mounted, and finds the directory there. */
static int find_root(struct evictor *ev, const struct target *dir, struct errmsg *e)
{
	char mountpoint[PATH_MAX], path[PATH_MAX];
	const char *rest;
	json_t *hello;
	int r = ctl_call(ev->stream, json_pack("{s:s}", "op", "hello"), CALL_MS, &hello, e);

	if (r < 0)
		return r;
	r = ctl_name_from_json(json_str(hello, "mountpoint"), mountpoint, sizeof(mountpoint));
	json_decref(hello);
	if (r < 0 || !realpath(dir->path, path) || !below(path, mountpoint, &rest))
		return errmsg_set(e, -EINVAL, "%s is not on the mount of the daemon that was named", dir->path);
	snprintf(ev->root, sizeof(ev->root), "%s", rest);
	return 0;
}

static int find_clock(struct evictor *ev, struct errmsg *e)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int r;

	if (getsockopt(ctl_stream_fd(ev->stream), SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return errmsg_set(e, -errno, "control socket: cannot tell whose it is: %s", strerror(errno));
	r = cpu_time_clock(peer.pid, &ev->cpu);
	return r < 0 ? errmsg_set(e, r, "no clock of the daemon's processor time: %s", strerror(-r)) : 0;
}

int evictor_open(struct evictor *ev, const char *socket, const struct target *dir, struct errmsg *e)
{
	int r;

	*ev = (struct evictor){0};
	r = ctl_connect(socket, &ev->stream, e);
	if (r == 0)
		r = find_root(ev, dir, e);
	if (r == 0)
		r = find_clock(ev, e);
	if (r < 0)
		evictor_close(ev);
	return r;
}

void evictor_close(struct evictor *ev)
{
	ev->stream = ctl_stream_free(ev->stream);
}

int evictor_evict(struct evictor *ev, const char *name, struct errmsg *e)
{
	char path[PATH_MAX];
	json_t *answer;
	int r;

	if (snprintf(path, sizeof(path), "%s%s%s", ev->root, *ev->root ? "/" : "", name) >= (int)sizeof(path))
		return errmsg_set(e, -ENAMETOOLONG, "%s: the path is too long", name);
	r = ctl_call(ev->stream,
		     json_pack("{s:s, s:o, s:s, s:b}", "op", "evict", "path", ctl_name_to_json(path), "tier", "dram",
			       "force", 1),
		     CALL_MS, &answer, e);
	if (r == 0)
		json_decref(answer);
	return r;
}
