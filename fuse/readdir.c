/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading directories. Names come from the node in pages, which a handle keeps until the kernel, whose requests are
 * smaller, has taken them all. Offsets are the node's cookies; "." and ".." have two of their own above any cookie.
 *
 * readdirplus also gives what a lookup would, but for directories only. Between the page and the kernel's use of it a
 * file's name may have got a new version, written and published by another program, which would then be shown the old
 * one: the kernel orders the answer of a listing with no close and no truncate.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COOKIE_DOT (INT64_MAX - 1) /* the offset behind "." */
#define COOKIE_DOTDOT INT64_MAX	   /* behind "..": the node's cookie 0 */
#define PAGE_NAMES 512

struct readdir_op {
	struct op op;
	bool plus;
	uint64_t off; /* where the kernel wants to go on */
	size_t size, len;
	uint64_t *known; /* the inodes that the answer tells the kernel of, n_known of them */
	size_t n_known, room;
	char buf[]; /* size */
};

static void readdir_op_fini(struct op *op)
{
	free(container_of(op, struct readdir_op, op)->known);
}

/* ---- one name ----------------------------------------------------------------------------------------------- */

static int remember(struct readdir_op *o, uint64_t id)
{
	if (o->n_known == o->room) {
		size_t room = o->room ? o->room * 2 : 64;
		uint64_t *known = realloc(o->known, room * sizeof(*known));

		if (!known)
			return -ENOMEM;
		o->known = known;
		o->room = room;
	}
	o->known[o->n_known++] = id;
	return 0;
}

/* The lookup's answer for a name that has one; else an entry without an inode, which the kernel takes as a name only.
 */
static void fill_plus(struct readdir_op *o, const struct msg_dirent *d, struct fuse_entry_param *e)
{
	struct fs *fs = o->op.op_fs;

	if (d->attr.kind != MSG_KIND_FILE && !remember(o, d->attr.id)) {
		if (make_entry(fs, &d->attr, NULL, o->op.op_ino, d->name, e, NULL) == 0)
			return;
		o->n_known--;
	}
	*e = (struct fuse_entry_param){0};
	fill_stat(&d->attr, &e->attr);
}

/* False: no room is left for it. */
static bool add_name(struct readdir_op *o, const struct msg_dirent *d, uint64_t next)
{
	struct fuse_entry_param e;
	char *at = o->buf + o->len;
	size_t room = o->size - o->len, need;

	need = o->plus ? fuse_add_direntry_plus(NULL, NULL, 0, d->name, NULL, 0)
		       : fuse_add_direntry(NULL, NULL, 0, d->name, NULL, 0);
	if (need > room)
		return false;
	if (o->plus) {
		fill_plus(o, d, &e);
		fuse_add_direntry_plus(NULL, at, room, d->name, &e, (off_t)next);
	} else {
		fill_stat(&d->attr, &e.attr);
		fuse_add_direntry(NULL, at, room, d->name, &e.attr, (off_t)next);
	}
	o->len += need;
	o->off = next;
	return true;
}

/* "." and "..": names only, no inode. */
static bool add_dots(struct readdir_op *o)
{
	struct stat st = {.st_ino = o->op.op_ino, .st_mode = S_IFDIR};
	struct fuse_entry_param e = {.attr = st};

	while (o->off == 0 || o->off == COOKIE_DOT) {
		const char *name = o->off ? ".." : ".";
		uint64_t next = o->off ? COOKIE_DOTDOT : COOKIE_DOT;
		size_t room = o->size - o->len, need;

		need = o->plus ? fuse_add_direntry_plus(NULL, o->buf + o->len, room, name, &e, (off_t)next)
			       : fuse_add_direntry(NULL, o->buf + o->len, room, name, &st, (off_t)next);
		if (need > room)
			return false;
		o->len += need;
		o->off = next;
	}
	return true;
}

/* ---- a request ---------------------------------------------------------------------------------------------- */

static void answer_names(struct readdir_op *o)
{
	struct fs *fs = o->op.op_fs;

	op_ref(&o->op);
	if (op_buf(&o->op, o->buf, o->len))
		for (size_t i = 0; i < o->n_known; i++)
			inode_forget(fs->inodes, o->known[i], 1);
	op_unref(&o->op);
}

static uint64_t node_cookie(uint64_t off)
{
	return off == COOKIE_DOTDOT ? 0 : off;
}

enum page_end {
	PAGE_FULL,  /* the answer has no more room */
	PAGE_LAST,  /* there are no more names */
	PAGE_EMPTY, /* the page has none that come next */
};

/* Moves names from the page to the answer. Call with h_lock held. */
static enum page_end use_page(struct readdir_op *o, struct dir_page *p)
{
	if (!p->ents || p->next != node_cookie(o->off))
		return PAGE_EMPTY;
	while (p->pos < p->n) {
		const struct msg_dirent *d = &p->ents[p->pos];

		if (!add_name(o, d, d->cookie))
			return PAGE_FULL;
		p->next = d->cookie;
		p->pos++;
	}
	return p->end ? PAGE_LAST : PAGE_EMPTY;
}

static void page_cb(void *arg, int err, const struct msg_dirent *ents, size_t n, bool end)
{
	struct readdir_op *o = arg;
	struct handle *h = o->op.op_handle;
	struct dir_page *p = &h->h_page;

	pthread_mutex_lock(&h->h_lock);
	h->h_fetching--;
	free(p->ents);
	*p = (struct dir_page){.n = n, .next = node_cookie(o->off), .end = end || !n};
	p->ents = err ? NULL : malloc(n ? n * sizeof(*ents) : 1);
	if (p->ents) {
		if (n)
			memcpy(p->ents, ents, n * sizeof(*ents));
		use_page(o, p);
	} else if (!err) {
		err = -ENOMEM;
	}
	pthread_mutex_unlock(&h->h_lock);
	if (err)
		op_err(&o->op, err);
	else
		answer_names(o);
}

/* rewinddir(3) sees what is there now. Call with h_lock held. */
static int start_over(struct fs *fs, struct handle *h, uint64_t ino)
{
	struct node_dir *fresh;
	int r;

	free(h->h_page.ents);
	h->h_page = (struct dir_page){0};
	if (!h->h_scanned || h->h_fetching) {
		h->h_scanned = true;
		return 0;
	}
	r = node_dir_open(fs->node, ino, &fresh);
	if (r < 0)
		return r;
	node_dir_close(h->h_dir);
	h->h_dir = fresh;
	return 0;
}

/* Names that are at hand are answered; only where there are none is the node asked. */
static void read_names(struct readdir_op *o)
{
	struct handle *h = o->op.op_handle;
	bool fetch = false;
	int r = 0;

	pthread_mutex_lock(&h->h_lock);
	if (!o->off)
		r = start_over(o->op.op_fs, h, o->op.op_ino);
	if (!r && add_dots(o) && use_page(o, &h->h_page) == PAGE_EMPTY)
		fetch = !o->len || o->off == COOKIE_DOTDOT;
	if (fetch)
		h->h_fetching++;
	pthread_mutex_unlock(&h->h_lock);
	if (r < 0)
		op_err(&o->op, r);
	else if (fetch)
		node_dir_read(h->h_dir, node_cookie(o->off), PAGE_NAMES, page_cb, o);
	else
		answer_names(o);
}

static void readdir_common(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
	struct readdir_op *o;

	count_add(req_fs(req), readdirs, 1);
	if (size > FS_IO_MAX)
		size = FS_IO_MAX;
	o = op_new_on(req, sizeof(*o) + size, "readdir", ino, fi_handle(fi));
	if (!o)
		return;
	o->op.op_fini = readdir_op_fini;
	o->plus = plus;
	o->size = size;
	o->off = (uint64_t)off;
	read_names(o);
	op_started(&o->op);
}

void fs_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	if (ino_is_virtual(ino))
		virtual_readdir(req, ino, size, off, false);
	else
		readdir_common(req, ino, size, off, fi, false);
}

void fs_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	if (ino_is_virtual(ino))
		virtual_readdir(req, ino, size, off, true);
	else
		readdir_common(req, ino, size, off, fi, true);
}

void fs_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct inode *i = ino_is_virtual(ino) ? NULL : inode_get(fs->inodes, ino);
	struct handle *h;
	int r = 0;

	if (!i && !ino_is_virtual(ino)) {
		req_err(req, -ESTALE);
		return;
	}
	h = handle_new(fs, HANDLE_DIR, i);
	if (!h) {
		req_err(req, -ENOMEM);
		return;
	}
	if (i)
		r = node_dir_open(fs->node, ino, &h->h_dir);
	fi->fh = (uintptr_t)h;
	if (r < 0)
		req_err(req, r);
	if (r < 0 || fuse_reply_open(req, fi))
		handle_unref(fs, h);
}

void fs_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	handle_unref(req_fs(req), fi_handle(fi));
	req_ok(req);
}

void fs_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	req_ok(req);
}
