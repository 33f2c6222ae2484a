/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/impl.h"

#include <errno.h>
#include <string.h>

#define TRIES 16 /* the name has to change under us each time */

void *name_op_new(fuse_req_t req, size_t size, const char *what, fuse_ino_t dir, const char *name)
{
	struct name_op *o;
	size_t len = strlen(name);

	if (len > MSG_NAME_MAX) {
		req_err(req, -ENAMETOOLONG);
		return NULL;
	}
	o = op_new(req, size, what, dir);
	if (!o)
		return NULL;
	o->dir = dir;
	memcpy(o->name, name, len + 1);
	return o;
}

void name_op_entry_cb(void *arg, int err, const struct node_entry *e)
{
	struct name_op *o = arg;

	if (err)
		op_err(&o->op, err);
	else
		reply_entry(&o->op, &e->attr, e->put, o->dir, o->name, false);
}

struct lookup_op {
	struct name_op n;
	unsigned need; /* of an open that was sent back to this name */
	unsigned tries;
	struct msg_attr attr;
	struct version *version; /* what is on its way here, for the open */
};

static void look(struct lookup_op *o);

/* "No such name", remembered by the kernel for a while. */
static void answer_negative(struct lookup_op *o)
{
	struct fs *fs = o->n.op.op_fs;
	struct fuse_entry_param e = {.entry_timeout = fs->cfg.negative_timeout};

	if (fs->cfg.negative_timeout > 0 && !node_name_unsettled(fs->node, o->n.dir, o->n.name))
		op_entry(&o->n.op, &e);
	else
		op_err(&o->n.op, -ENOENT);
}

static void answer(struct lookup_op *o, const struct msg_attr *a, struct put *put)
{
	reply_entry(&o->n.op, a, put, o->n.dir, o->n.name, false);
}

/* What is held for the thread's open; the name may stand for something newer before that comes. */
static void answer_held(struct lookup_op *o, const struct msg_attr *a, struct put *put)
{
	reply_entry(&o->n.op, a, put, o->n.dir, o->n.name, true);
}

/* Whatever it was has just been replaced or removed. */
static void look_again(struct lookup_op *o, int err)
{
	if (++o->tries < TRIES)
		look(o);
	else
		op_err(&o->n.op, err);
}

/* Keeps what h holds for the thread's open, and answers with it. put: a reference for the answer, or NULL. */
static void hold_and_answer(struct lookup_op *o, struct hold *h, const struct msg_attr *a, struct put *put)
{
	int r = retry_hold(o->n.op.op_fs, o->n.op.op_tid, o->n.dir, o->n.name, h);

	if (r < 0) {
		hold_give_up(h);
		if (put)
			put_unref(put);
		op_err(&o->n.op, r);
		return;
	}
	answer_held(o, a, put);
}

/* The private version (a reference) is what the open will come for. */
static void hold_put(struct lookup_op *o, struct put *put)
{
	struct hold h = {.put = put, .writer = o->need & RETRY_WRITE};
	struct msg_attr a;
	int r = 0;

	put_getattr(put, &a);
	h.id = a.id;
	if (retry_is_held(o->n.op.op_fs, o->n.op.op_tid, a.id)) {
		answer_held(o, &a, put);
		return;
	}
	r = put_open(put, h.writer);
	if (!r) {
		hold_and_answer(o, &h, &a, put_ref(put));
		return;
	}
	put_unref(put);
	if (r == -ESTALE)
		look_again(o, r);
	else
		op_err(&o->n.op, r);
}

static void edit_cb(void *arg, int err, struct put *put)
{
	struct lookup_op *o = arg;

	if (!err)
		hold_put(o, put);
	else if (err == -ESTALE || err == -ENOENT)
		look_again(o, -ENOENT);
	else
		op_err(&o->n.op, err);
}

static void lookup_op_fini(struct op *op)
{
	version_close(container_of(op, struct lookup_op, n.op)->version);
}

static void version_held(struct lookup_op *o, struct version *v)
{
	struct hold h = {.id = o->attr.id, .version = v};

	hold_and_answer(o, &h, &o->attr, NULL);
}

/* An open that finds it gone would not be sent back here a second time. */
static void fetched_cb(void *arg, int err)
{
	struct lookup_op *o = arg;
	struct version *v = o->version;

	o->version = NULL;
	if (!err) {
		version_held(o, v);
		return;
	}
	version_close(v);
	if (err == -ESTALE)
		look_again(o, -ENOENT);
	else
		op_err(&o->n.op, err);
}

static void hold_version(struct lookup_op *o)
{
	struct version *v;
	int r;

	if (retry_is_held(o->n.op.op_fs, o->n.op.op_tid, o->attr.id)) {
		answer_held(o, &o->attr, NULL);
		return;
	}
	r = version_open(o->n.op.op_fs->node, &o->attr, &v);
	if (!r && version_is_away(v)) {
		o->version = v;
		version_fetch(v, fetched_cb, o);
	} else if (!r) {
		version_held(o, v);
	} else if (r == -ESTALE)
		look_again(o, -ENOENT);
	else
		op_err(&o->n.op, r);
}

/* The thread's open is sure to come now, and the kernel will not send it back a second time. */
static void prepare_open(struct lookup_op *o, struct put *put)
{
	if (put)
		hold_put(o, put);
	else if (o->need & RETRY_WRITE)
		put_edit(o->n.op.op_fs->node, o->n.dir, o->n.name, &o->attr, o->need & RETRY_TRUNCATE, edit_cb, o);
	else
		hold_version(o);
}

static void lookup_cb(void *arg, int err, const struct node_entry *e)
{
	struct lookup_op *o = arg;
	struct op *op = &o->n.op;

	o->need = retry_match(op->op_fs, op->op_tid, o->n.dir, o->n.name, err ? 0 : e->attr.id,
			      !err && e->attr.kind == MSG_KIND_FILE);
	if (err == -ENOENT) {
		answer_negative(o);
	} else if (err) {
		op_err(op, err);
	} else if (o->need && e->attr.kind == MSG_KIND_FILE) {
		o->attr = e->attr;
		prepare_open(o, e->put);
	} else {
		answer(o, &e->attr, e->put);
	}
}

static void look(struct lookup_op *o)
{
	node_lookup(o->n.op.op_fs->node, o->n.dir, o->n.name, lookup_cb, o);
}

void fs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = req_fs(req);
	struct lookup_op *o;

	count_add(fs, lookups, 1);
	if (name_is_virtual(parent, name)) {
		virtual_lookup(req, parent, name);
		return;
	}
	o = name_op_new(req, sizeof(*o), "lookup", parent, name);
	if (!o)
		return;
	o->n.op.op_fini = lookup_op_fini;
	look(o);
	op_started(&o->n.op);
}

void fs_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	inode_forget(req_fs(req)->inodes, ino, nlookup);
	fuse_reply_none(req);
}

void fs_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		inode_forget(req_fs(req)->inodes, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}
