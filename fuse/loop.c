/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker threads: each reads a request from the kernel, starts it, and reads the next. A worker owns the buffer
 * that the request lies in, and a scratch buffer for bytes on their way out; an op that must wait takes them along.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "store/config.h"

#ifdef WITH_TSAN
char tsan_kernel;
#endif

#define SCRATCH_ALIGN 4096
#define NOMEM_WAIT_NS (20 * NS_PER_MS)

struct worker {
	struct fs *fs;
	pthread_t thread;
	struct fuse_buf buf; /* mem: libfuse allocates it where it is NULL */
	void *scratch;
	struct op *lent_message, *lent_scratch; /* the op that uses it now */
};

struct workers {
	unsigned n;
	struct worker w[CONFIG_FUSE_THREADS_MAX];
};

static _Thread_local struct worker *self;

void worker_lend_message(struct op *op)
{
	self->lent_message = op;
}

void *worker_lend_scratch(struct op *op)
{
	if (!self->scratch)
		self->scratch = aligned_alloc(SCRATCH_ALIGN, FS_IO_MAX);
	self->lent_scratch = op;
	return self->scratch;
}

void worker_give_lent(struct op *op)
{
	if (self->lent_message == op) {
		op->op_mem[0] = self->buf.mem;
		self->buf.mem = NULL;
	}
	if (self->lent_scratch == op) {
		op->op_mem[1] = self->scratch;
		self->scratch = NULL;
	}
	worker_forget_lent();
}

void worker_forget_lent(void)
{
	self->lent_message = self->lent_scratch = NULL;
}

/*
 * Cancelled only while it waits for a request: whatever it has read, it starts. No address of a local is taken here or
 * in worker_main(): AddressSanitizer would guard it, and not know that a cancelled thread has left the frame.
 */
static int receive(struct fs *fs, struct worker *w)
{
	int r;

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	r = fuse_session_receive_buf(fs->se, &w->buf);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return r;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct fs *fs = w->fs;
	int r = 0;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	self = w;
	while (!fuse_session_exited(fs->se)) {
		r = receive(fs, w);
		if (r == -EINTR || r == -EAGAIN)
			continue;
		if (r == -ENOMEM) {
			/* For the buffer: the request stays where it is, and ending would lose all that is stored. */
			nanosleep(&(struct timespec){.tv_nsec = NOMEM_WAIT_NS}, NULL);
			continue;
		}
		if (r <= 0)
			break;
		tsan_request_received();
		fuse_session_process_buf(fs->se, &w->buf);
		/* The kernel sends nothing else before INIT is answered. */
		if (!atomic_load_explicit(&fs->init_done, memory_order_relaxed) && atomic_load(&fs->init_come)) {
			atomic_store(&fs->init_done, true);
			sem_post(&fs->wake);
		}
	}
	if (r < 0) {
		log_error("reading requests from the kernel failed, unmounting: %s", strerror(-r));
		atomic_store(&fs->loop_error, r);
	}
	atomic_store(&fs->ended, true);
	sem_post(&fs->wake);
	return NULL;
}

/*
 * The kernel wakes the worker that has idled longest, so all of them take turns and the bytes of a write come to lie in
 * a buffer that is in no cache: no more than can run at once and a little.
 */
unsigned fs_threads(uint64_t wanted)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (wanted)
		return wanted < CONFIG_FUSE_THREADS_MAX ? (unsigned)wanted : CONFIG_FUSE_THREADS_MAX;
	return cpus < 2 ? 4 : cpus > 14 ? 16 : (unsigned)cpus + 2;
}

static int start_all(struct fs *fs, struct workers *ws, unsigned n)
{
	char name[16];
	int r = 0;

	for (; ws->n < n; ws->n++) {
		struct worker *w = &ws->w[ws->n];

		w->fs = fs;
		r = pthread_create(&w->thread, NULL, worker_main, w);
		if (r)
			break;
		snprintf(name, sizeof(name), "fuse-%u", ws->n);
		pthread_setname_np(w->thread, name);
	}
	return ws->n ? 0 : -r; /* fewer than wanted will do */
}

int workers_start(struct fs *fs, struct errmsg *e)
{
	unsigned n = fs_threads(fs->cfg.threads);
	struct workers *ws = calloc(1, sizeof(*ws));
	sigset_t all, old;
	void *frame;
	int r;

	/*
	 * pthread_cancel() loads the unwinder when it is first called, and aborts where it cannot, for want of memory
	 * say. This loads the same, and fails.
	 */
	if (!ws || backtrace(&frame, 1) != 1) {
		free(ws);
		return errmsg_set(e, -ENOMEM, "out of memory");
	}
	fs->workers = ws;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = start_all(fs, ws, n);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r < 0 ? errmsg_set(e, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

void workers_stop(struct fs *fs)
{
	struct workers *ws = fs->workers;

	if (!ws)
		return;
	fuse_session_exit(fs->se);
	for (unsigned i = 0; i < ws->n; i++)
		pthread_cancel(ws->w[i].thread);
	for (unsigned i = 0; i < ws->n; i++) {
		pthread_join(ws->w[i].thread, NULL);
		free(ws->w[i].buf.mem);
		free(ws->w[i].scratch);
	}
	free(ws);
	fs->workers = NULL;
}
