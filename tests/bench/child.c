/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/bench/stop.h"

#define OUTPUT_MAX (16u << 20)

extern char **environ;

/* The program's stdout and stderr go to anonymous files: it never blocks on us, and nothing is left behind. */
struct capture {
	int out, err;
};

static void capture_close(struct capture *c)
{
	if (c->out >= 0)
		close(c->out);
	if (c->err >= 0)
		close(c->err);
}

static int capture_open(struct capture *c)
{
	c->out = memfd_create("stdout", MFD_CLOEXEC);
	c->err = memfd_create("stderr", MFD_CLOEXEC);
	return c->out < 0 || c->err < 0 ? -errno : 0;
}

/* All that was written to fd, NUL-terminated, for free(). */
static int slurp(int fd, char **ret)
{
	struct stat st;
	ssize_t n;
	char *p;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > OUTPUT_MAX)
		return -EFBIG;
	p = malloc((size_t)st.st_size + 1);
	if (!p)
		return -ENOMEM;
	n = pread(fd, p, (size_t)st.st_size, 0);
	if (n < 0) {
		free(p);
		return -EIO;
	}
	p[n] = '\0';
	*ret = p;
	return 0;
}

static int spawn(const char *const *argv, const struct capture *c, pid_t *ret)
{
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;
	int r;

	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, c->out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&fa, c->err, STDERR_FILENO);
	/* POSIX declares argv without the const that it honours. */
	r = posix_spawnp(ret, argv[0], &fa, &attr, (char *const *)(uintptr_t)argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&fa);
	return -r;
}

static int await(pid_t pid, int *ret_status)
{
	bool asked = false;

	while (waitpid(pid, ret_status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
		if (stop_wanted() && !asked) {
			kill(pid, SIGTERM);
			asked = true;
		}
	}
	return stop_wanted() ? -EINTR : 0;
}

/* Says why the program failed: its last line on stderr tells most. */
static int explain(const char *name, int status, int fd, struct errmsg *e)
{
	char *text = NULL, *line;

	if (slurp(fd, &text) < 0)
		return errmsg_set(e, -EIO, "%s failed", name);
	while (*text && text[strlen(text) - 1] == '\n')
		text[strlen(text) - 1] = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	if (WIFSIGNALED(status))
		errmsg_set(e, -EIO, "%s was killed by signal %d", name, WTERMSIG(status));
	else
		errmsg_set(e, -EIO, "%s ended with status %d%s%s", name, WEXITSTATUS(status), *line ? ": " : "", line);
	free(text);
	return WIFEXITED(status) && WEXITSTATUS(status) == 1 ? -EAGAIN : -EIO;
}

int child_run(const char *const *argv, char **ret_out, uint64_t *ret_ns, struct errmsg *e)
{
	struct capture c = {-1, -1};
	uint64_t start, end;
	int r, status = 0;
	pid_t pid;

	r = capture_open(&c);
	if (r < 0) {
		errmsg_set(e, r, "cannot make files for the output of %s: %s", argv[0], strerror(-r));
		goto out;
	}
	start = clock_ns();
	r = spawn(argv, &c, &pid);
	if (r < 0) {
		errmsg_set(e, r, "cannot run %s: %s", argv[0], strerror(-r));
		goto out;
	}
	r = await(pid, &status);
	end = clock_ns();
	if (r < 0)
		goto out;
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		r = explain(argv[0], status, c.err, e);
		goto out;
	}
	if (ret_out)
		r = slurp(c.out, ret_out);
	if (r == 0 && ret_ns)
		*ret_ns = end - start;
out:
	capture_close(&c);
	return r;
}
