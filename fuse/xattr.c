/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes: those of the user's, which the node keeps as one blob (net/xattr.h), and our own under
 * user.fluxkv., which are made up here and not listed (cp -a would try to set them).
 */
#include "fuse/impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "net/xattr.h"

#define USER_PREFIX "user."
#define OWN_PREFIX "user.fluxkv."
#define NAME_MAX_LEN 255

struct xattr_op {
	struct op op;
	struct inode *inode; /* a reference */
	size_t size;	     /* get, list: of the caller's buffer */
	int flags;	     /* set: XATTR_SET_*, the values of XATTR_CREATE and XATTR_REPLACE */
	bool remove;
	void *value; /* set: a copy */
	size_t value_len;
	uint8_t *blob; /* set: the new one */
	char name[NAME_MAX_LEN + 1];
};

static void xattr_op_fini(struct op *op)
{
	struct xattr_op *o = container_of(op, struct xattr_op, op);

	inode_unref(op->op_fs->inodes, o->inode);
	free(o->value);
	free(o->blob);
}

/* NULL: answered. name may be NULL. */
static struct xattr_op *xattr_op_new(fuse_req_t req, fuse_ino_t ino, const char *name, const char *what)
{
	struct fs *fs = req_fs(req);
	struct inode *i;
	struct xattr_op *o;
	int r = 0;

	if (ino_is_virtual(ino) || (name && strncmp(name, USER_PREFIX, strlen(USER_PREFIX))))
		r = -EOPNOTSUPP;
	else if (name && strlen(name) > NAME_MAX_LEN)
		r = -ERANGE;
	i = r < 0 ? NULL : inode_get(fs->inodes, ino);
	if (!i) {
		req_err(req, r < 0 ? r : -ESTALE);
		return NULL;
	}
	o = op_new(req, sizeof(*o), what, ino);
	if (!o) {
		inode_unref(fs->inodes, i);
		return NULL;
	}
	o->inode = i;
	o->op.op_fini = xattr_op_fini;
	if (name)
		strcpy(o->name, name);
	return o;
}

/* As getxattr(2) and listxattr(2) want it: the size alone for a buffer of 0 bytes. */
static void answer_value(struct xattr_op *o, const void *value, size_t len)
{
	if (!o->size)
		op_xattr_size(&o->op, len);
	else if (len > o->size)
		op_err(&o->op, -ERANGE);
	else
		op_buf(&o->op, value, len);
}

/* ---- our own ------------------------------------------------------------------------------------------------ */

enum own {
	OWN_TIER,
	OWN_OWNERS,
	OWN_VERSION,
	OWN_BLOCKS,
	OWN_CHECKSUM,
	OWN_PIN,
	OWN_TTL,
	OWN_COUNT,
	OWN_NONE = -1,	  /* the user's */
	OWN_UNKNOWN = -2, /* under our prefix, and none of ours */
};

static const char *const own_names[OWN_COUNT] = {"tier", "owners", "version", "blocks", "checksum", "pin", "ttl"};

static int own_find(const char *name)
{
	if (strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)))
		return OWN_NONE;
	for (int i = 0; i < OWN_COUNT; i++)
		if (!strcmp(name + strlen(OWN_PREFIX), own_names[i]))
			return i;
	return OWN_UNKNOWN;
}

/* The tiers of this node that have the whole version. */
static const char *tier_text(const struct node_replicas *r)
{
	bool dram = r->in_dram == r->blocks, ssd = r->blocks && r->in_ssd == r->blocks;

	return dram && ssd ? "dram,ssd" : dram ? "dram" : ssd ? "ssd" : "partial";
}

static uint64_t ttl_left(const struct msg_attr *a)
{
	int64_t left = a->expires_ns - clock_real_ns();

	if (!a->expires_ns)
		return 0;
	return left > 0 ? ((uint64_t)left + NS_PER_SEC - 1) / NS_PER_SEC : 1;
}

/* The length of the text, or a negative errno. */
static int own_text(struct fs *fs, const struct msg_attr *a, int which, char *buf, size_t size)
{
	bool private = a->id & NODE_PRIVATE_ID;
	struct node_replicas r = {0};
	int err;

	switch (which) {
	case OWN_PIN:
		return snprintf(buf, size, "%d", a->flags & MSG_ATTR_PIN ? 1 : 0);
	case OWN_TTL:
		return snprintf(buf, size, "%" PRIu64, ttl_left(a));
	case OWN_OWNERS:
		return snprintf(buf, size, "%s", fs->cfg.instance_key ? fs->cfg.instance_key : "");
	case OWN_TIER:
		if (private)
			return snprintf(buf, size, "private");
		break;
	}
	if (private)
		return -ENODATA;
	if (which == OWN_VERSION)
		return snprintf(buf, size, "%" PRIu64, a->id);
	err = node_replicas(fs->node, a, &r);
	if (err < 0)
		return err == -ENOENT || err == -ESTALE ? -ENODATA : err;
	if (which == OWN_TIER)
		return snprintf(buf, size, "%s", tier_text(&r));
	if (which == OWN_BLOCKS)
		return snprintf(buf, size, "%" PRIu64, r.blocks);
	return r.has_checksum ? snprintf(buf, size, "%016" PRIx64, r.checksum) : -ENODATA;
}

static void answer_own(struct xattr_op *o, const struct msg_attr *a)
{
	char text[320];
	int n = -ENODATA;

	if (a->kind == MSG_KIND_FILE)
		n = own_text(o->op.op_fs, a, own_find(o->name), text, sizeof(text));
	if (n < 0)
		op_err(&o->op, n);
	else
		answer_value(o, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

static void own_attr_cb(void *arg, int err, const struct node_entry *e)
{
	struct xattr_op *o = arg;
	struct msg_attr a;

	if (err == -ENOENT)
		inode_get_attr(o->op.op_fs->inodes, o->inode, &a, NULL);
	if (err && err != -ENOENT)
		op_err(&o->op, err);
	else
		answer_own(o, err ? &a : &e->attr);
}

static void get_own(struct xattr_op *o)
{
	struct msg_attr a;

	if (own_find(o->name) == OWN_UNKNOWN) {
		op_err(&o->op, -ENODATA);
	} else if (o->inode->i_put) {
		put_getattr(o->inode->i_put, &a);
		answer_own(o, &a);
	} else {
		node_getattr(o->op.op_fs->node, o->inode->i_id, own_attr_cb, o);
	}
}

static void own_set_entry_cb(void *arg, int err, const struct node_entry *e)
{
	op_done_cb(arg, err);
}

/* Digits alone, up to the largest number of seconds that fits nanoseconds. */
static int parse_number(const char *text, size_t len, uint64_t *ret)
{
	uint64_t v = 0;

	if (!len || len > 10)
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		v = v * 10 + (uint64_t)(text[i] - '0');
	}
	if (v > INT64_MAX / NS_PER_SEC / 2)
		return -EINVAL;
	*ret = v;
	return 0;
}

static int own_wanted(const struct xattr_op *o, struct msg_attr *a, uint32_t *mask)
{
	int which = own_find(o->name), r;
	uint64_t v = 0;

	if (which != OWN_PIN && which != OWN_TTL)
		return -EPERM;
	r = o->remove ? 0 : parse_number(o->value, o->value_len, &v);
	if (r < 0 || (which == OWN_PIN && v > 1))
		return -EINVAL;
	*mask = which == OWN_PIN ? MSG_SET_PIN : MSG_SET_TTL;
	a->flags = v ? MSG_ATTR_PIN : 0;
	a->expires_ns = v ? clock_real_ns() + (int64_t)(v * NS_PER_SEC) : 0;
	return 0;
}

static void set_own(struct xattr_op *o)
{
	struct msg_attr a = {.id = o->inode->i_id}, now;
	uint32_t mask = 0;
	int r = own_wanted(o, &a, &mask);

	inode_get_attr(o->op.op_fs->inodes, o->inode, &now, NULL);
	if (!r && now.kind != MSG_KIND_FILE)
		r = -EPERM;
	if (r < 0)
		op_err(&o->op, r);
	else if (o->inode->i_put)
		put_setattr(o->inode->i_put, &a, mask, op_done_cb, o);
	else
		node_setattr(o->op.op_fs->node, &a, mask, own_set_entry_cb, o);
}

/* ---- the user's --------------------------------------------------------------------------------------------- */

/* Most files have none, and ls(1) asks for each: an answer from what we know. */
static bool has_none(struct xattr_op *o)
{
	struct fs *fs = o->op.op_fs;
	struct msg_attr a;
	uint64_t age;

	inode_get_attr(fs->inodes, o->inode, &a, &age);
	return !o->inode->i_put && a.kind == MSG_KIND_FILE && !a.has_xattrs &&
	       (double)age < fs->cfg.attr_timeout * (double)NS_PER_SEC;
}

static void get_blob(struct xattr_op *o, node_blob_fn fn)
{
	if (o->inode->i_put)
		put_getxattrs(o->inode->i_put, fn, o);
	else
		node_getxattrs(o->op.op_fs->node, o->inode->i_id, fn, o);
}

static void get_cb(void *arg, int err, const uint8_t *blob, size_t len)
{
	struct xattr_op *o = arg;
	const uint8_t *value = NULL;
	size_t value_len = 0;

	if (!err)
		err = xattr_get(blob, len, o->name, &value, &value_len);
	if (err)
		op_err(&o->op, err);
	else
		answer_value(o, value, value_len);
}

void fs_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct xattr_op *o = xattr_op_new(req, ino, name, "getxattr");

	if (!o)
		return;
	o->size = size;
	if (own_find(o->name) != OWN_NONE)
		get_own(o);
	else if (has_none(o))
		op_err(&o->op, -ENODATA);
	else
		get_blob(o, get_cb);
	op_started(&o->op);
}

/* The names, each with its NUL: *ret from malloc. */
static int list_names(const uint8_t *blob, size_t len, char **ret, size_t *ret_len)
{
	const uint8_t *value;
	const char *name;
	size_t pos = 0, name_len, value_len, n = 0;
	char *list = malloc(len + 1); /* a record is longer than its name and a NUL */
	int r;

	if (!list)
		return -ENOMEM;
	while ((r = xattr_next(blob, len, &pos, &name, &name_len, &value, &value_len)) > 0) {
		memcpy(list + n, name, name_len);
		list[n + name_len] = '\0';
		n += name_len + 1;
	}
	if (r < 0) {
		free(list);
		return r;
	}
	*ret = list;
	*ret_len = n;
	return 0;
}

static void list_cb(void *arg, int err, const uint8_t *blob, size_t len)
{
	struct xattr_op *o = arg;
	char *list = NULL;
	size_t n = 0;

	if (!err)
		err = list_names(blob, len, &list, &n);
	if (err)
		op_err(&o->op, err);
	else
		answer_value(o, list, n);
	free(list);
}

void fs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct xattr_op *o;

	if (ino_is_virtual(ino)) {
		fuse_reply_xattr(req, 0);
		return;
	}
	o = xattr_op_new(req, ino, NULL, "listxattr");
	if (!o)
		return;
	o->size = size;
	if (has_none(o))
		answer_value(o, NULL, 0);
	else
		get_blob(o, list_cb);
	op_started(&o->op);
}

static void set_done_cb(void *arg, int err)
{
	struct xattr_op *o = arg;

	if (!err)
		inode_has_xattrs(o->op.op_fs->inodes, o->inode);
	op_done_cb(&o->op, err);
}

static void set_cb(void *arg, int err, const uint8_t *blob, size_t len)
{
	struct xattr_op *o = arg;
	size_t n = 0;

	if (!err)
		err = xattr_set(blob, len, o->name, o->remove ? NULL : o->value, o->value_len, o->flags, &o->blob, &n);
	if (err)
		op_err(&o->op, err);
	else if (o->inode->i_put)
		put_setxattrs(o->inode->i_put, o->blob, n, set_done_cb, o);
	else
		node_setxattrs(o->op.op_fs->node, o->inode->i_id, o->blob, n, set_done_cb, o);
}

/* The kernel holds the inode's lock over a set or remove, so nobody changes the blob between get and set. */
static void set_any(struct xattr_op *o)
{
	if (own_find(o->name) != OWN_NONE)
		set_own(o);
	else
		get_blob(o, set_cb);
	op_started(&o->op);
}

void fs_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	struct xattr_op *o = xattr_op_new(req, ino, name, "setxattr");

	if (!o)
		return;
	o->flags = flags;
	o->value_len = size;
	o->value = malloc(size + 1);
	if (!o->value) {
		op_err(&o->op, -ENOMEM);
		op_started(&o->op);
		return;
	}
	memcpy(o->value, value, size);
	set_any(o);
}

void fs_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct xattr_op *o = xattr_op_new(req, ino, name, "removexattr");

	if (!o)
		return;
	o->remove = true;
	set_any(o);
}
