/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ctl.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/list.h"
#include "common/log.h"
#include "fuse/calls.h"
#include "fuse/ctl_ops.h"
#include "net/ctl.h"

#define IDLE_TIMEOUT (60 * NS_PER_SEC)
/* A peer that does not take its answer. */
#define SEND_TIMEOUT (5 * NS_PER_SEC)

struct ctl {
	struct ctl_config cfg;
	char *path;
	int listener, wake;
	struct calls *calls;
	pthread_t acceptor;
	pthread_mutex_t lock;
	pthread_cond_t none;	 /* lock: the last connection has ended */
	struct list connections; /* lock */
	unsigned n_connections;	 /* lock */
	bool stopping;		 /* lock */
};

struct connection {
	struct ctl *ctl;
	struct ctl_stream *stream; /* its thread's; the socket may be shut down under ctl.lock */
	struct list link;	   /* ctl.lock */
	struct ucred peer;
};

static int send_answer(struct connection *cn, json_t *answer)
{
	int r = answer ? ctl_send(cn->stream, clock_ns() + SEND_TIMEOUT, answer) : -ENOMEM;

	json_decref(answer);
	return r;
}

static int stream_part(void *arg, json_t *part)
{
	return send_answer(arg, part);
}

static json_t *malformed(int err)
{
	return ctl_error(err,
			 err == -EMSGSIZE ? "the request is too long" : "the request is not a JSON object on a line");
}

/* One request; anything but 0 ends the connection. */
static int serve_one(struct connection *cn)
{
	struct ctl_request r = {
	    .cfg = &cn->ctl->cfg,
	    .calls = cn->ctl->calls,
	    .uid = cn->peer.uid,
	    .gid = cn->peer.gid,
	    .may_change = cn->peer.uid == 0 || cn->peer.uid == geteuid(),
	    .stream = stream_part,
	    .stream_arg = cn,
	};
	json_t *body;
	int err;

	err = ctl_recv(cn->stream, clock_ns() + IDLE_TIMEOUT, &body);
	if (err == -EBADMSG || err == -EMSGSIZE)
		send_answer(cn, malformed(err));
	if (err)
		return err;
	r.body = body;
	err = send_answer(cn, ctl_handle(&r));
	json_decref(body);
	return err;
}

static void connection_end(struct connection *cn)
{
	struct ctl *c = cn->ctl;

	pthread_mutex_lock(&c->lock);
	list_del(&cn->link);
	/* Closed under the lock: ctl_stop() shuts down sockets that it finds in the list. */
	ctl_stream_free(cn->stream);
	free(cn);
	if (!--c->n_connections)
		pthread_cond_signal(&c->none);
	pthread_mutex_unlock(&c->lock);
}

static void *connection_main(void *arg)
{
	struct connection *cn = arg;

	while (!serve_one(cn))
		;
	connection_end(cn);
	return NULL;
}

static int connection_admit(struct ctl *c, struct connection *cn)
{
	int err = 0;

	pthread_mutex_lock(&c->lock);
	if (c->stopping)
		err = -ESHUTDOWN;
	else if (c->n_connections >= CTL_MAX_CONNECTIONS)
		err = -EBUSY;
	else
		c->n_connections++;
	if (!err)
		list_add_tail(&cn->link, &c->connections);
	pthread_mutex_unlock(&c->lock);
	return err;
}

static void refuse(struct connection *cn, int err)
{
	if (err == -EBUSY)
		send_answer(cn, ctl_error(err, "fluxkvd has as many control connections as it takes; try again later"));
	ctl_stream_free(cn->stream);
	free(cn);
}

static int start_thread(struct connection *cn)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 512 * 1024);
	err = pthread_create(&thread, &attr, connection_main, cn);
	pthread_attr_destroy(&attr);
	return err;
}

static void connection_start(struct ctl *c, int fd)
{
	struct connection *cn = calloc(1, sizeof(*cn));
	socklen_t len = sizeof(cn->peer);
	int err;

	if (!cn) {
		close(fd);
		return;
	}
	cn->ctl = c;
	cn->stream = ctl_stream_new(fd, CTL_REQUEST_MAX);
	if (!cn->stream || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cn->peer, &len)) {
		refuse(cn, -ENOMEM);
		return;
	}
	err = connection_admit(c, cn);
	if (err) {
		refuse(cn, err);
		return;
	}
	if (start_thread(cn))
		connection_end(cn);
}

static void *acceptor_main(void *arg)
{
	struct ctl *c = arg;

	for (;;) {
		struct pollfd p[2] = {{.fd = c->wake, .events = POLLIN}, {.fd = c->listener, .events = POLLIN}};
		int fd;

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents)
			return NULL;
		fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0) {
			connection_start(c, fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			/* The peer stays in the queue; without a pause this would spin until something is freed. */
			log_warn("control socket: cannot accept: %s, trying again", strerror(errno));
			poll(p, 1, 100);
		}
	}
}

/* A socket file that is left from a crash may go; one that answers may not. */
static int remove_dead_socket(const struct sockaddr_un *sa)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (lstat(sa->sun_path, &st))
		err = errno == ENOENT ? 0 : -errno;
	else if (!S_ISSOCK(st.st_mode))
		err = -EEXIST;
	else if (!connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) || errno != ECONNREFUSED)
		err = -EADDRINUSE;
	else if (unlink(sa->sun_path))
		err = -errno;
	close(fd);
	return err;
}

static int bind_listen(struct ctl *c, const struct sockaddr_un *sa)
{
	c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->listener < 0)
		return -errno;
	/* Nobody can connect before listen(2), so the mode is right from the first connection on. */
	if (bind(c->listener, (const struct sockaddr *)sa, sizeof(*sa)))
		return -errno;
	if (chmod(sa->sun_path, c->cfg.mode) || listen(c->listener, CTL_MAX_CONNECTIONS)) {
		int err = -errno;

		unlink(sa->sun_path);
		return err;
	}
	return 0;
}

static int listen_on(struct ctl *c, struct errmsg *e)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int err;

	if (strlen(c->path) >= sizeof(sa.sun_path))
		return errmsg_set(e, -ENAMETOOLONG,
				  "control socket %s: the path is longer than %zu bytes; choose a shorter run_dir",
				  c->path, sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, c->path, strlen(c->path) + 1);
	err = remove_dead_socket(&sa);
	if (!err)
		err = bind_listen(c, &sa);
	return err ? errmsg_set(e, err, "control socket %s: %s", c->path, strerror(-err)) : 0;
}

/* Frees all that is not running; the socket file is gone, or another's. */
static struct ctl *ctl_free(struct ctl *c)
{
	if (c->listener >= 0)
		close(c->listener);
	if (c->wake >= 0)
		close(c->wake);
	calls_free(c->calls);
	pthread_cond_destroy(&c->none);
	pthread_mutex_destroy(&c->lock);
	free(c->path);
	free(c);
	return NULL;
}

static int start_acceptor(struct ctl *c)
{
	sigset_t all, old;
	int err;

	/* Its connections inherit the mask: signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&c->acceptor, NULL, acceptor_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

int ctl_start(const struct ctl_config *cfg, struct ctl **ret, struct errmsg *e)
{
	struct ctl *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return errmsg_set(e, -ENOMEM, "out of memory");
	c->cfg = *cfg;
	c->listener = -1;
	list_init(&c->connections);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->none, NULL);
	c->path = strdup(cfg->path);
	c->calls = calls_new(cfg->node);
	c->wake = eventfd(0, EFD_CLOEXEC);
	if (!c->path || !c->calls || c->wake < 0) {
		err = errmsg_set(e, c->wake < 0 ? -errno : -ENOMEM, "control socket: out of memory or descriptors");
		goto free_c;
	}
	err = listen_on(c, e);
	if (err)
		goto free_c;
	err = start_acceptor(c);
	if (err) {
		errmsg_set(e, err, "control socket: cannot start a thread: %s", strerror(-err));
		unlink(c->path);
		goto free_c;
	}
	*ret = c;
	return 0;
free_c:
	ctl_free(c);
	return err;
}

struct ctl *ctl_stop(struct ctl *c)
{
	struct list *pos, *tmp;

	if (!c)
		return NULL;
	unlink(c->path);
	eventfd_write(c->wake, 1);
	pthread_join(c->acceptor, NULL);
	pthread_mutex_lock(&c->lock);
	c->stopping = true;
	list_for_each(pos, tmp, &c->connections)
	    shutdown(ctl_stream_fd(container_of(pos, struct connection, link)->stream), SHUT_RD);
	pthread_mutex_unlock(&c->lock);
	calls_cancel(c->calls);
	pthread_mutex_lock(&c->lock);
	while (c->n_connections)
		pthread_cond_wait(&c->none, &c->lock);
	pthread_mutex_unlock(&c->lock);
	return ctl_free(c);
}
