/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/size.h"

#define BLKSIZE (1024 * 1024)	/* cp, cat and buffered readers then use requests of this size */
#define BLOCK 4096ull		/* what statfs counts in; memory is charged in these */
#define SHORT_TIMEOUT 1.0	/* of attributes that also change without a request of the kernel */
#define FREE_NAMES (1ull << 40) /* there is no limit, and some look at it */

static struct timespec to_timespec(int64_t ns)
{
	struct timespec ts = {.tv_sec = ns / (int64_t)NS_PER_SEC, .tv_nsec = ns % (int64_t)NS_PER_SEC};

	if (ts.tv_nsec < 0) {
		ts.tv_sec--;
		ts.tv_nsec += (long)NS_PER_SEC;
	}
	return ts;
}

static int64_t from_timespec(const struct timespec *ts)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)ts->tv_sec, (int64_t)NS_PER_SEC, &ns) ||
	    __builtin_add_overflow(ns, (int64_t)ts->tv_nsec, &ns))
		return ts->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

void fill_stat(const struct msg_attr *a, struct stat *st)
{
	bool dir = a->kind == MSG_KIND_DIR;

	*st = (struct stat){
	    .st_ino = a->id,
	    .st_mode = a->mode,
	    .st_nlink = a->nlink,
	    .st_uid = a->uid,
	    .st_gid = a->gid,
	    .st_size = dir ? (off_t)BLOCK : (off_t)a->size,
	    .st_blksize = dir ? (blksize_t)BLOCK : BLKSIZE,
	    .st_blocks = dir ? 8 : (blkcnt_t)(align_up(a->size, BLOCK) / 512),
	    .st_atim = to_timespec(a->atime_ns),
	    .st_mtim = to_timespec(a->mtime_ns),
	    .st_ctim = to_timespec(a->ctime_ns),
	};
	st->st_mode = (st->st_mode & 07777) | (dir ? S_IFDIR : S_IFREG);
}

void fill_stat_inode(struct fs *fs, struct inode *i, const struct msg_attr *a, struct stat *st)
{
	fill_stat(a, st);
	if (i->i_put)
		st->st_blocks = (blkcnt_t)put_blocks(i->i_put);
	if (atomic_load_explicit(&i->i_unlinked, memory_order_relaxed))
		st->st_nlink = 0;
}

/* A published version's attributes change by our kernel's requests alone; a directory's also by publishes. */
double attr_timeout(struct fs *fs, const struct msg_attr *a)
{
	bool published = a->kind == MSG_KIND_FILE && !(a->id & NODE_PRIVATE_ID);

	return published || fs->cfg.attr_timeout < SHORT_TIMEOUT ? fs->cfg.attr_timeout : SHORT_TIMEOUT;
}

int make_entry(struct fs *fs, const struct msg_attr *a, struct put *put, uint64_t dir, const char *name,
	       struct fuse_entry_param *ret, struct inode **ret_inode)
{
	struct inode *i = inode_know(fs->inodes, a, put, dir, name);
	struct msg_attr now;
	bool ask;

	if (!i)
		return -ENOMEM;
	/* What the name of a private version stands for changes when it is published, and when it is written again. */
	ask = i->i_put || (name && a->kind == MSG_KIND_FILE && node_name_unsettled(fs->node, dir, name));
	*ret = (struct fuse_entry_param){
	    .ino = a->id,
	    .attr_timeout = attr_timeout(fs, a),
	    .entry_timeout = ask ? 0 : fs->cfg.entry_timeout,
	};
	inode_get_attr(fs->inodes, i, &now, NULL);
	fill_stat_inode(fs, i, &now, &ret->attr);
	if (ret_inode)
		*ret_inode = i;
	else
		inode_unref(fs->inodes, i);
	return 0;
}

void reply_entry(struct op *op, const struct msg_attr *a, struct put *put, uint64_t dir, const char *name, bool brief)
{
	struct fs *fs = op->op_fs;
	struct fuse_entry_param e = {0};
	uint64_t id = a->id;
	int r = make_entry(fs, a, put, dir, name, &e, NULL);

	if (brief)
		e.entry_timeout = 0;
	op_ref(op); /* as in give_out() */
	if (r < 0)
		op_err(op, r);
	else if (op_entry(op, &e))
		inode_forget(fs->inodes, id, 1);
	op_unref(op);
}

void inherit_group(struct fs *fs, uint64_t dir, bool is_dir, uint32_t *mode, uint32_t *gid)
{
	struct inode *i = inode_get(fs->inodes, dir);
	struct msg_attr a;

	if (!i)
		return;
	inode_get_attr(fs->inodes, i, &a, NULL);
	inode_unref(fs->inodes, i);
	if (!(a.mode & S_ISGID))
		return;
	*gid = a.gid;
	if (is_dir)
		*mode |= S_ISGID;
}

/* ---- getattr ------------------------------------------------------------------------------------------------ */

struct attr_op {
	struct op op;
	struct inode *inode; /* a reference */

	/* setattr */
	struct msg_attr want;
	uint32_t mask;	  /* MSG_SET_* */
	struct hold hold; /* of the put, for a truncation without a handle */
};

static void attr_op_fini(struct op *op)
{
	struct attr_op *o = container_of(op, struct attr_op, op);

	hold_release(&o->hold);
	inode_unref(op->op_fs->inodes, o->inode);
}

/* NULL: answered. */
static struct attr_op *attr_op_new(fuse_req_t req, fuse_ino_t ino, const char *what)
{
	struct fs *fs = req_fs(req);
	struct inode *i = inode_get(fs->inodes, ino);
	struct attr_op *o;

	if (!i) {
		req_err(req, -ESTALE);
		return NULL;
	}
	o = op_new(req, sizeof(*o), what, ino);
	if (!o) {
		inode_unref(fs->inodes, i);
		return NULL;
	}
	o->inode = i;
	o->op.op_fini = attr_op_fini;
	return o;
}

static void answer_attr(struct attr_op *o, const struct msg_attr *a)
{
	struct fs *fs = o->op.op_fs;
	struct stat st;

	fill_stat_inode(fs, o->inode, a, &st);
	op_attr(&o->op, &st, attr_timeout(fs, a));
}

static void answer_put_attr(struct attr_op *o)
{
	struct msg_attr a;

	put_getattr(o->inode->i_put, &a);
	inode_set_attr(o->op.op_fs->inodes, o->inode, &a, true);
	answer_attr(o, &a);
}

static void getattr_cb(void *arg, int err, const struct node_entry *e)
{
	struct attr_op *o = arg;
	struct fs *fs = o->op.op_fs;
	struct msg_attr a;

	if (!err) {
		inode_set_attr(fs->inodes, o->inode, &e->attr, false);
		inode_get_attr(fs->inodes, o->inode, &a, NULL);
	} else if (err == -ENOENT) {
		/* Removed or replaced while it is open here. */
		inode_get_attr(fs->inodes, o->inode, &a, NULL);
		a.nlink = 0;
	} else {
		op_err(&o->op, err);
		return;
	}
	answer_attr(o, &a);
}

/* Somebody still has it: open, or by a dentry that the kernel is about to forget. */
static void answer_gone(struct attr_op *o, struct msg_attr *a)
{
	struct stat st;

	a->nlink = 0;
	fill_stat_inode(o->op.op_fs, o->inode, a, &st);
	op_attr(&o->op, &st, 0);
}

void fs_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct msg_attr a;
	struct attr_op *o;
	uint64_t age;

	if (ino_is_virtual(ino)) {
		virtual_getattr(req, ino);
		return;
	}
	o = attr_op_new(req, ino, "getattr");
	if (!o)
		return;
	inode_get_attr(fs->inodes, o->inode, &a, &age);
	if (o->inode->i_put)
		answer_put_attr(o);
	else if (atomic_load(&o->inode->i_gone))
		answer_gone(o, &a);
	else if (a.kind == MSG_KIND_FILE && (double)age < fs->cfg.attr_timeout * (double)NS_PER_SEC)
		answer_attr(o, &a); /* the kernel asks after each read, for the atime, which is ours */
	else
		node_getattr(fs->node, ino, getattr_cb, o);
	op_started(&o->op);
}

/* ---- setattr ------------------------------------------------------------------------------------------------ */

static void setattr_entry_cb(void *arg, int err, const struct node_entry *e)
{
	struct attr_op *o = arg;
	struct inode_table *inodes = o->op.op_fs->inodes;
	struct msg_attr a;

	if (err) {
		op_err(&o->op, err);
		return;
	}
	inode_set_attr(inodes, o->inode, &e->attr, o->mask & MSG_SET_ATIME);
	inode_get_attr(inodes, o->inode, &a, NULL);
	answer_attr(o, &a);
}

static void setattr_put_cb(void *arg, int err)
{
	struct attr_op *o = arg;

	if (err)
		op_err(&o->op, err);
	else
		answer_put_attr(o);
}

/* All but the size. */
static void set_rest(struct attr_op *o)
{
	struct fs *fs = o->op.op_fs;

	if (o->inode->i_put && !o->mask)
		answer_put_attr(o);
	else if (o->inode->i_put)
		put_setattr(o->inode->i_put, &o->want, o->mask, setattr_put_cb, o);
	else if (!o->mask)
		node_getattr(fs->node, o->inode->i_id, getattr_cb, o);
	else
		node_setattr(fs->node, &o->want, o->mask, setattr_entry_cb, o);
}

static void truncate_published_cb(void *arg, int err)
{
	struct attr_op *o = arg;

	if (err)
		op_err(&o->op, err);
	else
		set_rest(o);
}

/* truncate(2) of a path has no close that could publish: it does so itself, unless other writers will. */
static void truncated_cb(void *arg, int err)
{
	struct attr_op *o = arg;

	if (err) {
		hold_give_up(&o->hold);
		o->hold = (struct hold){0};
		op_err(&o->op, err);
	} else if (o->hold.put && !atomic_load(&o->inode->i_writers)) {
		put_flush(o->hold.put, false, truncate_published_cb, o);
	} else {
		set_rest(o);
	}
}

static void set_size(struct attr_op *o, const struct fuse_file_info *fi)
{
	struct fs *fs = o->op.op_fs;
	struct put *put = o->inode->i_put;
	int r = 0;

	if (!fi && fs_draining(fs)) {
		r = -ESHUTDOWN;
	} else if (!fi) {
		if (put && retry_take(fs, o->op.op_tid, o->inode->i_id, &o->hold))
			r = 0;
		else if (put && !(r = put_open(put, true)))
			o->hold = (struct hold){.put = put_ref(put), .writer = true};
		else if (!put || r == -ESTALE)
			r = retry_expect(fs, o->op.op_tid, o->inode, RETRY_WRITE | (o->want.size ? 0 : RETRY_TRUNCATE))
				? -ESTALE
				: -EACCES;
	} else if (!put) {
		r = -EBADF;
	}
	if (r < 0)
		op_err(&o->op, r);
	else
		put_truncate(put, o->want.size, truncated_cb, o);
}

static void take_time(const struct timespec *ts, bool now, int64_t *ret)
{
	*ret = now ? clock_real_ns() : from_timespec(ts);
}

static void take_wanted(struct attr_op *o, const struct stat *st, int to_set)
{
	struct msg_attr *a = &o->want;

	a->id = o->inode->i_id;
	a->mode = st->st_mode;
	a->uid = st->st_uid;
	a->gid = st->st_gid;
	a->size = (uint64_t)st->st_size;
	if (to_set & FUSE_SET_ATTR_MODE)
		o->mask |= MSG_SET_MODE;
	if (to_set & FUSE_SET_ATTR_UID)
		o->mask |= MSG_SET_UID;
	if (to_set & FUSE_SET_ATTR_GID)
		o->mask |= MSG_SET_GID;
	if (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW)) {
		o->mask |= MSG_SET_ATIME;
		take_time(&st->st_atim, to_set & FUSE_SET_ATTR_ATIME_NOW, &a->atime_ns);
	}
	if (to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) {
		o->mask |= MSG_SET_MTIME;
		take_time(&st->st_mtim, to_set & FUSE_SET_ATTR_MTIME_NOW, &a->mtime_ns);
	}
}

void fs_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
	struct attr_op *o;

	if (ino_is_virtual(ino)) {
		req_err(req, -EPERM);
		return;
	}
	o = attr_op_new(req, ino, "setattr");
	if (!o)
		return;
	take_wanted(o, st, to_set);
	if (to_set & FUSE_SET_ATTR_SIZE)
		set_size(o, fi);
	else
		set_rest(o);
	op_started(&o->op);
}

/* ---- statfs ------------------------------------------------------------------------------------------------- */

static void statfs_cb(void *arg, int err, const struct node_statfs *s)
{
	struct op *op = arg;
	struct statvfs st = {
	    .f_bsize = BLOCK,
	    .f_frsize = BLOCK,
	    .f_namemax = MSG_NAME_MAX,
	};
	uint64_t used;

	if (err) {
		op_err(op, err);
		return;
	}
	used = s->used_bytes < s->total_bytes ? s->used_bytes : s->total_bytes;
	st.f_blocks = s->total_bytes / BLOCK;
	st.f_bfree = st.f_bavail = (s->total_bytes - used) / BLOCK;
	st.f_files = s->objects + FREE_NAMES;
	st.f_ffree = st.f_favail = FREE_NAMES;
	op_reply_statfs(op, &st);
}

/* The directory whose namespace the inode belongs to, as far as known. */
static uint64_t dir_of(struct fs *fs, fuse_ino_t ino)
{
	struct inode *i = ino_is_virtual(ino) ? NULL : inode_get(fs->inodes, ino);
	char name[MSG_NAME_MAX + 1];
	struct msg_attr a;
	uint64_t dir = MSG_ROOT_DIR;

	if (!i)
		return dir;
	inode_get_attr(fs->inodes, i, &a, NULL);
	if (a.kind == MSG_KIND_DIR)
		dir = ino;
	else
		inode_get_name(fs->inodes, i, &dir, name);
	inode_unref(fs->inodes, i);
	return dir;
}

void fs_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = req_fs(req);
	struct op *op = op_new(req, sizeof(*op), "statfs", ino);

	if (!op)
		return;
	node_statfs(fs->node, dir_of(fs, ino), statfs_cb, op);
	op_started(op);
}
