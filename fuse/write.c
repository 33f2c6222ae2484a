/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing, and what publishes. The bytes of a write lie in the worker's request buffer; the store copies them into the
 * version's memory file. A write that must wait for memory takes the buffer along.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fuse/task.h"

struct write_op {
	struct op op;
	const void *buf;
	size_t len;
	uint64_t off;
	struct note note;
};

static void written_cb(void *arg, int err)
{
	struct write_op *o = arg;
	struct handle *h = o->op.op_handle;
	struct fs *fs = o->op.op_fs;

	if (err) {
		op_err(&o->op, err);
		return;
	}
	count_add(fs, write_bytes, o->len);
	if (h->h_direct && atomic_load(&h->h_inode->i_cached))
		notify_pages_then_write(fs->notify, &o->note, o->off, o->len, &o->op);
	else
		op_write(&o->op, o->len);
}

static void copied_cb(void *arg)
{
	struct write_op *o = arg;

	op_unref(&o->op);
}

static void write_now(struct write_op *o)
{
	/* Answered or not, the op owns the buffer until the store has done with it. */
	op_ref(&o->op);
	put_write(o->op.op_handle->h_put, o->off, o->buf, o->len, written_cb, copied_cb, o);
}

static void suid_dropped_cb(void *arg, int err)
{
	struct write_op *o = arg;

	if (err)
		op_err(&o->op, err);
	else
		write_now(o);
}

/*
 * The kernel takes the set-id bits away before a write through its page cache; of a direct write it only tells in a
 * flag that libfuse does not hand on. The first write of each handle does it.
 */
static void drop_suid(struct write_op *o)
{
	struct put *put = o->op.op_handle->h_put;
	struct msg_attr a;

	put_getattr(put, &a);
	a.mode &= (a.mode & S_IXGRP) ? ~(uint32_t)(S_ISUID | S_ISGID) : ~(uint32_t)S_ISUID;
	put_setattr(put, &a, MSG_SET_MODE, suid_dropped_cb, o);
}

void fs_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle *h = fi_handle(fi);
	struct write_op *o;

	count_add(req_fs(req), writes, 1);
	if (h->h_kind != HANDLE_PUT) {
		req_err(req, -EBADF);
		return;
	}
	o = op_new_on(req, sizeof(*o), "write", ino, h);
	if (!o)
		return;
	o->buf = buf;
	o->len = size;
	o->off = (uint64_t)off;
	worker_lend_message(&o->op);
	if (atomic_load_explicit(&h->h_drop_suid, memory_order_relaxed) && atomic_exchange(&h->h_drop_suid, false))
		drop_suid(o);
	else
		write_now(o);
	op_started(&o->op);
}

/* close(2) of one descriptor. Its answer is what close returns, so even a killed task waits for it. */
void fs_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h = fi_handle(fi);
	struct op *op;

	count_add(req_fs(req), flushes, 1);
	if (h->h_kind != HANDLE_PUT || !h->h_writable) {
		req_ok(req);
		return;
	}
	op = op_new_on(req, sizeof(*op), "flush", ino, h);
	if (!op)
		return;
	op->op_patient = true;
	put_flush(h->h_put, task_dies_by_signal(op->op_tid), op_done_cb, op);
	op_started(op);
}

void fs_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct handle *h = fi_handle(fi);
	struct op *op;

	if (h->h_kind != HANDLE_PUT) {
		req_ok(req);
		return;
	}
	op = op_new_on(req, sizeof(*op), "fsync", ino, h);
	if (!op)
		return;
	put_sync(h->h_put, op_done_cb, op);
	op_started(op);
}

void fs_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
	struct handle *h = fi_handle(fi);
	struct op *op;

	if (h->h_kind != HANDLE_PUT || (mode & ~FALLOC_FL_KEEP_SIZE)) {
		req_err(req, h->h_kind == HANDLE_PUT ? -EOPNOTSUPP : -EBADF);
		return;
	}
	op = op_new_on(req, sizeof(*op), "fallocate", ino, h);
	if (!op)
		return;
	put_allocate(h->h_put, (uint64_t)offset, (uint64_t)length, mode & FALLOC_FL_KEEP_SIZE, op_done_cb, op);
	op_started(op);
}
