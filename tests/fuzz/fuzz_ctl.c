/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what comes over the control socket, from a command line, from mount(8) and from the kernel's list of
 * mounts. The first byte says as which; what was understood must keep its promises.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/path.h"
#include "common/clock.h"
#include "common/mountinfo.h"
#include "fuse/mount_options.h"
#include "net/ctl.h"
#include "net/utf8.h"
#include "tests/fuzz/fuzz.h"

#define LINE_MAX_LEN 512

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* Messages end in a good one, a bad one or a closed connection, and none is longer than it may be. */
static void try_stream(const char *text, size_t len)
{
	struct ctl_stream *s;
	json_t *m;
	int fds[2], r;

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	must(send(fds[0], text, len, MSG_DONTWAIT) == (ssize_t)len);
	close(fds[0]);
	s = ctl_stream_new(fds[1], LINE_MAX_LEN);
	must(s);
	while (!(r = ctl_recv(s, clock_ns() + NS_PER_SEC, &m)) || r == -EBADMSG)
		if (!r) {
			must(json_is_object(m));
			json_decref(m);
		}
	must(r == -ENODATA || r == -ECONNRESET || r == -EMSGSIZE);
	ctl_stream_free(s);
}

/* A name of any bytes comes back as it was, and travels as UTF-8 without control characters. */
static void try_name(const char *text)
{
	char back[4096], from[4096];
	json_t *j = ctl_name_to_json(text);
	const char *p;

	must(j);
	p = json_string_value(j);
	must(strlen(text) >= sizeof(back) || !ctl_name_from_json(p, back, sizeof(back)));
	must(strlen(text) >= sizeof(back) || !strcmp(back, text));
	for (size_t n, left = strlen(p); left; p += n, left -= n) {
		n = utf8_sequence(p, left);
		must(n && ((unsigned char)*p >= 0x20 && *p != 0x7f));
	}
	json_decref(j);
	if (!ctl_name_from_json(text, from, sizeof(from)))
		must(strlen(from) <= strlen(text));
}

static void try_path(const char *text)
{
	char out[PATH_MAX], again[PATH_MAX];
	struct errmsg e = {""};

	if (!path_map(text, "/mnt/x/ns", "/mnt/x", out, sizeof(out), &e)) {
		must(out[0] != '/' && !strstr(out, "//"));
		must(!path_normalize(out, again, sizeof(again)) && !strcmp(out, again));
	} else {
		must(*e.text);
	}
}

/* Nothing is lost: what is not the helper's goes on, in its order. */
static void try_options(const char *text)
{
	struct mount_options o = {0};

	must(!mount_options_add(&o, text));
	must(o.rest && strlen(o.rest) <= strlen(text));
	must(strncmp(o.rest, "config=", 7) != 0);
	mount_options_done(&o);
}

static void try_mount_line(char *text)
{
	struct mount_line m;

	if (!mount_line_parse(text, &m))
		must(m.target && m.fstype && m.source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	text = malloc(size);
	must(text);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0]) {
	case 's':
		if (size < 65536)
			try_stream(text, size - 1);
		break;
	case 'n':
		try_name(text);
		break;
	case 'p':
		try_path(text);
		break;
	case 'o':
		try_options(text);
		break;
	case 'm':
		try_mount_line(text);
		break;
	}
	free(text);
	return 0;
}
