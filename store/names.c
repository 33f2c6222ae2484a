/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: looking them up, and the operations that change them. A name is looked for in the overlay first, then among
 * the leased names, then at the master.
 *
 * The kernel serialises what changes one directory (create, unlink, rename, mkdir, rmdir), so two such operations on
 * one name do not meet here; publishes and lookups come at any time.
 */
#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#include "store/impl.h"

/* ---- requests that are answered with an entry ---------------------------------------------------------------- */

/* One request about names on its way to the master, and whom to tell. */
struct name_op {
	struct node *n;
	node_entry_fn entry_fn;
	node_done_fn done_fn;
	void *arg;
	uint64_t dir, to_dir;
	struct msg_attr attr; /* rename: what moves, where that is known; else id 0 */
	unsigned flags;	      /* rename's, or setattr's mask */
	struct work work;
	char name[MSG_NAME_MAX + 1], to[MSG_NAME_MAX + 1];
};

static struct name_op *op_new(struct node *n, uint64_t dir, const char *name, int *ret_err)
{
	struct name_op *op = calloc(1, sizeof(*op));
	int r = op ? 0 : -ENOMEM;

	if (op) {
		op->n = n;
		op->dir = dir;
		if (name)
			r = msg_set_name(op->name, name);
	}
	if (r < 0) {
		free(op);
		*ret_err = r;
		return NULL;
	}
	return op;
}

static void op_end(struct name_op *op, int err, const struct msg_attr *a)
{
	struct node_entry e = {0};

	if (op->entry_fn) {
		if (a)
			e.attr = *a;
		op->entry_fn(op->arg, err, err < 0 ? NULL : &e);
	} else {
		op->done_fn(op->arg, err);
	}
	free(op);
}

static struct msg *name_msg(enum msg_type type, uint64_t dir, const char *name)
{
	struct msg *m = msg_new(type);

	if (m) {
		m->u.name.dir = dir;
		memcpy(m->u.name.name, name, strlen(name) + 1);
	}
	return m;
}

static void send_op(struct name_op *op, struct msg *m, channel_done_fn done)
{
	if (m)
		node_call(op->n, m, done, op);
	else
		op_end(op, -ENOMEM, NULL);
}

static void entry_answer(void *arg, const struct msg *m)
{
	struct name_op *op = arg;

	if (m->status == 0 && (op->flags & MSG_SET_PIN))
		block_set_pin(op->n, &m->u.entry.a, m->u.entry.a.flags & MSG_ATTR_PIN);
	op_end(op, m->status, &m->u.entry.a);
}

static void lookup_answer(void *arg, const struct msg *m)
{
	struct name_op *op = arg;

	if (m->status == 0)
		names_insert(op->n, op->dir, op->name, &m->u.entry.a, m->u.entry.lease, m->tomb_tag);
	else if (m->status == -ENOENT)
		count_add(op->n, miss[m->u.entry.miss & 7], 1);
	op_end(op, m->status, &m->u.entry.a);
}

/* The private version that the name stands for here, with a reference, or NULL. */
static struct put *exposed_put(struct node *n, uint64_t dir, const char *name)
{
	struct put *p = NULL;

	if (!atomic_load_explicit(&n->overlay.count, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&n->overlay.lock);
	p = overlay_find(n, dir, name);
	if (p && p->exposed)
		p->refs++;
	else
		p = NULL;
	pthread_mutex_unlock(&n->overlay.lock);
	return p;
}

void node_lookup(struct node *n, uint64_t dir, const char *name, node_entry_fn fn, void *arg)
{
	struct node_entry e = {0};
	struct name_op *op;
	int r;

	e.put = exposed_put(n, dir, name);
	if (e.put) {
		put_getattr(e.put, &e.attr);
		fn(arg, 0, &e);
		return;
	}
	if (names_find(n, dir, name, &e.attr)) {
		fn(arg, 0, &e);
		return;
	}
	op = op_new(n, dir, name, &r);
	if (!op) {
		fn(arg, r, NULL);
		return;
	}
	op->entry_fn = fn;
	op->arg = arg;
	send_op(op, name_msg(MSG_LOOKUP, dir, name), lookup_answer);
}

static void attr_op(struct node *n, enum msg_type type, const struct msg_attr *a, uint32_t mask, node_entry_fn fn,
		    void *arg)
{
	int r;
	struct name_op *op = op_new(n, 0, NULL, &r);
	struct msg *m;

	if (!op) {
		fn(arg, r, NULL);
		return;
	}
	op->entry_fn = fn;
	op->arg = arg;
	op->flags = mask;
	m = msg_new(type);
	if (m) {
		m->u.attr.a = *a;
		m->u.attr.mask = mask;
	}
	send_op(op, m, entry_answer);
}

void node_getattr(struct node *n, uint64_t id, node_entry_fn fn, void *arg)
{
	struct msg_attr a = {.id = id};

	attr_op(n, MSG_GETATTR, &a, 0, fn, arg);
}

void names_send_attr(struct node *n, const struct msg_attr *a, uint32_t mask, node_entry_fn fn, void *arg)
{
	names_forget_id(n, a->id);
	attr_op(n, MSG_SETATTR, a, mask, fn, arg);
}

void node_setattr(struct node *n, const struct msg_attr *a, uint32_t mask, node_entry_fn fn, void *arg)
{
	put_follow_base(n, a, mask);
	names_send_attr(n, a, mask, fn, arg);
}

void node_mkdir(struct node *n, uint64_t dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid,
		node_entry_fn fn, void *arg)
{
	struct put *p = exposed_put(n, dir, name);
	struct name_op *op;
	struct msg *m;
	int r = -EEXIST;

	if (p) {
		put_unref(p);
		fn(arg, r, NULL);
		return;
	}
	op = op_new(n, dir, name, &r);
	if (!op) {
		fn(arg, r, NULL);
		return;
	}
	op->entry_fn = fn;
	op->arg = arg;
	m = name_msg(MSG_MKDIR, dir, name);
	if (m) {
		m->u.name.attr.mode = mode;
		m->u.name.attr.uid = uid;
		m->u.name.attr.gid = gid;
	}
	send_op(op, m, entry_answer);
}

/* ---- unlink, rmdir ------------------------------------------------------------------------------------------ */

/* What the op moves: its name, and for a rename the other one. */
static void move_begin(struct name_op *op)
{
	names_move_begin(op->n, op->dir, op->name);
	if (op->to[0])
		names_move_begin(op->n, op->to_dir, op->to);
}

static void move_end(struct name_op *op, uint64_t lease)
{
	names_move_end(op->n, op->dir, op->name, lease);
	if (op->to[0])
		names_move_end(op->n, op->to_dir, op->to, lease);
}

static void delete_answer(void *arg, const struct msg *m)
{
	struct name_op *op = arg;

	move_end(op, m->status ? 0 : m->u.entry.lease);
	op_end(op, m->status, NULL);
}

/* Any put under the name, exposed or not, with a reference. */
static struct put *any_put(struct node *n, uint64_t dir, const char *name)
{
	struct put *p = NULL;

	if (!atomic_load_explicit(&n->overlay.count, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&n->overlay.lock);
	p = overlay_find(n, dir, name);
	if (p)
		p->refs++;
	pthread_mutex_unlock(&n->overlay.lock);
	return p;
}

/* Keeps both from being published or written meanwhile; by address, so that two renames do not wait in a ring. */
static void lock_puts(struct put *a, struct put *b)
{
	struct put *first = a < b ? a : b, *second = a < b ? b : a;

	if (first) {
		pthread_mutex_lock(&first->work);
		put_freeze(first);
	}
	if (second) {
		pthread_mutex_lock(&second->work);
		put_freeze(second);
	}
}

static void unlock_put(struct put *p)
{
	if (!p)
		return;
	put_thaw(p);
	pthread_mutex_unlock(&p->work);
	put_unref(p);
}

/*
 * p or, for NULL, nobody has the name: a put may have been published and have left it, or another have come, while a
 * lock was waited for.
 */
static bool has_name(struct node *n, struct put *p, uint64_t dir, const char *name)
{
	bool has;

	pthread_mutex_lock(&n->overlay.lock);
	has = overlay_find(n, dir, name) == p;
	pthread_mutex_unlock(&n->overlay.lock);
	return has;
}

/* The puts of both names (to may be NULL), locked for as long as the names are changed. */
static void lock_names(struct name_op *op, const char *to, struct put **ret_from, struct put **ret_to)
{
	for (;;) {
		struct put *a = any_put(op->n, op->dir, op->name), *b = to ? any_put(op->n, op->to_dir, to) : NULL;

		lock_puts(a, b);
		*ret_from = a;
		*ret_to = b;
		if (has_name(op->n, a, op->dir, op->name) && (!to || has_name(op->n, b, op->to_dir, to)))
			return;
		unlock_put(a);
		unlock_put(b);
	}
}

/*
 * The name belongs to a private version: not while a publish of it is on its way, which would bring the name back. A
 * job, since it may have to wait for that.
 */
static void unlink_job(struct work *w)
{
	struct name_op *op = container_of(w, struct name_op, work);
	struct put *p, *none;
	int r = 0;

	lock_names(op, NULL, &p, &none);
	if (!p || put_is_on_master(p)) {
		struct msg *m = name_msg(MSG_DELETE, op->dir, op->name), *answer = NULL;

		move_begin(op);
		r = m ? node_call_wait(op->n, m, &answer) : -ENOMEM;
		move_end(op, r ? 0 : answer->u.entry.lease);
		msg_free(answer);
		/* The private version had the name, whatever the master knew of it. */
		if (p && r == -ENOENT)
			r = 0;
	}
	if (p && r == 0)
		put_detach(p);
	unlock_put(p);
	op_end(op, r, NULL);
}

void node_unlink(struct node *n, uint64_t dir, const char *name, node_done_fn fn, void *arg)
{
	struct put *p;
	struct msg *m;
	int r;
	struct name_op *op = op_new(n, dir, name, &r);

	if (!op) {
		fn(arg, r);
		return;
	}
	op->done_fn = fn;
	op->arg = arg;
	p = any_put(n, dir, name);
	put_unref(p);
	if (p) {
		workq_submit(n->wq, &op->work, unlink_job);
		return;
	}
	m = name_msg(MSG_DELETE, dir, name);
	if (m)
		move_begin(op);
	send_op(op, m, delete_answer);
}

static void rmdir_answer(void *arg, const struct msg *m)
{
	op_end(arg, m->status, NULL);
}

static void rmdir_looked_up(void *arg, int err, const struct node_entry *e)
{
	struct name_op *op = arg;

	if (err == 0 && e->put)
		put_unref(e->put);
	if (err == 0 && e->attr.kind == MSG_KIND_DIR && overlay_dir_in_use(op->n, e->attr.id))
		err = -ENOTEMPTY;
	if (err < 0)
		op_end(op, err, NULL);
	else
		send_op(op, name_msg(MSG_RMDIR, op->dir, op->name), rmdir_answer);
}

void node_rmdir(struct node *n, uint64_t dir, const char *name, node_done_fn fn, void *arg)
{
	int r;
	struct name_op *op = op_new(n, dir, name, &r);

	if (!op) {
		fn(arg, r);
		return;
	}
	op->done_fn = fn;
	op->arg = arg;
	/* The master does not know of private versions, and would find the directory empty. */
	if (atomic_load_explicit(&n->overlay.count, memory_order_relaxed))
		node_lookup(n, dir, name, rmdir_looked_up, op);
	else
		send_op(op, name_msg(MSG_RMDIR, dir, name), rmdir_answer);
}

/* ---- rename ------------------------------------------------------------------------------------------------- */

static struct msg *rename_msg(const struct name_op *op)
{
	struct msg *m = msg_new(MSG_RENAME);

	if (m) {
		m->u.rename.from_dir = op->dir;
		m->u.rename.to_dir = op->to_dir;
		m->u.rename.noreplace = op->flags & RENAME_NOREPLACE;
		memcpy(m->u.rename.from, op->name, sizeof(op->name));
		memcpy(m->u.rename.to, op->to, sizeof(op->to));
	}
	return m;
}

static void rename_over(struct name_op *op, const struct msg *answer)
{
	move_end(op, answer && !answer->status ? answer->u.rename.lease : 0);
	if (answer && !answer->status && op->attr.id)
		block_rekey(op->n, &op->attr, op->to_dir, op->to);
}

static void rename_answer(void *arg, const struct msg *m)
{
	struct name_op *op = arg;

	rename_over(op, m);
	op_end(op, m->status, NULL);
}

/* Asks the master, and waits. */
static int rename_wait(struct name_op *op)
{
	struct msg *m = rename_msg(op), *answer = NULL;
	int r;

	if (!m)
		return -ENOMEM;
	move_begin(op);
	r = node_call_wait(op->n, m, &answer);
	rename_over(op, answer);
	msg_free(answer);
	return r;
}

/* Moves the put to its new name in the overlay; one that had it before loses it. */
static int overlay_move(struct name_op *op, struct put *p)
{
	struct node *n = op->n;
	char *name = strdup(op->to), *old;
	struct put *there;

	if (!name)
		return -ENOMEM;
	pthread_mutex_lock(&n->overlay.lock);
	there = overlay_find(n, op->to_dir, op->to);
	if (there)
		put_detach_locked(there);
	overlay_remove(n, p);
	pthread_mutex_lock(&p->lock);
	old = p->name;
	p->name = name;
	p->dir = op->to_dir;
	pthread_mutex_unlock(&p->lock);
	overlay_insert(n, p);
	pthread_mutex_unlock(&n->overlay.lock);
	free(old);
	return 0;
}

static int lookup_wait_msg(struct name_op *op)
{
	struct msg *m = name_msg(MSG_LOOKUP, op->to_dir, op->to);

	return m ? node_call_wait(op->n, m, NULL) : -ENOMEM;
}

static int reserve(struct put *p, uint64_t dir, const char *name)
{
	struct msg *m = msg_new(MSG_PUT_RESERVE);

	if (!m)
		return -ENOMEM;
	m->u.put.ticket = p->ticket;
	m->u.put.dir = dir;
	memcpy(m->u.put.name, name, strlen(name) + 1);
	return node_call_wait(p->n, m, NULL);
}

/* NOREPLACE for a name that has a private version. */
static bool put_is_there(struct name_op *op)
{
	struct put *there = exposed_put(op->n, op->to_dir, op->to);

	put_unref(there);
	return there;
}

/*
 * A version that the master does not know yet; the reservation tells whether it may lie there. What the master has
 * under the new name lies hidden below the private version from now on, and goes where that goes: it is renamed with
 * it, removed with it, replaced by its publish.
 */
static int rename_unpublished(struct name_op *op, struct put *p, struct put *over)
{
	int r = lookup_wait_msg(op);
	bool hides = r == 0;

	if (r < 0 && r != -ENOENT)
		return r;
	if ((op->flags & RENAME_NOREPLACE) && (hides || put_is_there(op)))
		return -EEXIST;
	r = 0;
	/* One that has the name reserved, by its own creation or rename, is about to lose it. */
	if (p->ticket && over && over->ticket)
		r = reserve(over, 0, "");
	if (p->ticket && !r)
		r = reserve(p, op->to_dir, op->to);
	if (!r)
		r = overlay_move(op, p);
	if (r < 0)
		return r;
	pthread_mutex_lock(&p->lock);
	p->on_master = hides;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

static int rename_published(struct name_op *op, struct put *p)
{
	int r;

	if ((op->flags & RENAME_NOREPLACE) && put_is_there(op))
		return -EEXIST;
	r = rename_wait(op);
	if (r < 0)
		return r;
	/* It may have the old name reserved, which is free now. */
	if (p->ticket)
		reserve(p, 0, "");
	return overlay_move(op, p);
}

/* Only the target has a private version: it loses its name when the master has renamed. */
static int rename_over_put(struct name_op *op, struct put *there)
{
	int r;

	if ((op->flags & RENAME_NOREPLACE) && put_is_exposed(there))
		return -EEXIST;
	r = rename_wait(op);
	if (r == 0)
		put_detach(there);
	return r;
}

static void rename_job(struct work *w)
{
	struct name_op *op = container_of(w, struct name_op, work);
	struct put *from, *to;
	int r;

	lock_names(op, op->to, &from, &to);
	if (from)
		r = put_is_on_master(from) ? rename_published(op, from) : rename_unpublished(op, from, to);
	else if (to)
		r = rename_over_put(op, to);
	else
		r = rename_wait(op);
	unlock_put(from);
	unlock_put(to);
	op_end(op, r, NULL);
}

static void rename_send(struct name_op *op)
{
	struct msg *m = rename_msg(op);

	if (m)
		move_begin(op);
	send_op(op, m, rename_answer);
}

void node_rename(struct node *n, uint64_t from_dir, const char *from, uint64_t to_dir, const char *to, unsigned flags,
		 node_done_fn fn, void *arg)
{
	int r = flags & ~(unsigned)RENAME_NOREPLACE ? -EINVAL : 0;
	struct name_op *op = r ? NULL : op_new(n, from_dir, from, &r);

	if (op)
		r = msg_set_name(op->to, to);
	if (!op || r < 0) {
		free(op);
		fn(arg, r);
		return;
	}
	if (!names_find(n, from_dir, from, &op->attr))
		op->attr.id = 0;
	op->to_dir = to_dir;
	op->flags = flags;
	op->done_fn = fn;
	op->arg = arg;
	if (from_dir == to_dir && !strcmp(from, to))
		op_end(op, flags & RENAME_NOREPLACE ? -EEXIST : 0, NULL);
	else if (atomic_load_explicit(&n->overlay.count, memory_order_relaxed))
		workq_submit(n->wq, &op->work, rename_job);
	else
		rename_send(op);
}

/* ---- xattrs, statfs ----------------------------------------------------------------------------------------- */

struct blob_op {
	node_blob_fn fn;
	void *arg;
};

static void getxattrs_answer(void *arg, const struct msg *m)
{
	struct blob_op *op = arg;

	op->fn(op->arg, m->status, m->blob, m->blob_len);
	free(op);
}

void node_getxattrs(struct node *n, uint64_t id, node_blob_fn fn, void *arg)
{
	struct blob_op *op = malloc(sizeof(*op));
	struct msg *m = msg_new(MSG_GETXATTRS);

	if (!op || !m) {
		free(op);
		msg_free(m);
		fn(arg, -ENOMEM, NULL, 0);
		return;
	}
	*op = (struct blob_op){fn, arg};
	m->u.attr.a.id = id;
	node_call(n, m, getxattrs_answer, op);
}

static void done_answer(void *arg, const struct msg *m)
{
	op_end(arg, m->status, NULL);
}

void node_setxattrs(struct node *n, uint64_t id, const uint8_t *blob, size_t len, node_done_fn fn, void *arg)
{
	int r;
	struct name_op *op = len > MSG_XATTRS_MAX ? NULL : op_new(n, 0, NULL, &r);
	struct msg *m = op ? msg_new(MSG_SETXATTRS) : NULL;

	if (m)
		m->blob = malloc(len ? len : 1);
	if (!m || !m->blob) {
		msg_free(m);
		free(op);
		fn(arg, len > MSG_XATTRS_MAX ? -ENOSPC : -ENOMEM);
		return;
	}
	op->done_fn = fn;
	op->arg = arg;
	if (len)
		memcpy(m->blob, blob, len);
	m->blob_len = len;
	m->u.attr.a.id = id;
	/* has_xattrs may change. */
	names_forget_id(n, id);
	node_call(n, m, done_answer, op);
}

struct statfs_op {
	node_statfs_fn fn;
	void *arg;
};

static void statfs_answer(void *arg, const struct msg *m)
{
	struct statfs_op *op = arg;
	struct node_statfs s = {m->u.statfs.total_bytes, m->u.statfs.used_bytes, m->u.statfs.objects};

	op->fn(op->arg, m->status, m->status ? NULL : &s);
	free(op);
}

void node_statfs(struct node *n, uint64_t dir, node_statfs_fn fn, void *arg)
{
	struct statfs_op *op = malloc(sizeof(*op));
	struct msg *m = msg_new(MSG_STATFS);

	if (!op || !m) {
		free(op);
		msg_free(m);
		fn(arg, -ENOMEM, NULL);
		return;
	}
	*op = (struct statfs_op){fn, arg};
	m->u.statfs.dir = dir;
	node_call(n, m, statfs_answer, op);
}
