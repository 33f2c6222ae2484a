/* SPDX-License-Identifier: Apache-2.0 */
/* open, create, release. fuse/retry.c tells why an open is answered ESTALE. */
#include "fuse/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"

#define CREATE_TRIES 16 /* the name has to change under us each time */

struct open_op {
	struct name_op n; /* create: the name; open: not used */
	struct fuse_file_info fi;
	struct handle *handle; /* to be given out */

	/* a version that is being brought into memory, until then */
	struct inode *inode;
	struct version *version;

	/* create */
	uint32_t mode, gid;
	unsigned tries;
	struct hold joined; /* what was there, until it is empty */
};

static void open_op_fini(struct op *op)
{
	struct open_op *o = container_of(op, struct open_op, n.op);

	handle_give_up(op->op_fs, o->handle);
	version_close(o->version);
	inode_unref(op->op_fs->inodes, o->inode);
	hold_give_up(&o->joined);
}

static bool wants_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

static unsigned what_it_needs(int flags)
{
	if (!wants_write(flags))
		return RETRY_READ;
	return flags & O_TRUNC ? RETRY_WRITE | RETRY_TRUNCATE : RETRY_WRITE;
}

/*
 * O_WRONLY cannot be mapped, so it needs no page cache: its bytes come in requests as large as its writes, with one
 * copy less. Others of the same inode may be open through the page cache: see write.c.
 */
static void set_io_mode(struct open_op *o, struct handle *h)
{
	h->h_direct = (o->fi.flags & O_ACCMODE) == O_WRONLY;
	if (!h->h_direct) {
		atomic_fetch_add(&h->h_inode->i_cached, 1);
		return;
	}
	o->fi.direct_io = 1;
#ifdef HAVE_STRUCT_FUSE_FILE_INFO_PARALLEL_DIRECT_WRITES
	o->fi.parallel_direct_writes = 1;
#endif
}

/* A handle of the private version that is held, which it takes over, as the reference of i. NULL: no memory. */
static struct handle *new_put_handle(struct open_op *o, struct inode *i, const struct hold *hold)
{
	struct fs *fs = o->n.op.op_fs;
	struct handle *h = handle_new(fs, HANDLE_PUT, i);
	struct msg_attr a;

	if (!h) {
		hold_give_up(hold);
		return NULL;
	}
	set_io_mode(o, h);
	h->h_put = hold->put;
	h->h_writer = hold->writer;
	h->h_writable = wants_write(o->fi.flags);
	if (h->h_writable) {
		atomic_fetch_add(&fs->writers, 1);
		atomic_fetch_add(&i->i_writers, 1);
	}
	put_getattr(h->h_put, &a);
	atomic_init(&h->h_drop_suid, (a.mode & (S_ISUID | S_ISGID)) && o->n.op.op_uid != 0);
	o->fi.fh = (uintptr_t)h;
	return h;
}

/* The kernel has it now, or never will. */
static void give_out(struct open_op *o)
{
	struct handle *h = o->handle;
	struct fs *fs = o->n.op.op_fs;
	struct fuse_file_info fi = o->fi;

	o->handle = NULL;
	/* Where it was answered before, ours may be the last reference, and without one fs may go. */
	op_ref(&o->n.op);
	if (op_open(&o->n.op, &fi))
		handle_give_up(fs, h);
	op_unref(&o->n.op);
}

/* ---- published versions ------------------------------------------------------------------------------------- */

/* Takes over v, its pin if it has one, and the reference of i. NULL: no memory. */
static struct handle *version_handle(struct fs *fs, struct inode *i, struct version *v, bool pinned,
				     struct fuse_file_info *fi)
{
	struct handle *h = handle_new(fs, HANDLE_VERSION, i);

	if (!h) {
		if (pinned)
			version_unpin(v);
		version_close(v);
		return NULL;
	}
	h->h_version = v;
	h->h_direct = true; /* never counted among a private version's cached ones */
	fi->fh = (uintptr_t)h;
	fi->noflush = 1;
	passthrough_enter(fs, h, pinned, fi);
	return h;
}

/* -ESTALE: the kernel is to look the name up again. */
static int get_version(struct fs *fs, struct inode *i, pid_t tid, struct version **ret)
{
	char name[MSG_NAME_MAX + 1];
	struct msg_attr a;
	struct hold hold;
	uint64_t dir;
	int r;

	if (retry_take(fs, tid, i->i_id, &hold)) {
		*ret = hold.version;
		return 0;
	}
	/* Its name stands for something newer, or may by now, unless it was opened in another way than by name. */
	if ((inode_get_name(fs->inodes, i, &dir, name) < 0 || !node_is_current(fs->node, i->i_id)) &&
	    retry_expect(fs, tid, i, RETRY_READ))
		return -ESTALE;
	inode_get_attr(fs->inodes, i, &a, NULL);
	r = version_open(fs->node, &a, ret);
	if (r == -ESTALE && !retry_expect(fs, tid, i, RETRY_READ))
		return -ENOENT;
	return r;
}

/* Without the bytes in memory it is read through the page cache: a read then tells what the matter is. */
static void pinned_cb(void *arg, int err)
{
	struct open_op *o = arg;
	struct version *v = o->version;
	struct inode *i = o->inode;

	o->version = NULL;
	o->inode = NULL;
	o->handle = version_handle(o->n.op.op_fs, i, v, !err, &o->fi);
	if (o->handle)
		give_out(o);
	else
		op_err(&o->n.op, -ENOMEM);
}

/* Answers with a handle, or brings the version into memory first, for the kernel to read it there. */
static void arrived_cb(void *arg, int err)
{
	struct open_op *o = arg;
	struct fs *fs = o->n.op.op_fs;
	enum passthrough_need need;

	/* It has gone from all nodes since its name was looked up. */
	if (err == -ESTALE && !retry_expect(fs, o->n.op.op_tid, o->inode, RETRY_READ))
		err = -ENOENT;
	if (err) {
		op_err(&o->n.op, err);
		return;
	}
	need = passthrough_need(fs, o->inode, o->version);
	if (need == PASSTHROUGH_WAIT)
		version_pin(o->version, pinned_cb, o);
	else
		pinned_cb(o, need == PASSTHROUGH_PINNED ? 0 : -EAGAIN);
}

/* Takes over v, which is on other nodes or not in memory, and the reference of i. */
static void open_when_ready(fuse_req_t req, struct inode *i, struct version *v, const struct fuse_file_info *fi)
{
	struct open_op *o = op_new(req, sizeof(*o), "open", i->i_id);

	if (!o) {
		version_close(v);
		inode_unref(req_fs(req)->inodes, i);
		return;
	}
	o->n.op.op_fini = open_op_fini;
	o->fi = *fi;
	o->version = v;
	o->inode = i;
	if (version_is_away(v))
		version_fetch(v, arrived_cb, o);
	else
		version_pin(v, pinned_cb, o);
	op_started(&o->n.op);
}

static void open_published(fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	pid_t tid = fuse_req_ctx(req)->pid;
	enum passthrough_need need;
	struct version *v = NULL;
	struct handle *h;
	int r;

	if (wants_write(fi->flags))
		r = retry_expect(fs, tid, i, what_it_needs(fi->flags)) ? -ESTALE : -EACCES;
	else
		r = get_version(fs, i, tid, &v);
	if (r < 0) {
		inode_unref(fs->inodes, i);
		req_err(req, r);
		return;
	}
	inode_touch_atime(fs->inodes, i, clock_real_ns());
	need = version_is_away(v) ? PASSTHROUGH_WAIT : passthrough_need(fs, i, v);
	if (need == PASSTHROUGH_WAIT) {
		open_when_ready(req, i, v, fi);
		return;
	}
	h = version_handle(fs, i, v, need == PASSTHROUGH_PINNED, fi);
	if (!h)
		req_err(req, -ENOMEM);
	else if (fuse_reply_open(req, fi))
		handle_unref(fs, h);
}

/* ---- private versions --------------------------------------------------------------------------------------- */

static void truncated_cb(void *arg, int err)
{
	struct open_op *o = arg;

	if (err)
		op_err(&o->n.op, err);
	else
		give_out(o);
}

/* The inode's private version: what is held for the thread, or opened now. */
static int get_put(struct fs *fs, struct inode *i, pid_t tid, int flags, struct hold *ret)
{
	struct hold hold;
	int r;

	if (retry_take(fs, tid, i->i_id, &hold)) {
		if (hold.writer || !wants_write(flags)) {
			*ret = hold;
			return 0;
		}
		hold_release(&hold);
	}
	r = put_open(i->i_put, wants_write(flags));
	if (!r)
		*ret = (struct hold){.put = put_ref(i->i_put), .writer = wants_write(flags)};
	else if (r == -ESTALE && !retry_expect(fs, tid, i, what_it_needs(flags)))
		r = -ENOENT;
	return r;
}

static void open_private(fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct hold hold = {0};
	struct open_op *o;
	int r;

	r = get_put(fs, i, fuse_req_ctx(req)->pid, fi->flags, &hold);
	o = r < 0 ? NULL : op_new(req, sizeof(*o), "open", i->i_id);
	if (!o) {
		inode_unref(fs->inodes, i);
		hold_give_up(&hold);
		if (r < 0)
			req_err(req, r);
		return;
	}
	o->fi = *fi;
	o->n.op.op_fini = open_op_fini;
	o->handle = new_put_handle(o, i, &hold);
	if (!o->handle)
		op_err(&o->n.op, -ENOMEM);
	else if (fi->flags & O_TRUNC)
		put_empty(hold.put, truncated_cb, o);
	else
		give_out(o);
	op_started(&o->n.op);
}

void fs_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct inode *i;

	count_add(fs, opens, 1);
	if (ino_is_virtual(ino)) {
		virtual_open(req, ino, fi);
		return;
	}
	i = inode_get(fs->inodes, ino);
	if (!i || (fs_draining(fs) && wants_write(fi->flags))) {
		req_err(req, i ? -ESHUTDOWN : -ESTALE);
		inode_unref(fs->inodes, i);
		return;
	}
	if (i->i_put)
		open_private(req, i, fi);
	else
		open_published(req, i, fi);
}

/* ---- create ------------------------------------------------------------------------------------------------- */

/* put is open for its maker, with a reference, both of which are taken over. */
static void answer_create(struct open_op *o, struct put *put, const char *name)
{
	struct hold hold = {.put = put, .writer = true};
	struct fs *fs = o->n.op.op_fs;
	struct fuse_entry_param e;
	struct fuse_file_info fi;
	struct handle *h;
	struct inode *i;
	struct msg_attr a;

	put_getattr(put, &a);
	if (make_entry(fs, &a, put_ref(put), o->n.dir, name, &e, &i) < 0) {
		hold_give_up(&hold);
		op_err(&o->n.op, -ENOMEM);
		return;
	}
	if (!name)
		atomic_store(&i->i_tmpfile, !(o->fi.flags & O_EXCL));
	h = new_put_handle(o, i, &hold);
	if (!h) {
		inode_forget(fs->inodes, a.id, 1);
		op_err(&o->n.op, -ENOMEM);
		return;
	}
	fi = o->fi;
	op_ref(&o->n.op); /* as in give_out() */
	if (op_create(&o->n.op, &e, &fi)) {
		handle_give_up(fs, h);
		inode_forget(fs->inodes, a.id, 1);
	}
	op_unref(&o->n.op);
}

/* ---- create, where somebody was first ----------------------------------------------------------------------- */

/*
 * The kernel has asked for a new file, so it has not looked whether the caller may open this one. Of the caller's
 * groups only the first is known here: who might be of the file's group must have the rights of both.
 */
static bool may_open(const struct op *op, const struct msg_attr *a, int flags)
{
	int acc = flags & O_ACCMODE;
	unsigned want = acc == O_RDONLY ? 4 : acc == O_WRONLY ? 2 : 6, bits;

	if (flags & O_TRUNC)
		want |= 2;
	if (!op->op_uid)
		return true;
	if (op->op_uid == a->uid)
		bits = a->mode >> 6;
	else if (op->op_gid == a->gid)
		bits = a->mode >> 3;
	else
		bits = a->mode & (a->mode >> 3);
	return (bits & want) == want;
}

static void create(struct open_op *o);

static void join_emptied_cb(void *arg, int err)
{
	struct open_op *o = arg;
	struct put *put = o->joined.put;

	if (err) {
		op_err(&o->n.op, err);
		return;
	}
	o->joined.put = NULL;
	answer_create(o, put, o->n.name);
}

/* put is a reference. */
static void join_put_cb(void *arg, int err, struct put *put)
{
	struct open_op *o = arg;

	if (!err) {
		err = put_open(put, true);
		if (err)
			put_unref(put);
	}
	if ((err == -ESTALE || err == -ENOENT) && ++o->tries < CREATE_TRIES) {
		create(o);
	} else if (err) {
		op_err(&o->n.op, err);
	} else if (o->fi.flags & O_TRUNC) {
		o->joined = (struct hold){.put = put, .writer = true};
		put_empty(put, join_emptied_cb, o);
	} else {
		answer_create(o, put, o->n.name);
	}
}

/* Opens what has the name. A published version is opened for writing even by a reader, which costs it nothing. */
static void join_cb(void *arg, int err, const struct node_entry *e)
{
	struct open_op *o = arg;

	if (!err && e->attr.kind != MSG_KIND_FILE)
		err = -EISDIR;
	else if (!err && !may_open(&o->n.op, &e->attr, o->fi.flags))
		err = -EACCES;
	if (!err && e->put)
		join_put_cb(o, 0, e->put);
	else if (!err)
		put_edit(o->n.op.op_fs->node, o->n.dir, o->n.name, &e->attr, false, join_put_cb, o);
	else
		join_put_cb(o, err, NULL);
	if (err && e && e->put)
		put_unref(e->put);
}

static void created_cb(void *arg, int err, struct put *put)
{
	struct open_op *o = arg;
	struct op *op = &o->n.op;

	if (!err) {
		err = put_open(put, true);
		if (err)
			put_unref(put);
	}
	/* Somebody was first. The kernel looks it up and asks whether the caller may open it; once, that is. */
	if (err == -EEXIST && !(o->fi.flags & O_EXCL)) {
		if (!retry_expect_name(op->op_fs, op->op_tid, o->n.dir, o->n.name, what_it_needs(o->fi.flags))) {
			node_lookup(op->op_fs->node, o->n.dir, o->n.name, join_cb, o);
			return;
		}
		err = -ESTALE;
	}
	if (err)
		op_err(op, err);
	else
		answer_create(o, put, o->n.name);
}

static void create(struct open_op *o)
{
	put_create(o->n.op.op_fs->node, o->n.dir, o->n.name, o->fi.flags & O_EXCL, o->mode, o->n.op.op_uid, o->gid,
		   created_cb, o);
}

void fs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct open_op *o;

	count_add(fs, creates, 1);
	if (fs_draining(fs) || ino_is_virtual(parent) || name_is_virtual(parent, name)) {
		req_err(req, fs_draining(fs) ? -ESHUTDOWN : -EPERM);
		return;
	}
	o = name_op_new(req, sizeof(*o), "create", parent, name);
	if (!o)
		return;
	o->n.op.op_fini = open_op_fini;
	o->fi = *fi;
	o->mode = (mode & 07777) | S_IFREG;
	o->gid = o->n.op.op_gid;
	inherit_group(fs, parent, false, &o->mode, &o->gid);
	create(o);
	op_started(&o->n.op);
}

#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_TMPFILE
static void tmpfile_cb(void *arg, int err, struct put *put)
{
	struct open_op *o = arg;

	if (!err) {
		err = put_open(put, true);
		if (err)
			put_unref(put);
	}
	if (err)
		op_err(&o->n.op, err);
	else
		answer_create(o, put, NULL);
}

void fs_op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	uint32_t m = (mode & 07777) | S_IFREG, gid;
	struct open_op *o;

	if (fs_draining(fs) || ino_is_virtual(parent)) {
		req_err(req, fs_draining(fs) ? -ESHUTDOWN : -EPERM);
		return;
	}
	o = op_new(req, sizeof(*o), "tmpfile", parent);
	if (!o)
		return;
	o->n.dir = parent;
	o->fi = *fi;
	gid = o->n.op.op_gid;
	inherit_group(fs, parent, false, &m, &gid);
	put_tmpfile(fs->node, parent, m, o->n.op.op_uid, gid, tmpfile_cb, o);
	op_started(&o->n.op);
}
#endif

void fs_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	handle_unref(req_fs(req), fi_handle(fi));
	req_ok(req);
}
