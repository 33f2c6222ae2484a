/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/impl.h"

/* ---- making one --------------------------------------------------------------------------------------------- */

struct put *put_new(struct node *n, uint64_t dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid)
{
	struct put *p = calloc(1, sizeof(*p));
	int64_t now = clock_real_ns();

	if (!p)
		return NULL;
	p->name = strdup(name ? name : "");
	if (!p->name) {
		free(p);
		return NULL;
	}
	p->n = n;
	p->id = NODE_PRIVATE_ID | atomic_fetch_add(&n->next_private, 1);
	p->dir = dir;
	p->refs = 1;
	p->attr.kind = MSG_KIND_FILE;
	p->attr.mode = S_IFREG | (mode & 07777);
	p->attr.uid = uid;
	p->attr.gid = gid;
	p->attr.nlink = 1;
	p->attr.mtime_ns = p->attr.ctime_ns = p->attr.atime_ns = now;
	p->xattrs_known = true;
	p->born = true;
	pthread_mutex_init(&p->work, NULL);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->settled, NULL);
	count_add(n, private_versions, 1);
	pthread_mutex_lock(&n->overlay.lock);
	list_add_tail(&p->all, &n->overlay.puts);
	pthread_mutex_unlock(&n->overlay.lock);
	return p;
}

/* With no reference and no handle left. */
static void put_free(struct put *p)
{
	struct node *n = p->n;

	put_discard(p);
	pthread_cond_destroy(&p->settled);
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->work);
	free(p->xattrs);
	free(p->name);
	free(p);
	count_sub(n, private_versions, 1);
}

struct put *put_ref(struct put *p)
{
	pthread_mutex_lock(&p->n->overlay.lock);
	p->refs++;
	pthread_mutex_unlock(&p->n->overlay.lock);
	return p;
}

struct put *put_unref(struct put *p)
{
	struct node *n;
	bool last;

	if (!p)
		return NULL;
	n = p->n;
	pthread_mutex_lock(&n->overlay.lock);
	last = --p->refs == 0;
	/* One that was made for an open which never came. */
	if (last) {
		put_detach_locked(p);
		list_del(&p->all);
	}
	pthread_mutex_unlock(&n->overlay.lock);
	if (last)
		put_free(p);
	return NULL;
}

bool put_is_on_master(struct put *p)
{
	bool r;

	pthread_mutex_lock(&p->lock);
	r = p->on_master;
	pthread_mutex_unlock(&p->lock);
	return r;
}

bool put_is_exposed(struct put *p)
{
	bool r;

	pthread_mutex_lock(&p->lock);
	r = p->exposed;
	pthread_mutex_unlock(&p->lock);
	return r;
}

void put_detach_locked(struct put *p)
{
	struct msg *m = NULL;

	overlay_remove(p->n, p);
	pthread_mutex_lock(&p->lock);
	p->exposed = false;
	p->on_master = false;
	/* It may have the name reserved. Whoever makes it anew asks the master behind this. */
	if (p->ticket)
		m = msg_new(MSG_PUT_RESERVE);
	if (m)
		m->u.put.ticket = p->ticket;
	pthread_mutex_unlock(&p->lock);
	if (m)
		node_call(p->n, m, NULL, NULL);
}

void put_detach(struct put *p)
{
	struct node *n = p->n;

	pthread_mutex_lock(&n->overlay.lock);
	put_detach_locked(p);
	pthread_mutex_unlock(&n->overlay.lock);
}

void put_renew_all(struct node *n)
{
	struct list *l, *tmp;

	pthread_mutex_lock(&n->overlay.lock);
	list_for_each(l, tmp, &n->overlay.puts)
	{
		struct put *p = container_of(l, struct put, all);
		struct msg *m = NULL;

		pthread_mutex_lock(&p->lock);
		if (p->ticket)
			m = msg_new(MSG_PUT_RENEW);
		if (m)
			m->u.put.ticket = p->ticket;
		pthread_mutex_unlock(&p->lock);
		if (m)
			node_call(n, m, NULL, NULL);
	}
	pthread_mutex_unlock(&n->overlay.lock);
}

/* ---- create ------------------------------------------------------------------------------------------------- */

struct start_op {
	struct node *n;
	struct put *p;
	put_fn fn;
	void *arg;
	struct work work;
	uint64_t guess, block_size;
	bool excl;
};

/* Takes the ticket and the grant of block 0 from the answer of PutStart. Call with p->lock held. */
static int take_ticket(struct put *p, const struct msg *m)
{
	p->ticket = m->u.put.ticket;
	p->block_size = m->u.put.block_size;
	p->persist = m->u.put.persist_to_ssd;
	if (!p->block_size || m->n_items < 1)
		return -EPROTO;
	p->blocks = calloc(1, sizeof(*p->blocks));
	if (!p->blocks)
		return -ENOMEM;
	p->n_blocks = 1;
	p->blocks[0].alloc = m->items[0].alloc;
	p->blocks[0].granted = m->items[0].bytes;
	p->blocks[0].fd = -1;
	count_add(p->n, dram_reserved, p->blocks[0].granted);
	p->state = PUT_OPEN;
	return 0;
}

static struct msg *make_put_start(void *arg)
{
	struct start_op *op = arg;
	struct msg *m = msg_new(MSG_PUT_START);

	if (!m)
		return NULL;
	m->u.put.dir = op->p->dir;
	m->u.put.bytes = op->guess;
	m->u.put.block_size = op->block_size;
	m->u.put.flags = op->excl ? MSG_PUT_EXCL : 0;
	memcpy(m->u.put.name, op->p->name, strlen(op->p->name) + 1);
	return m;
}

int put_start_wait(struct put *p, uint64_t guess, uint64_t block_size)
{
	struct start_op op = {.n = p->n, .p = p, .guess = guess, .block_size = block_size};
	struct msg *answer = NULL, *m = make_put_start(&op);
	int r = m ? node_call_wait(p->n, m, &answer) : -ENOMEM;

	/* Where the guess does not fit, a page may; the rest is asked for when it is needed. */
	if (r == -ENOSPC) {
		answer = msg_free(answer);
		op.guess = SEGMENT_PAGE;
		r = space_call(p->n, make_put_start, &op, SEGMENT_PAGE, &answer);
	}
	if (r == 0) {
		pthread_mutex_lock(&p->lock);
		r = take_ticket(p, answer);
		/* Whoever asked for a size counts the base's blocks by it. */
		if (r == 0 && block_size && p->block_size != block_size)
			r = -EPROTO;
		pthread_mutex_unlock(&p->lock);
	}
	msg_free(answer);
	return r;
}

/* It gets no ticket: whoever found it under the name meanwhile does not get it open. Takes the reference. */
static struct put *give_up_new(struct put *p)
{
	pthread_mutex_lock(&p->lock);
	p->state = PUT_CLEAN;
	p->over = true;
	pthread_cond_broadcast(&p->settled);
	pthread_mutex_unlock(&p->lock);
	put_detach(p);
	return put_unref(p);
}

/* The ticket of a new put has come, with the answer, or will not. */
static void start_end(struct start_op *op, int err, const struct msg *answer)
{
	struct put *p = op->p;

	if (err == 0) {
		pthread_mutex_lock(&p->lock);
		err = take_ticket(p, answer);
		pthread_cond_broadcast(&p->settled);
		pthread_mutex_unlock(&p->lock);
	}
	if (err < 0)
		p = give_up_new(p);
	op->fn(op->arg, err, p);
	free(op);
}

static void start_job(struct work *w)
{
	struct start_op *op = container_of(w, struct start_op, work);
	struct msg *answer = NULL;
	int r = space_call(op->n, make_put_start, op, segment_charge(op->guess), &answer);

	start_end(op, r, answer);
	msg_free(answer);
}

static void start_answer(void *arg, const struct msg *m)
{
	struct start_op *op = arg;
	int r = m->status;

	if (r == -ENOSPC) {
		/* Room must be made, which a callback cannot wait for. One page will do for now. */
		op->guess = SEGMENT_PAGE;
		workq_submit(op->n->wq, &op->work, start_job);
		return;
	}
	start_end(op, r, m);
}

/* The namespace's last size, as far as a directory tells it. */
static uint64_t guess_of(struct node *n, uint64_t dir)
{
	uint64_t last = atomic_load_explicit(&n->guess[dir % GUESS_SLOTS], memory_order_relaxed);

	return last ? last : SEGMENT_PAGE;
}

static void create_put(struct node *n, struct put *p, bool excl, put_fn fn, void *arg)
{
	struct start_op *op = calloc(1, sizeof(*op));
	struct msg *m = NULL;

	if (op) {
		*op =
		    (struct start_op){.n = n, .p = p, .fn = fn, .arg = arg, .guess = guess_of(n, p->dir), .excl = excl};
		m = make_put_start(op);
	}
	if (!m) {
		free(op);
		fn(arg, -ENOMEM, give_up_new(p));
		return;
	}
	node_call(n, m, start_answer, op);
}

void put_create(struct node *n, uint64_t dir, const char *name, bool excl, uint32_t mode, uint32_t uid, uint32_t gid,
		put_fn fn, void *arg)
{
	char checked[MSG_NAME_MAX + 1];
	struct put *p, *there;
	int r = msg_set_name(checked, name);

	p = r ? NULL : put_new(n, dir, name, mode, uid, gid);
	if (!p) {
		fn(arg, r ? r : -ENOMEM, NULL);
		return;
	}
	pthread_mutex_lock(&n->overlay.lock);
	there = overlay_find(n, dir, name);
	if (there && there->exposed) {
		r = -EEXIST;
	} else {
		/* One that was published, and whose name has gone since, keeps its bytes and no name. */
		if (there)
			put_detach_locked(there);
		p->state = PUT_STARTING;
		p->exposed = true;
		overlay_insert(n, p);
	}
	pthread_mutex_unlock(&n->overlay.lock);
	if (r < 0) {
		put_unref(p);
		fn(arg, r, NULL);
		return;
	}
	create_put(n, p, excl, fn, arg);
}

void put_tmpfile(struct node *n, uint64_t dir, uint32_t mode, uint32_t uid, uint32_t gid, put_fn fn, void *arg)
{
	struct put *p = put_new(n, dir, NULL, mode, uid, gid);

	if (!p) {
		fn(arg, -ENOMEM, NULL);
		return;
	}
	p->state = PUT_STARTING;
	create_put(n, p, false, fn, arg);
}

/* ---- link --------------------------------------------------------------------------------------------------- */

struct link_op {
	struct work work;
	struct put *p;
	uint64_t dir;
	node_done_fn fn;
	void *arg;
	char name[MSG_NAME_MAX + 1];
};

static int name_free_wait(struct put *p, uint64_t dir, const char *name)
{
	struct msg *m = msg_new(MSG_LOOKUP);
	int r;

	if (!m)
		return -ENOMEM;
	m->u.name.dir = dir;
	memcpy(m->u.name.name, name, strlen(name) + 1);
	r = node_call_wait(p->n, m, NULL);
	return r == -ENOENT ? 0 : r ? r : -EEXIST;
}

static int link_put(struct link_op *op)
{
	struct put *p = op->p;
	char *name = strdup(op->name), *old = NULL;
	int r = name ? name_free_wait(p, op->dir, op->name) : -ENOMEM;

	pthread_mutex_lock(&p->n->overlay.lock);
	if (r == 0 && (p->named || p->over))
		r = -EPERM;
	if (r == 0 && overlay_find(p->n, op->dir, op->name))
		r = -EEXIST;
	if (r == 0) {
		pthread_mutex_lock(&p->lock);
		old = p->name;
		p->name = name;
		p->dir = op->dir;
		p->exposed = true;
		p->born = true;
		pthread_mutex_unlock(&p->lock);
		overlay_insert(p->n, p);
	}
	pthread_mutex_unlock(&p->n->overlay.lock);
	free(r ? name : old);
	return r;
}

static void link_job(struct work *w)
{
	struct link_op *op = container_of(w, struct link_op, work);
	int r;

	pthread_mutex_lock(&op->p->work);
	r = link_put(op);
	pthread_mutex_unlock(&op->p->work);
	op->fn(op->arg, r);
	put_unref(op->p);
	free(op);
}

void put_link(struct put *p, uint64_t dir, const char *name, node_done_fn fn, void *arg)
{
	struct link_op *op = calloc(1, sizeof(*op));
	int r = op ? msg_set_name(op->name, name) : -ENOMEM;

	if (r < 0) {
		free(op);
		fn(arg, r);
		return;
	}
	op->p = put_ref(p);
	op->dir = dir;
	op->fn = fn;
	op->arg = arg;
	workq_submit(p->n->wq, &op->work, link_job);
}

/* ---- edit --------------------------------------------------------------------------------------------------- */

/* Call with overlay.lock held. The put of this name that a writable open of version a joins, or NULL. */
static struct put *joinable(struct node *n, uint64_t dir, const char *name, const struct msg_attr *a)
{
	struct put *p = overlay_find(n, dir, name);
	bool same;

	if (!p)
		return NULL;
	pthread_mutex_lock(&p->lock);
	same = !p->over && (p->exposed || p->base_id == a->id);
	/* Since its publish, attributes and xattrs were changed under the published version's inode. */
	if (same && !p->exposed) {
		p->attr = *a;
		p->xattrs_known = false;
	}
	if (same)
		p->exposed = true;
	pthread_mutex_unlock(&p->lock);
	if (!same) {
		put_detach_locked(p);
		return NULL;
	}
	p->refs++;
	return p;
}

static void inherit(struct put *p, const struct msg_attr *a, struct version *base)
{
	p->attr = *a;
	p->block_size = a->block_size;
	p->base = base;
	p->base_id = a->id;
	p->size = base ? a->size : 0;
	p->born = !base;
	p->on_master = true;
	p->xattrs_known = !a->has_xattrs;
}

void put_edit(struct node *n, uint64_t dir, const char *name, const struct msg_attr *a, bool truncate, put_fn fn,
	      void *arg)
{
	struct version *base = NULL;
	struct put *p, *fresh;
	int r;

	/* Holds the bytes before the name is taken, so that a dropped version is found out now. */
	r = truncate ? 0 : version_hold(n, a, &base);
	fresh = r ? NULL : put_new(n, dir, name, a->mode, a->uid, a->gid);
	if (!fresh) {
		version_close(base);
		fn(arg, r ? r : -ENOMEM, NULL);
		return;
	}
	inherit(fresh, a, base);
	pthread_mutex_lock(&n->overlay.lock);
	p = joinable(n, dir, name, a);
	if (!p) {
		p = fresh;
		fresh = NULL;
		p->exposed = true;
		overlay_insert(n, p);
	}
	pthread_mutex_unlock(&n->overlay.lock);
	put_unref(fresh);
	fn(arg, 0, p);
}

/* ---- attributes --------------------------------------------------------------------------------------------- */

int put_open(struct put *p, bool writer)
{
	int r = 0;

	pthread_mutex_lock(&p->n->overlay.lock);
	pthread_mutex_lock(&p->lock);
	if (p->over) {
		r = -ESTALE;
	} else {
		p->handles++;
		p->writers += writer;
		p->refs++;
	}
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&p->n->overlay.lock);
	return r;
}

void put_getattr(struct put *p, struct msg_attr *ret)
{
	pthread_mutex_lock(&p->lock);
	*ret = p->attr;
	ret->id = p->id;
	ret->size = p->size;
	ret->block_size = p->block_size;
	ret->has_xattrs = !p->xattrs_known || p->xattrs_len;
	pthread_mutex_unlock(&p->lock);
}

uint64_t put_blocks(struct put *p)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&p->lock);
	if (p->state == PUT_CLEAN)
		bytes = segment_charge(p->size);
	for (size_t i = 0; i < p->n_blocks; i++)
		bytes += segment_charge(p->blocks[i].filled);
	pthread_mutex_unlock(&p->lock);
	return bytes / 512;
}

/* Call with p->lock held. */
static void apply_attr(struct msg_attr *to, const struct msg_attr *a, uint32_t mask)
{
	if (mask & MSG_SET_MODE)
		to->mode = S_IFREG | (a->mode & 07777);
	if (mask & MSG_SET_UID)
		to->uid = a->uid;
	if (mask & MSG_SET_GID)
		to->gid = a->gid;
	if (mask & MSG_SET_MTIME)
		to->mtime_ns = a->mtime_ns;
	if (mask & MSG_SET_ATIME)
		to->atime_ns = a->atime_ns;
	if (mask & MSG_SET_PIN)
		to->flags = (to->flags & ~MSG_ATTR_PIN) | (a->flags & MSG_ATTR_PIN);
	if (mask & MSG_SET_TTL)
		to->expires_ns = a->expires_ns;
	to->ctime_ns = clock_real_ns();
}

void put_follow_base(struct node *n, const struct msg_attr *a, uint32_t mask)
{
	if (!count_get(n, private_versions))
		return;
	pthread_mutex_lock(&n->overlay.lock);
	for (size_t i = 0; i < OVERLAY_SLOTS; i++)
		for (struct put *p = n->overlay.slots[i]; p; p = p->next) {
			pthread_mutex_lock(&p->lock);
			if (!p->exposed && p->base_id == a->id)
				apply_attr(&p->attr, a, mask);
			pthread_mutex_unlock(&p->lock);
		}
	pthread_mutex_unlock(&n->overlay.lock);
}

struct forward_op {
	node_done_fn fn;
	void *arg;
};

static void forwarded_entry(void *arg, int err, const struct node_entry *e)
{
	struct forward_op *op = arg;

	/* The version was overwritten or unlinked meanwhile: nobody will see its attributes. */
	op->fn(op->arg, err == -ENOENT || err == -ESTALE ? 0 : err);
	free(op);
}

/* The version that has the name, if it is this put's last publish and nothing newer is written. Else 0. */
static uint64_t published_id(struct put *p)
{
	return p->state == PUT_CLEAN && p->on_master && !p->born ? p->base_id : 0;
}

void put_setattr(struct put *p, const struct msg_attr *a, uint32_t mask, node_done_fn fn, void *arg)
{
	struct forward_op *op;
	struct msg_attr out = *a;

	pthread_mutex_lock(&p->lock);
	apply_attr(&p->attr, a, mask);
	if (p->state == PUT_PUBLISHING)
		p->late_mask |= mask;
	out.id = published_id(p);
	pthread_mutex_unlock(&p->lock);
	op = out.id ? malloc(sizeof(*op)) : NULL;
	if (!op) {
		fn(arg, out.id ? -ENOMEM : 0);
		return;
	}
	*op = (struct forward_op){fn, arg};
	node_setattr(p->n, &out, mask, forwarded_entry, op);
}

/* ---- xattrs ------------------------------------------------------------------------------------------------- */

/* Keeps a copy of the blob as the put's own set. Call with p->lock held. */
static int keep_xattrs(struct put *p, const uint8_t *blob, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	if (!copy)
		return -ENOMEM;
	if (len)
		memcpy(copy, blob, len);
	free(p->xattrs);
	p->xattrs = copy;
	p->xattrs_len = len;
	p->xattrs_known = true;
	return 0;
}

struct xattr_op {
	struct put *p;
	node_blob_fn fn;
	void *arg;
};

static void give_xattrs(struct put *p, node_blob_fn fn, void *arg)
{
	uint8_t *copy;
	size_t len;

	pthread_mutex_lock(&p->lock);
	len = p->xattrs_len;
	copy = malloc(len ? len : 1);
	if (copy && len)
		memcpy(copy, p->xattrs, len);
	pthread_mutex_unlock(&p->lock);
	fn(arg, copy ? 0 : -ENOMEM, copy, copy ? len : 0);
	free(copy);
}

static void base_xattrs(void *arg, int err, const uint8_t *blob, size_t len)
{
	struct xattr_op *op = arg;

	pthread_mutex_lock(&op->p->lock);
	if (err == 0 && !op->p->xattrs_known)
		err = keep_xattrs(op->p, blob, len);
	/* The base has expired: what is known of it will do. */
	if (err == -ENOENT) {
		op->p->xattrs_known = true;
		err = 0;
	}
	pthread_mutex_unlock(&op->p->lock);
	if (err < 0)
		op->fn(op->arg, err, NULL, 0);
	else
		give_xattrs(op->p, op->fn, op->arg);
	put_unref(op->p);
	free(op);
}

void put_getxattrs(struct put *p, node_blob_fn fn, void *arg)
{
	struct xattr_op *op;
	uint64_t base;
	bool known;

	pthread_mutex_lock(&p->lock);
	known = p->xattrs_known;
	base = p->base_id;
	pthread_mutex_unlock(&p->lock);
	if (known) {
		give_xattrs(p, fn, arg);
		return;
	}
	op = malloc(sizeof(*op));
	if (!op) {
		fn(arg, -ENOMEM, NULL, 0);
		return;
	}
	*op = (struct xattr_op){put_ref(p), fn, arg};
	node_getxattrs(p->n, base, base_xattrs, op);
}

void put_setxattrs(struct put *p, const uint8_t *blob, size_t len, node_done_fn fn, void *arg)
{
	uint64_t published;
	int r;

	pthread_mutex_lock(&p->lock);
	r = keep_xattrs(p, blob, len);
	if (p->state == PUT_PUBLISHING)
		p->late_xattrs = true;
	published = published_id(p);
	pthread_mutex_unlock(&p->lock);
	if (r == 0 && published)
		node_setxattrs(p->n, published, blob, len, fn, arg);
	else
		fn(arg, r);
}
