/* SPDX-License-Identifier: Apache-2.0 */
/* What changes names. */
#include "fuse/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void fs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fs *fs = req_fs(req);
	uint32_t m = (mode & 07777) | S_IFDIR, gid;
	struct name_op *o;

	if (fs_draining(fs) || ino_is_virtual(parent) || name_is_virtual(parent, name)) {
		req_err(req, fs_draining(fs) ? -ESHUTDOWN : -EPERM);
		return;
	}
	o = name_op_new(req, sizeof(*o), "mkdir", parent, name);
	if (!o)
		return;
	gid = o->op.op_gid;
	inherit_group(fs, parent, true, &m, &gid);
	node_mkdir(fs->node, parent, o->name, m, o->op.op_uid, gid, name_op_entry_cb, o);
	op_started(&o->op);
}

struct unlink_op {
	struct name_op n;
	uint64_t id; /* of what has the name */
};

static void removed_cb(void *arg, int err)
{
	struct unlink_op *o = arg;

	if (!err)
		inode_name_removed(o->n.op.op_fs->inodes, &(struct inode_name){o->n.dir, o->n.name, o->id});
	op_done_cb(&o->n.op, err);
}

void fs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = req_fs(req);
	struct unlink_op *o;

	count_add(fs, unlinks, 1);
	if (ino_is_virtual(parent)) {
		req_err(req, -EPERM);
		return;
	}
	o = name_op_new(req, sizeof(*o), "unlink", parent, name);
	if (!o)
		return;
	o->id = inode_of_name(fs->inodes, parent, o->n.name);
	node_unlink(fs->node, parent, o->n.name, removed_cb, o);
	op_started(&o->n.op);
}

void fs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = req_fs(req);
	struct name_op *o;

	if (ino_is_virtual(parent) || name_is_virtual(parent, name)) {
		req_err(req, -EPERM);
		return;
	}
	o = name_op_new(req, sizeof(*o), "rmdir", parent, name);
	if (!o)
		return;
	node_rmdir(fs->node, parent, o->name, op_done_cb, o);
	op_started(&o->op);
}

void fs_op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	req_err(req, -EPERM);
}

/* ---- rename ------------------------------------------------------------------------------------------------- */

struct rename_op {
	struct name_op from;
	uint64_t from_id, to_id; /* of what has the names */
	uint64_t to_dir;
	char to[MSG_NAME_MAX + 1];
};

static void renamed_cb(void *arg, int err)
{
	struct rename_op *o = arg;

	if (!err)
		inode_name_moved(o->from.op.op_fs->inodes, &(struct inode_name){o->from.dir, o->from.name, o->from_id},
				 &(struct inode_name){o->to_dir, o->to, o->to_id});
	op_done_cb(&o->from.op, err);
}

void fs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char *newname,
		  unsigned flags)
{
	struct fs *fs = req_fs(req);
	struct rename_op *o;

	count_add(fs, renames, 1);
	if (ino_is_virtual(parent) || ino_is_virtual(newparent) || name_is_virtual(parent, name) ||
	    name_is_virtual(newparent, newname)) {
		req_err(req, -EPERM);
		return;
	}
	if (strlen(newname) > MSG_NAME_MAX) {
		req_err(req, -ENAMETOOLONG);
		return;
	}
	o = name_op_new(req, sizeof(*o), "rename", parent, name);
	if (!o)
		return;
	o->to_dir = newparent;
	strcpy(o->to, newname);
	o->from_id = inode_of_name(fs->inodes, parent, name);
	o->to_id = inode_of_name(fs->inodes, newparent, newname);
	node_rename(fs->node, parent, o->from.name, newparent, o->to, flags, renamed_cb, o);
	op_started(&o->from.op);
}

/* ---- link: the name of an O_TMPFILE file -------------------------------------------------------------------- */

struct link_op {
	struct name_op n;
	struct inode *inode; /* a reference */
};

static void link_op_fini(struct op *op)
{
	struct link_op *o = container_of(op, struct link_op, n.op);

	inode_unref(op->op_fs->inodes, o->inode);
}

static void linked_cb(void *arg, int err)
{
	struct link_op *o = arg;
	struct msg_attr a;

	if (err) {
		atomic_store(&o->inode->i_tmpfile, true);
		op_err(&o->n.op, err);
		return;
	}
	put_getattr(o->inode->i_put, &a);
	reply_entry(&o->n.op, &a, put_ref(o->inode->i_put), o->n.dir, o->n.name, false);
}

void fs_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	struct fs *fs = req_fs(req);
	struct inode *i = ino_is_virtual(ino) ? NULL : inode_get(fs->inodes, ino);
	struct link_op *o = NULL;

	if (!i || !atomic_exchange(&i->i_tmpfile, false) || ino_is_virtual(newparent) ||
	    name_is_virtual(newparent, newname))
		req_err(req, -EPERM);
	else
		o = name_op_new(req, sizeof(*o), "link", newparent, newname);
	if (!o) {
		inode_unref(fs->inodes, i);
		return;
	}
	o->inode = i;
	o->n.op.op_fini = link_op_fini;
	put_link(i->i_put, newparent, o->n.name, linked_cb, o);
	op_started(&o->n.op);
}

/* ---- mknod: an empty file, published at once ---------------------------------------------------------------- */

struct mknod_op {
	struct name_op n;
	struct put *put; /* an open handle and a reference */
};

static void mknod_op_fini(struct op *op)
{
	struct mknod_op *o = container_of(op, struct mknod_op, n.op);

	/* Published by now, unless that failed. */
	hold_give_up(&(struct hold){.put = o->put, .writer = true});
}

static void mknod_published_cb(void *arg, int err)
{
	struct mknod_op *o = arg;

	if (err)
		op_err(&o->n.op, err);
	else
		node_lookup(o->n.op.op_fs->node, o->n.dir, o->n.name, name_op_entry_cb, o);
}

static void mknod_created_cb(void *arg, int err, struct put *put)
{
	struct mknod_op *o = arg;

	if (!err) {
		err = put_open(put, true);
		if (err)
			put_unref(put);
		else
			o->put = put;
	}
	if (err)
		op_err(&o->n.op, err);
	else
		put_sync(put, mknod_published_cb, o);
}

void fs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct fs *fs = req_fs(req);
	uint32_t m = (mode & 07777) | S_IFREG, gid;
	struct mknod_op *o;

	if (fs_draining(fs) || ((mode & S_IFMT) && !S_ISREG(mode)) || ino_is_virtual(parent) ||
	    name_is_virtual(parent, name)) {
		req_err(req, fs_draining(fs) ? -ESHUTDOWN : -EPERM);
		return;
	}
	o = name_op_new(req, sizeof(*o), "mknod", parent, name);
	if (!o)
		return;
	o->n.op.op_fini = mknod_op_fini;
	gid = o->n.op.op_gid;
	inherit_group(fs, parent, false, &m, &gid);
	put_create(fs->node, parent, o->n.name, true, m, o->n.op.op_uid, gid, mknod_created_cb, o);
	op_started(&o->n.op);
}
