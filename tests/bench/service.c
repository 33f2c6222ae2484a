/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/service.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/bench/stop.h"

#define READY_LIMIT (60 * NS_PER_SEC)
#define END_LIMIT_MS 20000
#define DAEMON_FOLDERS "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"

static const char *search_path(char buf[static PATH_MAX])
{
	const char *path = getenv("PATH");

	snprintf(buf, PATH_MAX, "%s%s%s", path ? path : "", path ? ":" : "", DAEMON_FOLDERS);
	return buf;
}

bool service_find(const char *program)
{
	char buf[PATH_MAX], file[PATH_MAX];
	const char *dir = search_path(buf);
	size_t len;

	if (strchr(program, '/'))
		return access(program, X_OK) == 0;
	for (; *dir; dir += len + (dir[len] == ':')) {
		len = strcspn(dir, ":");
		snprintf(file, sizeof(file), "%.*s/%s", (int)len, dir, program);
		if (access(file, X_OK) == 0)
			return true;
	}
	return false;
}

/* In the child: becomes the program, or tells the errno through the pipe. */
static _Noreturn void become(const char *const *argv, int log, int tell, pid_t parent)
{
	char path[PATH_MAX];
	int null = open("/dev/null", O_RDONLY), err;
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) /* it died before it could be told of */
		_exit(1);
	dup2(null, STDIN_FILENO);
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	setenv("PATH", search_path(path), 1);
	unsetenv("NOTIFY_SOCKET");
	/* POSIX declares argv without the const that it honours. */
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	err = errno;
	if (write(tell, &err, sizeof(err)) < 0)
		_exit(126);
	_exit(127);
}

static int spawn(struct service *s, const char *const *argv)
{
	pid_t parent = getpid();
	int tell[2], err = 0;

	if (pipe2(tell, O_CLOEXEC) < 0)
		return -errno;
	s->pid = fork();
	if (s->pid == 0)
		become(argv, s->log, tell[1], parent);
	close(tell[1]);
	if (s->pid < 0) {
		err = errno;
		s->pid = 0;
	} else if (read(tell[0], &err, sizeof(err)) < (ssize_t)sizeof(err)) {
		err = 0; /* the pipe closed: it runs */
	}
	close(tell[0]);
	return -err;
}

/* The last line that it said, in buf. */
static const char *last_words(const struct service *s, char *buf, size_t len)
{
	off_t end = lseek(s->log, 0, SEEK_END), from = end > (off_t)len - 1 ? end - (off_t)len + 1 : 0;
	ssize_t n = pread(s->log, buf, len - 1, from);
	char *line;

	n = n < 0 ? 0 : n;
	while (n > 0 && buf[n - 1] == '\n')
		n--;
	buf[n] = '\0';
	line = strrchr(buf, '\n');
	return line ? line + 1 : buf;
}

static int explain(const struct service *s, int err, const char *what, struct errmsg *e)
{
	char buf[512];
	const char *words = last_words(s, buf, sizeof(buf));

	return errmsg_set(e, err, "%s %s%s%s", s->name, what, *words ? ": " : "", words);
}

static bool ended(const struct service *s, int timeout_ms)
{
	struct pollfd p = {.fd = s->fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) > 0;
}

static int await_ready(const struct service *s, bool (*ready)(void *arg), void *arg, struct errmsg *e)
{
	uint64_t deadline = clock_ns() + READY_LIMIT;

	while (!ready(arg)) {
		if (ended(s, 20))
			return explain(s, -ESRCH, "ended before it was ready", e);
		if (stop_wanted())
			return errmsg_set(e, -EINTR, "interrupted");
		if (clock_ns() > deadline)
			return explain(s, -ETIMEDOUT, "is not ready after a minute", e);
	}
	return 0;
}

int service_start(struct service *s, const char *const *argv, bool (*ready)(void *arg), void *arg, struct errmsg *e)
{
	const char *slash = strrchr(argv[0], '/');
	int r;

	*s = (struct service){.fd = -1};
	snprintf(s->name, sizeof(s->name), "%s", slash ? slash + 1 : argv[0]);
	s->log = memfd_create("log", MFD_CLOEXEC);
	if (s->log < 0)
		return errmsg_set(e, -errno, "cannot make a file for the log of %s: %s", s->name, strerror(errno));
	r = spawn(s, argv);
	if (r == 0) {
		s->fd = pidfd_open(s->pid, 0);
		r = s->fd < 0 ? -errno : 0;
	}
	if (r < 0)
		errmsg_set(e, r, "cannot run %s: %s", argv[0], strerror(-r));
	else
		r = await_ready(s, ready, arg, e);
	if (r < 0 && !s->pid)
		close(s->log);
	if (r < 0)
		service_stop(s);
	return r;
}

void service_stop(struct service *s)
{
	if (s->pid > 0) {
		kill(s->pid, SIGTERM);
		if (s->fd < 0 || !ended(s, END_LIMIT_MS))
			kill(s->pid, SIGKILL);
		while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
			continue;
		close(s->log);
		if (s->fd >= 0)
			close(s->fd);
	}
	*s = (struct service){.fd = -1, .log = -1};
}

bool service_died(const struct service *s, struct errmsg *e)
{
	if (s->pid <= 0 || !ended(s, 0))
		return false;
	explain(s, -ESRCH, "has ended", e);
	return true;
}
