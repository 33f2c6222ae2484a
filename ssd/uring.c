/* SPDX-License-Identifier: Apache-2.0 */
#include "ssd/io.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct uring {
	struct io_uring ring;
	bool ring_up;
	int efd;    /* wake() writes it; a poll request of the ring sees that */
	bool armed; /* that request is in flight */
};

static void uring_close(void *io)
{
	struct uring *u = io;

	if (!u)
		return;
	if (u->ring_up)
		io_uring_queue_exit(&u->ring);
	if (u->efd >= 0)
		close(u->efd);
	free(u);
}

static int ring_init(struct io_uring *ring, unsigned entries)
{
	/* Completions are only ever looked for by the thread that submits: it needs no interrupt to run their tail. */
	int r = io_uring_queue_init(entries, ring, IORING_SETUP_COOP_TASKRUN);

	return r == -EINVAL ? io_uring_queue_init(entries, ring, 0) : r;
}

static int uring_open(void *ctx, const int *fds, unsigned n_fds, unsigned depth, void **ret)
{
	struct uring *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	u->efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	r = u->efd < 0 ? -errno : ring_init(&u->ring, depth + 1);
	if (r < 0)
		goto fail;
	u->ring_up = true;
	r = io_uring_register_files(&u->ring, fds, n_fds);
	if (r < 0)
		goto fail;
	*ret = u;
	return 0;
fail:
	uring_close(u);
	return r;
}

static struct io_uring_sqe *get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe;

	/* The queue holds depth + 1: it is full only while the kernel has refused to take what it holds. */
	while (!(sqe = io_uring_get_sqe(&u->ring)))
		io_uring_submit(&u->ring);
	return sqe;
}

static void uring_submit(void *io, struct ssd_io_req *req)
{
	struct io_uring_sqe *sqe = get_sqe(io);

	if (req->write)
		io_uring_prep_write(sqe, (int)req->file, req->buf, req->len, req->off);
	else
		io_uring_prep_read(sqe, (int)req->file, req->buf, req->len, req->off);
	sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(sqe, req);
}

/* A poll rather than a read of the eventfd: it leaves no buffer with the kernel when the ring is closed. */
static void arm_wake(struct uring *u)
{
	struct io_uring_sqe *sqe;

	if (u->armed)
		return;
	sqe = get_sqe(u);
	io_uring_prep_poll_add(sqe, u->efd, POLLIN);
	io_uring_sqe_set_data(sqe, NULL);
	u->armed = true;
}

static void wake_seen(struct uring *u)
{
	uint64_t count;

	u->armed = false;
	/* EAGAIN: a poll that ended for another reason. It is armed again either way. */
	if (read(u->efd, &count, sizeof(count)) < 0)
		count = 0;
}

static int reap(struct uring *u, struct ssd_io_req **ret, unsigned max)
{
	struct io_uring_cqe *cqe;
	unsigned n = 0;

	while (n < max && !io_uring_peek_cqe(&u->ring, &cqe)) {
		struct ssd_io_req *req = io_uring_cqe_get_data(cqe);

		if (req) {
			req->res = cqe->res;
			ret[n++] = req;
		} else {
			wake_seen(u);
		}
		io_uring_cqe_seen(&u->ring, cqe);
	}
	return (int)n;
}

static int uring_wait(void *io, struct ssd_io_req **ret, unsigned max)
{
	struct uring *u = io;
	int r, n;

	arm_wake(u);
	r = io_uring_submit_and_wait(&u->ring, 1);
	n = reap(u, ret, max);
	/* A signal, or the kernel short of memory for a moment: what is in flight is untouched, the caller comes back.
	 */
	if (n || r >= 0 || r == -EINTR || r == -EAGAIN || r == -EBUSY)
		return n;
	return r;
}

static void uring_wake(void *io)
{
	struct uring *u = io;
	uint64_t one = 1;

	/* Fails only when the counter is full, and then it wakes as well. */
	if (write(u->efd, &one, sizeof(one)) < 0)
		one = 0;
}

const struct ssd_io_ops ssd_io_uring = {
    .open = uring_open,
    .submit = uring_submit,
    .wait = uring_wait,
    .wake = uring_wake,
    .close = uring_close,
};
