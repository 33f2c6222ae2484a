/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

void *op_new(fuse_req_t req, size_t size, const char *what, uint64_t ino)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct fs *fs = req_fs(req);
	struct op *op = calloc(1, size);

	if (!op) {
		req_err(req, -ENOMEM);
		return NULL;
	}
	op->op_fs = fs;
	op->op_what = what;
	op->op_ino = ino;
	op->op_tid = ctx->pid;
	op->op_uid = ctx->uid;
	op->op_gid = ctx->gid;
	op->op_req = req;
	pthread_mutex_init(&op->op_lock, NULL);
	atomic_init(&op->op_refs, 2);
	list_init(&op->op_parked);
	count_add(fs, requests, 1);
	count_add(fs, in_flight, 1);
	return op;
}

void *op_new_on(fuse_req_t req, size_t size, const char *what, uint64_t ino, struct handle *h)
{
	struct op *op = op_new(req, size, what, ino);

	if (op) {
		handle_ref(h);
		op->op_handle = h;
	}
	return op;
}

void op_ref(struct op *op)
{
	atomic_fetch_add_explicit(&op->op_refs, 1, memory_order_relaxed);
}

void op_unref(struct op *op)
{
	struct fs *fs = op->op_fs;

	if (atomic_fetch_sub_explicit(&op->op_refs, 1, memory_order_acq_rel) != 1)
		return;
	if (op->op_fini)
		op->op_fini(op);
	handle_unref(fs, op->op_handle);
	pthread_mutex_destroy(&op->op_lock);
	free(op->op_mem[0]);
	free(op->op_mem[1]);
	free(op);
	/* The last touch of fs: fs_unmount() waits for it. */
	atomic_fetch_sub_explicit(&fs->count.in_flight, 1, memory_order_release);
}

/* Under libfuse's lock of the request: only marks it. The keeper finds out whether the task is being killed. */
static void on_interrupt(fuse_req_t req, void *data)
{
	struct op *op = data;

	atomic_store_explicit(&op->op_interrupted, true, memory_order_release);
	keeper_kick(op->op_fs->keeper);
}

static void park(struct op *op)
{
	struct fs *fs = op->op_fs;

	pthread_mutex_lock(&op->op_lock);
	if (op->op_req) {
		op->op_watched = true;
		keeper_park(fs->keeper, op);
		if (!op->op_patient)
			fuse_req_interrupt_func(op->op_req, on_interrupt, op);
		count_add(fs, parked, 1);
	}
	pthread_mutex_unlock(&op->op_lock);
}

void op_started(struct op *op)
{
	/* Our reference alone is left: it is answered, and nobody uses what the worker lent. */
	if (atomic_load_explicit(&op->op_refs, memory_order_acquire) == 1) {
		worker_forget_lent();
	} else {
		worker_give_lent(op);
		park(op);
	}
	op_unref(op);
}

/*
 * The right to answer, which one alone gets: the request, or NULL. After the deregistration no interrupt can reach the
 * op: libfuse runs on_interrupt() under the lock that fuse_req_interrupt_func() takes.
 */
static fuse_req_t op_take(struct op *op)
{
	fuse_req_t req;
	bool watched;

	pthread_mutex_lock(&op->op_lock);
	req = op->op_req;
	op->op_req = NULL;
	watched = req && op->op_watched;
	if (watched && !op->op_patient)
		fuse_req_interrupt_func(req, NULL, NULL);
	pthread_mutex_unlock(&op->op_lock);
	if (watched)
		keeper_unpark(op->op_fs->keeper, op);
	return req;
}

static int checked_err(struct fs *fs, int err, const char *what, uint64_t ino)
{
	if (err >= 0) {
		log_error("%s of inode %llu: failed without an error, answered EIO", what, (unsigned long long)ino);
		err = -EIO;
	} else if (err == -ETIMEDOUT) {
		/* How a master failed us is not a program's concern, which knows what an I/O error is. */
		log_debug("%s of inode %llu: the master does not answer, answered EIO", what, (unsigned long long)ino);
		err = -EIO;
	} else if (err == -EIO) {
		log_error("%s of inode %llu: input/output error", what, (unsigned long long)ino);
	}
	if (err == -EIO)
		count_add(fs, errors_io, 1);
	return err;
}

/* The kernel has the answer, so fs_unmount() may close the descriptor it was written to. */
static void count_answered(struct fs *fs)
{
	atomic_fetch_add_explicit(&fs->count.answered, 1, memory_order_release);
}

/* Ends the answerer's part; r is what libfuse said of the answer, if it was ours to give. */
static int op_answered(struct op *op, bool ours, int r)
{
	if (ours)
		count_answered(op->op_fs);
	op_unref(op);
	return r;
}

/* Takes the request and sends the answer that the expression makes with it. */
#define OP_ANSWER(op, expr)                                                                                            \
	({                                                                                                             \
		fuse_req_t req = op_take(op);                                                                          \
		op_answered(op, req != NULL, req ? (expr) : -ECANCELED);                                               \
	})

int op_ok(struct op *op)
{
	return OP_ANSWER(op, fuse_reply_err(req, 0));
}

int op_err(struct op *op, int err)
{
	err = checked_err(op->op_fs, err, op->op_what, op->op_ino);
	return OP_ANSWER(op, fuse_reply_err(req, -err));
}

bool op_fail(struct op *op, int err)
{
	fuse_req_t req = op_take(op);

	if (!req)
		return false;
	fuse_reply_err(req, -err);
	count_answered(op->op_fs);
	return true;
}

int op_entry(struct op *op, const struct fuse_entry_param *e)
{
	return OP_ANSWER(op, fuse_reply_entry(req, e));
}

int op_create(struct op *op, const struct fuse_entry_param *e, const struct fuse_file_info *fi)
{
	return OP_ANSWER(op, fuse_reply_create(req, e, fi));
}

int op_open(struct op *op, const struct fuse_file_info *fi)
{
	return OP_ANSWER(op, fuse_reply_open(req, fi));
}

int op_attr(struct op *op, const struct stat *st, double timeout)
{
	return OP_ANSWER(op, fuse_reply_attr(req, st, timeout));
}

int op_buf(struct op *op, const void *buf, size_t len)
{
	return OP_ANSWER(op, fuse_reply_buf(req, buf, len));
}

int op_iov(struct op *op, const struct iovec *iov, int n)
{
	return OP_ANSWER(op, fuse_reply_iov(req, iov, n));
}

int op_write(struct op *op, size_t n)
{
	return OP_ANSWER(op, fuse_reply_write(req, n));
}

int op_xattr_size(struct op *op, size_t n)
{
	return OP_ANSWER(op, fuse_reply_xattr(req, n));
}

int op_reply_statfs(struct op *op, const struct statvfs *st)
{
	return OP_ANSWER(op, fuse_reply_statfs(req, st));
}

void req_err(fuse_req_t req, int err)
{
	fuse_reply_err(req, -checked_err(req_fs(req), err, "request", 0));
}

void req_ok(fuse_req_t req)
{
	fuse_reply_err(req, 0);
}

void op_done_cb(void *arg, int err)
{
	if (err)
		op_err(arg, err);
	else
		op_ok(arg);
}
