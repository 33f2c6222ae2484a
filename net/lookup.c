/* SPDX-License-Identifier: Apache-2.0 */
#include "net/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/addr.h"

struct question {
	atomic_uint users; /* who asks, and the thread; the last one frees it */
	int done_fd;	   /* can be read once it is done */
	struct addr addr;
	atomic_bool done; /* what follows is the thread's until then, and constant from there on */
	int err;
	size_t n;
	struct sockaddr_storage at[LOOKUP_MAX];
};

static atomic_uint n_threads;

static void put(struct question *q)
{
	if (atomic_fetch_sub(&q->users, 1) > 1)
		return;
	close(q->done_fd);
	free(q);
}

static int resolver_error(int err)
{
	switch (err) {
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_SYSTEM:
		return errno ? -errno : -EIO;
	default:
		return -EHOSTUNREACH;
	}
}

static void resolve(struct question *q)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *list = NULL;
	int err = getaddrinfo(q->addr.host, q->addr.port, &hints, &list);

	for (const struct addrinfo *a = err ? NULL : list; a && q->n < LOOKUP_MAX; a = a->ai_next)
		if (a->ai_addrlen <= sizeof(*q->at))
			memcpy(&q->at[q->n++], a->ai_addr, a->ai_addrlen);
	q->err = err ? resolver_error(err) : q->n ? 0 : -EHOSTUNREACH;
	if (!err)
		freeaddrinfo(list);
}

static void *thread_main(void *arg)
{
	struct question *q = arg;

	resolve(q);
	atomic_store(&q->done, true);
	eventfd_write(q->done_fd, 1);
	put(q);
	atomic_fetch_sub(&n_threads, 1);
	return NULL;
}

static int start_thread(struct question *q)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	if (atomic_fetch_add(&n_threads, 1) >= LOOKUP_MAX_THREADS) {
		atomic_fetch_sub(&n_threads, 1);
		return -EAGAIN;
	}
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&thread, &attr, thread_main, q);
	pthread_attr_destroy(&attr);
	if (r)
		atomic_fetch_sub(&n_threads, 1);
	return -r;
}

static int ask(const struct addr *addr, struct question **ret)
{
	struct question *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return -ENOMEM;
	q->addr = *addr;
	atomic_init(&q->users, 2);
	q->done_fd = eventfd(0, EFD_CLOEXEC);
	r = q->done_fd < 0 ? -errno : start_thread(q);
	if (r < 0) {
		if (q->done_fd >= 0)
			close(q->done_fd);
		free(q);
		return r;
	}
	*ret = q;
	return 0;
}

int lookup(const char *address, const struct sock *wait, struct sockaddr_storage ret[LOOKUP_MAX], size_t *ret_n)
{
	struct sock s = *wait;
	struct question *q;
	struct addr addr;
	int r;

	if (addr_parse_number(address, ret, NULL) == 0) {
		*ret_n = 1;
		return 0;
	}
	if (addr_parse(address, &addr, NULL) < 0)
		return -EINVAL;
	r = ask(&addr, &q);
	if (r < 0)
		return r;
	s.fd = q->done_fd;
	r = sock_wait(&s, POLLIN);
	if (!r)
		r = atomic_load(&q->done) ? q->err : -EIO;
	if (!r) {
		memcpy(ret, q->at, q->n * sizeof(*ret));
		*ret_n = q->n;
	}
	put(q);
	return r;
}
