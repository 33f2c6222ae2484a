/* SPDX-License-Identifier: Apache-2.0 */
#include "net/data_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/list.h"
#include "net/data_serve.h"
#include "net/data_wire.h"
#include "net/listen.h"

#define STACK_BYTES (256u * 1024)
#define PAUSE_MS 50 /* when there is no descriptor for another connection */

enum guest_state { GUEST_STRANGER, GUEST_IDLE, GUEST_BUSY, GUEST_DONE, GUEST_STATES };

/* A connection. */
struct guest {
	struct data_server *s;
	struct sock sock; /* its thread's; fd changes under the server's lock */
	pthread_t thread; /* the listening thread's */
	/* the server's lock: */
	struct list all; /* of this state; the one that has been in it for longest is the first */
	enum guest_state state;
	bool dropped; /* has been shown out, and will be gone in a moment */
};

struct data_server {
	struct data_desk desk;
	int listener, wake_fd;
	uint16_t port;
	pthread_t thread;

	pthread_mutex_t lock;
	struct list guests[GUEST_STATES]; /* lock */
	uint32_t n_guests, n_strangers;	  /* lock; without those that are dropped, or done */
	uint32_t n_threads;		  /* lock; with them */
	bool over;			  /* lock */

	struct {
		atomic_ullong accepted, refused, strangers, malformed;
	} stats;
};

static void count(atomic_ullong *n)
{
	atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

static void wake(struct data_server *s)
{
	eventfd_write(s->wake_fd, 1);
}

/* ---- connections, with the server locked ---------------------------------------------------------------------- */

static void set_state(struct guest *g, enum guest_state state)
{
	g->s->n_strangers -= g->state == GUEST_STRANGER && !g->dropped;
	g->state = state;
	list_del(&g->all);
	list_add_tail(&g->all, &g->s->guests[state]);
}

/* Shows it out. Its thread finds a connection that has ended; it is not counted any more. */
static void drop(struct guest *g)
{
	struct data_server *s = g->s;

	if (g->state == GUEST_STRANGER)
		count(&s->stats.refused);
	shutdown(g->sock.fd, SHUT_RDWR);
	set_state(g, GUEST_BUSY);
	g->dropped = true;
	s->n_guests--;
}

/* Drops the one that has been in that state for longest. False: there is none. */
static bool drop_first(struct data_server *s, enum guest_state state)
{
	if (list_empty(&s->guests[state]))
		return false;
	drop(list_first(&s->guests[state], struct guest, all));
	return true;
}

/* False: all of them are at work. */
static bool make_place(struct data_server *s)
{
	if (s->n_strangers >= s->desk.cfg.max_strangers)
		drop_first(s, GUEST_STRANGER);
	return s->n_guests < s->desk.cfg.max_connections || drop_first(s, GUEST_STRANGER) || drop_first(s, GUEST_IDLE);
}

/* ---- a connection's thread ------------------------------------------------------------------------------------ */

/* False: it is to end. */
static bool enter_state(struct guest *g, enum guest_state state)
{
	bool stays;

	pthread_mutex_lock(&g->s->lock);
	stays = !g->dropped && !g->s->over;
	if (stays)
		set_state(g, state);
	pthread_mutex_unlock(&g->s->lock);
	return stays;
}

static void finish(struct guest *g)
{
	struct data_server *s = g->s;

	pthread_mutex_lock(&s->lock);
	s->n_guests -= !g->dropped;
	set_state(g, GUEST_DONE);
	close(g->sock.fd);
	g->sock.fd = -1;
	pthread_mutex_unlock(&s->lock);
	wake(s);
}

static int shake_hands(struct guest *g)
{
	struct data_server *s = g->s;
	const struct data_server_config *cfg = &s->desk.cfg;
	int r;

	sock_tune(g->sock.fd, cfg->silence_ms);
	g->sock.silence_ms = cfg->handshake_ms;
	g->sock.deadline_ns = sock_deadline(cfg->handshake_ms, 0, 1);
	r = sock_shake(&g->sock, &s->desk.key, AUTH_DATA, true);
	if (r == -EPROTO || r == -EACCES)
		count(&s->stats.strangers);
	else if (r == -ETIMEDOUT)
		count(&s->stats.refused);
	return r;
}

/* Once its first byte is there it is to come without a long break. */
static int read_request(struct guest *g, struct plan *ret)
{
	const struct data_server_config *cfg = &g->s->desk.cfg;
	uint8_t bytes[DATA_REQUEST_BYTES];
	ssize_t n;
	int r;

	g->sock.silence_ms = cfg->silence_ms;
	g->sock.deadline_ns = sock_deadline(cfg->silence_ms, 0, 1);
	n = sock_read_some(&g->sock, bytes, sizeof(bytes));
	if (n <= 0)
		return n < 0 ? (int)n : -ECONNRESET;
	r = sock_read(&g->sock, bytes + n, sizeof(bytes) - (size_t)n);
	if (!r)
		r = data_decode_request(bytes, ret);
	if (r < 0)
		count(&g->s->stats.malformed);
	return r;
}

static int next_request(struct guest *g, struct plan *ret)
{
	int r;

	g->sock.silence_ms = g->s->desk.cfg.idle_ms;
	g->sock.deadline_ns = 0;
	r = enter_state(g, GUEST_IDLE) ? sock_wait(&g->sock, POLLIN) : -ESHUTDOWN;
	if (r < 0)
		return r;
	return enter_state(g, GUEST_BUSY) ? read_request(g, ret) : -ESHUTDOWN;
}

static void *guest_main(void *arg)
{
	struct guest *g = arg;
	struct plan p;

	if (shake_hands(g) == 0)
		while (next_request(g, &p) == 0 && data_serve(&g->s->desk, &g->sock, &p) == 0)
			;
	finish(g);
	return NULL;
}

/* ---- the listening thread ------------------------------------------------------------------------------------- */

static int start_thread(pthread_t *ret, void *(*fn)(void *), void *arg)
{
	pthread_attr_t attr;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	r = pthread_create(ret, &attr, fn, arg);
	pthread_attr_destroy(&attr);
	if (!r)
		pthread_setname_np(*ret, "fkv-data");
	return -r;
}

/* Frees those that are done. */
static void reap(struct data_server *s)
{
	struct list done;

	list_init(&done);
	pthread_mutex_lock(&s->lock);
	list_splice_tail(&s->guests[GUEST_DONE], &done);
	pthread_mutex_unlock(&s->lock);
	while (!list_empty(&done)) {
		struct guest *g = list_first(&done, struct guest, all);

		list_del(&g->all);
		pthread_join(g->thread, NULL);
		free(g);
		pthread_mutex_lock(&s->lock);
		s->n_threads--;
		pthread_mutex_unlock(&s->lock);
	}
}

static struct guest *guest_new(struct data_server *s, int fd)
{
	struct guest *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	*g = (struct guest){.s = s, .sock = {.fd = fd, .stop_fd = -1}, .state = GUEST_STRANGER};
	pthread_mutex_lock(&s->lock);
	if (!make_place(s)) {
		pthread_mutex_unlock(&s->lock);
		free(g);
		return NULL;
	}
	list_add_tail(&g->all, &s->guests[GUEST_STRANGER]);
	s->n_strangers++;
	s->n_guests++;
	s->n_threads++;
	pthread_mutex_unlock(&s->lock);
	return g;
}

/* One that never had a thread. Its fd stays. */
static void guest_undo(struct guest *g)
{
	struct data_server *s = g->s;

	pthread_mutex_lock(&s->lock);
	list_del(&g->all);
	s->n_strangers--;
	s->n_guests--;
	s->n_threads--;
	pthread_mutex_unlock(&s->lock);
	free(g);
}

static void admit(struct data_server *s, int fd)
{
	struct guest *g = guest_new(s, fd);

	if (g && start_thread(&g->thread, guest_main, g) < 0) {
		guest_undo(g);
		g = NULL;
	}
	if (g) {
		count(&s->stats.accepted);
		return;
	}
	count(&s->stats.refused);
	close(fd);
}

/* False: there is no descriptor or memory for another one now. */
static bool let_in(struct data_server *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0) {
		admit(s, fd);
		return true;
	}
	if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
		return true; /* whoever it was has left */
	pthread_mutex_lock(&s->lock);
	if (!drop_first(s, GUEST_STRANGER))
		drop_first(s, GUEST_IDLE);
	pthread_mutex_unlock(&s->lock);
	return false;
}

/* Whether there may be another thread. Those that were dropped end at once, but not before the next one comes. */
static bool has_room(struct data_server *s)
{
	bool room;

	pthread_mutex_lock(&s->lock);
	room = s->n_threads < s->desk.cfg.max_connections + s->desk.cfg.max_strangers;
	pthread_mutex_unlock(&s->lock);
	return room;
}

static bool is_over(struct data_server *s)
{
	bool over;

	pthread_mutex_lock(&s->lock);
	over = s->over;
	pthread_mutex_unlock(&s->lock);
	return over;
}

/* Shows all of them out, and waits for their threads. */
static void end(struct data_server *s)
{
	eventfd_t n;
	bool any;

	pthread_mutex_lock(&s->lock);
	while (drop_first(s, GUEST_STRANGER) || drop_first(s, GUEST_IDLE))
		;
	for (struct list *pos = s->guests[GUEST_BUSY].next; pos != &s->guests[GUEST_BUSY]; pos = pos->next)
		shutdown(container_of(pos, struct guest, all)->sock.fd, SHUT_RDWR);
	pthread_mutex_unlock(&s->lock);
	do {
		reap(s);
		pthread_mutex_lock(&s->lock);
		any = s->n_threads;
		pthread_mutex_unlock(&s->lock);
		if (any)
			eventfd_read(s->wake_fd, &n);
	} while (any);
}

static void *listen_main(void *arg)
{
	struct data_server *s = arg;
	struct pollfd p[2] = {{.fd = s->wake_fd, .events = POLLIN}, {.fd = s->listener}};
	bool pause = false;
	sigset_t all;
	eventfd_t n;

	/* Nobody's signals; those of connections inherit that, so sending to one that has gone raises none either. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (!is_over(s)) {
		p[1].events = !pause && has_room(s) ? POLLIN : 0;
		poll(p, 2, pause ? PAUSE_MS : -1);
		pause = false;
		if (p[0].revents)
			eventfd_read(s->wake_fd, &n);
		reap(s);
		if (p[1].revents & POLLIN)
			pause = !let_in(s);
	}
	end(s);
	return NULL;
}

/* ---- start and stop ------------------------------------------------------------------------------------------- */

static void set_defaults(struct data_server_config *c)
{
	c->max_connections = c->max_connections ? c->max_connections : 256;
	c->max_strangers = c->max_strangers ? c->max_strangers : 64;
	c->handshake_ms = c->handshake_ms ? c->handshake_ms : 5000;
	c->silence_ms = c->silence_ms ? c->silence_ms : 5000;
	c->min_rate = c->min_rate ? c->min_rate : 1u << 20;
	c->idle_ms = c->idle_ms ? c->idle_ms : 60000;
}

static void server_free(struct data_server *s)
{
	if (s->listener >= 0)
		close(s->listener);
	if (s->wake_fd >= 0)
		close(s->wake_fd);
	pthread_mutex_destroy(&s->lock);
	sodium_memzero(&s->desk.key, sizeof(s->desk.key));
	free(s);
}

static int run(struct data_server *s, const char *listen, const struct sockaddr_storage *at, struct errmsg *e)
{
	int r;

	s->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (s->wake_fd < 0)
		return errmsg_set(e, -errno, "cannot make an eventfd: %s", strerror(errno));
	s->listener = sock_listen(at, &s->port);
	if (s->listener < 0)
		return errmsg_set(e, s->listener, "listen %s: %s", listen, strerror(-s->listener));
	r = start_thread(&s->thread, listen_main, s);
	return r < 0 ? errmsg_set(e, r, "cannot start the thread for data connections: %s", strerror(-r)) : 0;
}

int data_server_start(const struct data_server_config *cfg, uint64_t tag, struct data_server **ret, struct errmsg *e)
{
	struct data_server *s = calloc(1, sizeof(*s));
	struct sockaddr_storage at;
	int r;

	if (!s)
		return errmsg_set(e, -ENOMEM, "out of memory");
	s->desk.cfg = *cfg;
	set_defaults(&s->desk.cfg);
	s->desk.cfg.listen = s->desk.cfg.key_file = NULL; /* the caller's, and of no use any more */
	atomic_init(&s->desk.tag, tag);
	s->listener = s->wake_fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	for (int k = 0; k < GUEST_STATES; k++)
		list_init(&s->guests[k]);
	r = listen_read(cfg->listen, cfg->key_file, &at, &s->desk.key, e);
	if (!r)
		r = run(s, cfg->listen, &at, e);
	if (r < 0) {
		server_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct data_server *data_server_stop(struct data_server *s)
{
	if (!s)
		return NULL;
	pthread_mutex_lock(&s->lock);
	s->over = true;
	pthread_mutex_unlock(&s->lock);
	wake(s);
	pthread_join(s->thread, NULL);
	server_free(s);
	return NULL;
}

void data_server_set_tag(struct data_server *s, uint64_t tag)
{
	atomic_store(&s->desk.tag, tag);
}

uint16_t data_server_port(const struct data_server *s)
{
	return s->port;
}

static uint64_t get(atomic_ullong *n)
{
	return atomic_load_explicit(n, memory_order_relaxed);
}

void data_server_get_stats(struct data_server *s, struct data_server_stats *ret)
{
	*ret = (struct data_server_stats){
	    .accepted = get(&s->stats.accepted),
	    .refused = get(&s->stats.refused),
	    .strangers = get(&s->stats.strangers),
	    .malformed = get(&s->stats.malformed),
	    .pulls = get(&s->desk.stats.pulls),
	    .bytes = get(&s->desk.stats.bytes),
	    .denied = get(&s->desk.stats.denied),
	    .stale = get(&s->desk.stats.stale),
	    .missing = get(&s->desk.stats.missing),
	    .slow = get(&s->desk.stats.slow),
	    .broken = get(&s->desk.stats.broken),
	    .failed = get(&s->desk.stats.failed),
	};
	pthread_mutex_lock(&s->lock);
	ret->connections = s->n_guests - s->n_strangers;
	pthread_mutex_unlock(&s->lock);
}
