/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading. A published version's bytes go from the mapped memory file straight into the caller's pages, with one copy
 * that the kernel makes; the version is pinned meanwhile. Where a block must be waited for, what comes before it is
 * copied once more and let go of first. A private version is read through a buffer, as its bytes may
 * move while it is written.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IOV_MAX_PARTS 1020 /* the answer's header takes one of the kernel's 1024 */

/* ---- published ---------------------------------------------------------------------------------------------- */

struct read_op {
	struct op op;
	struct version *version; /* the handle's */
	uint64_t off;
	size_t size, left;
	struct version_read first; /* all there is to most reads */
	struct version_read *more; /* the further ones, n_more of them */
	size_t n_more, room;
	int n_iov;
	char *buf; /* what came before something that had to be waited for; NULL: nothing did */
	size_t gathered;
};

static void release_parts(struct read_op *o)
{
	if (o->n_iov)
		version_read_done(&o->first);
	for (size_t i = 0; i < o->n_more; i++)
		version_read_done(&o->more[i]);
	o->n_more = 0;
	o->n_iov = 0;
}

static void read_op_fini(struct op *op)
{
	struct read_op *o = container_of(op, struct read_op, op);

	release_parts(o);
	free(o->more);
	free(o->buf);
}

static void gather_part(struct read_op *o, const struct version_read *r)
{
	for (int i = 0; i < r->n_iov; i++) {
		memcpy(o->buf + o->gathered, r->iov[i].iov_base, r->iov[i].iov_len);
		o->gathered += r->iov[i].iov_len;
	}
}

/*
 * Copies the parts and lets go of them: who waits must have nothing pinned, or those who do would wait for each other's
 * memory.
 */
static int gather(struct read_op *o)
{
	if (!o->n_iov)
		return 0;
	if (!o->buf)
		o->buf = malloc(o->size);
	if (!o->buf)
		return -ENOMEM;
	gather_part(o, &o->first);
	for (size_t k = 0; k < o->n_more; k++)
		gather_part(o, &o->more[k]);
	release_parts(o);
	return 0;
}

/* A read over several blocks: the parts in one answer. */
static void answer_parts(struct read_op *o)
{
	struct iovec *iov = malloc((size_t)o->n_iov * sizeof(*iov));
	int n = 0;

	if (!iov) {
		op_err(&o->op, -ENOMEM);
		return;
	}
	for (int i = 0; i < o->first.n_iov; i++)
		iov[n++] = o->first.iov[i];
	for (size_t k = 0; k < o->n_more; k++)
		for (int i = 0; i < o->more[k].n_iov; i++)
			iov[n++] = o->more[k].iov[i];
	op_iov(&o->op, iov, n);
	free(iov);
}

static void answer_read(struct read_op *o)
{
	if (o->buf) {
		gather(o);
		op_buf(&o->op, o->buf, o->gathered);
	} else if (o->n_more) {
		answer_parts(o);
	} else {
		op_iov(&o->op, o->first.iov, o->first.n_iov);
	}
}

/* Takes over r. */
static int add_part(struct read_op *o, struct version_read *r)
{
	if (!o->n_iov) {
		o->first = *r;
	} else {
		if (o->n_more == o->room) {
			size_t room = o->room ? o->room * 2 : 8;
			struct version_read *more = realloc(o->more, room * sizeof(*more));

			if (!more) {
				version_read_done(r);
				return -ENOMEM;
			}
			o->more = more;
			o->room = room;
		}
		o->more[o->n_more++] = *r;
	}
	o->n_iov += r->n_iov;
	o->off += r->len;
	o->left -= r->len;
	count_add(o->op.op_fs, read_bytes, r->len);
	return 0;
}

static void read_cb(void *arg, int err, struct version_read *r);

/* Goes on until all is there, or something must be waited for. */
static void read_on(struct read_op *o)
{
	struct version_read r;
	int err = 0;

	while (err == 0 && o->left && version_read_now(o->version, o->off, o->left, &r)) {
		if (o->n_iov + r.n_iov > IOV_MAX_PARTS)
			err = gather(o);
		if (err < 0)
			version_read_done(&r);
		else
			err = add_part(o, &r);
	}
	if (err == 0 && o->left)
		err = gather(o);
	if (err < 0)
		op_err(&o->op, err);
	else if (o->left)
		version_read(o->version, o->off, o->left, read_cb, o);
	else
		answer_read(o);
}

static void read_cb(void *arg, int err, struct version_read *r)
{
	struct read_op *o = arg;

	if (err == 0)
		err = add_part(o, r);
	if (err < 0)
		op_err(&o->op, err);
	else
		read_on(o);
}

static void read_version(fuse_req_t req, fuse_ino_t ino, struct handle *h, size_t size, off_t off)
{
	struct read_op *o = op_new_on(req, sizeof(*o), "read", ino, h);
	uint64_t end = version_size(h->h_version);

	if (!o)
		return;
	o->op.op_fini = read_op_fini;
	o->version = h->h_version;
	o->off = (uint64_t)off;
	if (o->off < end)
		o->left = size < end - o->off ? size : (size_t)(end - o->off);
	o->size = o->left;
	if (o->left)
		read_on(o);
	else
		op_buf(&o->op, NULL, 0);
	op_started(&o->op);
}

/* ---- private ------------------------------------------------------------------------------------------------ */

struct read_put_op {
	struct op op;
	void *buf; /* the worker's scratch, which the op keeps if it waits */
};

static void read_put_cb(void *arg, int err, size_t n)
{
	struct read_put_op *o = arg;

	if (err) {
		op_err(&o->op, err);
		return;
	}
	count_add(o->op.op_fs, read_bytes, n);
	op_buf(&o->op, o->buf, n);
}

static void read_put(fuse_req_t req, fuse_ino_t ino, struct handle *h, size_t size, off_t off)
{
	struct read_put_op *o = op_new_on(req, sizeof(*o), "read", ino, h);

	if (!o)
		return;
	o->buf = worker_lend_scratch(&o->op);
	if (!o->buf)
		op_err(&o->op, -ENOMEM);
	else
		put_read(h->h_put, (uint64_t)off, o->buf, size < FS_IO_MAX ? size : FS_IO_MAX, read_put_cb, o);
	op_started(&o->op);
}

static void read_text(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
	size_t left = (uint64_t)off < h->h_text_len ? h->h_text_len - (size_t)off : 0;
	struct fs *fs = req_fs(req);

	/* Who has its answer may close the file before the call that answered has returned. */
	handle_ref(h);
	fuse_reply_buf(req, left ? h->h_text + off : NULL, size < left ? size : left);
	handle_unref(fs, h);
}

void fs_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle *h = fi_handle(fi);

	count_add(req_fs(req), reads, 1);
	switch (h->h_kind) {
	case HANDLE_VERSION:
		read_version(req, ino, h, size, off);
		return;
	case HANDLE_PUT:
		read_put(req, ino, h, size, off);
		return;
	case HANDLE_TEXT:
		read_text(req, h, size, off);
		return;
	case HANDLE_DIR:
		break;
	}
	req_err(req, -EISDIR);
}
