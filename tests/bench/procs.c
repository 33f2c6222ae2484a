/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/stop.h"

#define TICK_MS 100
#define END_LIMIT_MS 10000

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void clear(struct procs *p, int service)
{
	*p = (struct procs){.arrive_r = -1, .arrive_w = -1, .service = service};
	for (unsigned i = 0; i < PROCS_MAX; i++)
		p->fd[i] = -1;
	for (unsigned i = 0; i < PROCS_GATES; i++)
		p->gate_r[i] = p->gate_w[i] = -1;
}

static int open_pipe(int *r, int *w)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC) < 0)
		return -errno;
	*r = fd[0];
	*w = fd[1];
	return 0;
}

static _Noreturn void be_child(struct procs *p, unsigned i, procs_fn fn, void *arg, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	close_fd(&p->arrive_r);
	for (unsigned g = 0; g < PROCS_GATES; g++)
		close_fd(&p->gate_w[g]); /* else the parent could not open it */
	_exit(fn(p, i, arg) < 0 ? 1 : 0);
}

static int start_one(struct procs *p, procs_fn fn, void *arg)
{
	pid_t parent = getpid(), pid = fork();
	unsigned i = p->n;

	if (pid < 0)
		return -errno;
	if (pid == 0)
		be_child(p, i, fn, arg, parent);
	p->pid[i] = pid;
	p->n++;
	p->fd[i] = pidfd_open(pid, 0);
	return p->fd[i] < 0 ? -errno : 0;
}

int procs_start(struct procs *p, unsigned n, int service, procs_fn fn, void *arg)
{
	int r;

	clear(p, service);
	if (n > PROCS_MAX)
		return -EINVAL;
	r = open_pipe(&p->arrive_r, &p->arrive_w);
	for (unsigned g = 0; r == 0 && g < PROCS_GATES; g++)
		r = open_pipe(&p->gate_r[g], &p->gate_w[g]);
	while (r == 0 && p->n < n)
		r = start_one(p, fn, arg);
	if (r < 0)
		procs_end(p);
	return r;
}

int procs_pass(struct procs *p, unsigned gate)
{
	struct pollfd f = {.fd = p->gate_r[gate]};

	if (write(p->arrive_w, "", 1) != 1)
		return -EINTR;
	while (poll(&f, 1, TICK_MS) <= 0)
		if (stop_wanted())
			return -EINTR;
	return 0;
}

/* Takes the status of a child that has ended. */
static int reap(struct procs *p, unsigned i)
{
	int status = 0;

	while (waitpid(p->pid[i], &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	close_fd(&p->fd[i]);
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -ECHILD;
}

static unsigned running(const struct procs *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->n; i++)
		n += p->fd[i] >= 0;
	return n;
}

/* Waits a tick for arrivals, or the end of a child or of the service. *ret_arrived: how many came. */
static int watch(struct procs *p, size_t want, size_t *ret_arrived)
{
	struct pollfd f[PROCS_MAX + 2];
	char bytes[128];
	ssize_t got;

	for (unsigned i = 0; i < p->n; i++)
		f[i] = (struct pollfd){.fd = p->fd[i], .events = POLLIN};
	f[p->n] = (struct pollfd){.fd = p->service, .events = POLLIN};
	f[p->n + 1] = (struct pollfd){.fd = want ? p->arrive_r : -1, .events = POLLIN};
	*ret_arrived = 0;
	if (stop_wanted())
		return -EINTR;
	if (poll(f, p->n + 2, TICK_MS) <= 0)
		return 0;
	if (f[p->n].revents)
		return -ESRCH;
	for (unsigned i = 0; i < p->n; i++)
		if (f[i].revents & POLLIN && reap(p, i) < 0)
			return stop_wanted() ? -EINTR : -ECHILD;
	if (f[p->n + 1].revents & POLLIN) {
		got = read(p->arrive_r, bytes, want < sizeof(bytes) ? want : sizeof(bytes));
		*ret_arrived = got > 0 ? (size_t)got : 0;
	}
	return 0;
}

int procs_await(struct procs *p, unsigned n)
{
	size_t left = n, arrived;
	int r = 0;

	while (r == 0 && left) {
		r = watch(p, left, &arrived);
		left -= arrived;
		if (r == 0 && left && !running(p))
			r = -ECHILD;
	}
	return r;
}

void procs_open(struct procs *p, unsigned gate)
{
	close_fd(&p->gate_w[gate]);
}

int procs_join(struct procs *p)
{
	size_t none;
	int r = 0;

	while (r == 0 && running(p))
		r = watch(p, 0, &none);
	return r;
}

void procs_end(struct procs *p)
{
	struct pollfd f = {.events = POLLIN};

	for (unsigned i = 0; i < p->n; i++)
		if (p->fd[i] >= 0)
			kill(p->pid[i], SIGTERM);
	for (unsigned g = 0; g < PROCS_GATES; g++)
		close_fd(&p->gate_w[g]);
	for (unsigned i = 0; i < p->n; i++) {
		if (p->fd[i] < 0)
			continue;
		f.fd = p->fd[i];
		if (poll(&f, 1, END_LIMIT_MS) <= 0)
			kill(p->pid[i], SIGKILL);
		reap(p, i);
	}
	close_fd(&p->arrive_r);
	close_fd(&p->arrive_w);
	for (unsigned g = 0; g < PROCS_GATES; g++)
		close_fd(&p->gate_r[g]);
}
