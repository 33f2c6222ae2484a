/* SPDX-License-Identifier: Apache-2.0 */
#include "common/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct signals {
	void (*stop)(void *arg, int sig);
	void (*reload)(void *arg);
	void *arg;
	int fd, wake;
	pthread_t thread;
};

static sigset_t handled(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	return set;
}

void signals_block(void)
{
	sigset_t set = handled();

	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN); /* segment_is_shared() */
}

static void *signals_main(void *arg)
{
	struct signals *s = arg;

	for (;;) {
		struct pollfd p[2] = {{.fd = s->wake, .events = POLLIN}, {.fd = s->fd, .events = POLLIN}};
		struct signalfd_siginfo si;

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents)
			return NULL;
		if (read(s->fd, &si, sizeof(si)) != sizeof(si))
			continue;
		if (si.ssi_signo == SIGHUP)
			s->reload(s->arg);
		else
			s->stop(s->arg, (int)si.ssi_signo);
	}
}

static struct signals *signals_free(struct signals *s)
{
	if (s->fd >= 0)
		close(s->fd);
	if (s->wake >= 0)
		close(s->wake);
	free(s);
	return NULL;
}

int signals_start(void (*stop)(void *arg, int sig), void (*reload)(void *arg), void *arg, struct signals **ret,
		  struct errmsg *e)
{
	struct signals *s = calloc(1, sizeof(*s));
	sigset_t set = handled();
	int err;

	if (!s)
		return errmsg_set(e, -ENOMEM, "out of memory");
	*s = (struct signals){.stop = stop, .reload = reload, .arg = arg};
	s->wake = eventfd(0, EFD_CLOEXEC);
	s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	err = s->wake < 0 || s->fd < 0 ? errno : pthread_create(&s->thread, NULL, signals_main, s);
	if (err) {
		signals_free(s);
		return errmsg_set(e, -err, "signals: %s", strerror(err));
	}
	*ret = s;
	return 0;
}

struct signals *signals_stop(struct signals *s)
{
	if (!s)
		return NULL;
	eventfd_write(s->wake, 1);
	pthread_join(s->thread, NULL);
	return signals_free(s);
}
