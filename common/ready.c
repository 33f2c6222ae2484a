/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ready.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

/* What goes through the pipe: one byte of status and, unless that is 0, a line. */
#define TOLD_MAX 2048

void ready_foreground(struct ready *r, const char *program)
{
	*r = (struct ready){.program = program, .pipe = -1};
}

/* All that the child tells, up to its end. */
static size_t read_told(int fd, char *buf, size_t len)
{
	size_t n = 0;

	while (n < len) {
		ssize_t got = read(fd, buf + n, len - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	return n;
}

static int died(const char *program, pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s: it was killed by signal %d while it started\n", program, WTERMSIG(status));
	else
		fprintf(stderr, "%s: it ended with status %d while it started\n", program, WEXITSTATUS(status));
	return 1;
}

static int wait_for_child(const char *program, int fd, pid_t child)
{
	char told[TOLD_MAX + 1];
	size_t n = read_told(fd, told, TOLD_MAX);

	close(fd);
	if (!n)
		return died(program, child);
	told[n] = '\0';
	if (!told[0])
		return 0;
	fprintf(stderr, "%s: %s\n", program, told + 1);
	/* It still clears away what it had made; nothing may be left when the command returns. */
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return told[0];
}

static void become_daemon(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		if (null > STDERR_FILENO)
			close(null);
	}
}

int ready_background(struct ready *r, const char *program)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC)) {
		fprintf(stderr, "%s: pipe: %s\n", program, strerror(errno));
		return 1;
	}
	pid = fork();
	if (pid < 0) {
		fprintf(stderr, "%s: fork: %s\n", program, strerror(errno));
		return 1;
	}
	if (pid) {
		close(fds[1]);
		return wait_for_child(program, fds[0], pid);
	}
	close(fds[0]);
	become_daemon();
	*r = (struct ready){.program = program, .pipe = fds[1], .background = true};
	return -1;
}

static void tell(struct ready *r, const char *bytes, size_t len)
{
	while (len) {
		ssize_t n = write(r->pipe, bytes, len);

		if (n < 0 && errno != EINTR)
			break; /* nobody waits any more */
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
	}
	close(r->pipe);
	r->pipe = -1;
}

void ready_serving(struct ready *r, const char *status)
{
	sd_notifyf(0, "READY=1\nSTATUS=%s", status);
	if (r->pipe >= 0)
		tell(r, "", 1);
}

int ready_failed(struct ready *r, int status, const char *line)
{
	char told[TOLD_MAX];
	int n;

	sd_notifyf(0, "STATUS=%s", line);
	if (r->pipe < 0) {
		/* systemd's journal takes the priority from the prefix. */
		fprintf(stderr, "%s%s: %s\n", getenv("JOURNAL_STREAM") ? "<3>" : "", r->program, line);
		return status;
	}
	n = snprintf(told, sizeof(told), "%c%s", status, line);
	tell(r, told, n < (int)sizeof(told) ? (size_t)n : sizeof(told) - 1);
	return status;
}
