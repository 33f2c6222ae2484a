/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a directory: first the names that only this node knows, from a snapshot taken at open, then the master's.
 * A private version that is published while the scan runs would turn up again among the master's; the snapshot tells.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/impl.h"

/* Cookies of the snapshot; the master's are below. Offsets of a directory are signed. */
#define PRIVATE_COOKIE (1ull << 62)

struct private_name {
	struct put *put; /* a reference */
	char name[MSG_NAME_MAX + 1];
};

struct node_dir {
	struct node *n;
	uint64_t dir;
	struct private_name *names; /* sorted */
	size_t n_names;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct private_name *)a)->name, ((const struct private_name *)b)->name);
}

static bool in_snapshot(const struct node_dir *d, const char *name)
{
	struct private_name key;

	if (!d->n_names)
		return false;
	memcpy(key.name, name, strlen(name) + 1);
	return bsearch(&key, d->names, d->n_names, sizeof(key), by_name);
}

/* Call with overlay.lock held. */
static int add_name(struct node_dir *d, struct put *p, size_t *max)
{
	if (d->n_names == *max) {
		size_t want = *max ? *max * 2 : 16;
		struct private_name *names = reallocarray(d->names, want, sizeof(*names));

		if (!names)
			return -ENOMEM;
		d->names = names;
		*max = want;
	}
	p->refs++;
	d->names[d->n_names].put = p;
	strcpy(d->names[d->n_names++].name, p->name);
	return 0;
}

/* on_master is p->lock's, which may be taken below overlay.lock. */
static bool only_here(struct put *p)
{
	bool r;

	pthread_mutex_lock(&p->lock);
	r = p->exposed && !p->on_master;
	pthread_mutex_unlock(&p->lock);
	return r;
}

int node_dir_open(struct node *n, uint64_t dir, struct node_dir **ret)
{
	struct node_dir *d = calloc(1, sizeof(*d));
	size_t max = 0;
	int r = 0;

	if (!d)
		return -ENOMEM;
	d->n = n;
	d->dir = dir;
	if (atomic_load_explicit(&n->overlay.count, memory_order_relaxed)) {
		pthread_mutex_lock(&n->overlay.lock);
		for (size_t i = 0; i < OVERLAY_SLOTS && !r; i++)
			for (struct put *p = n->overlay.slots[i]; p && !r; p = p->next)
				if (p->dir == dir && only_here(p))
					r = add_name(d, p, &max);
		pthread_mutex_unlock(&n->overlay.lock);
	}
	if (r < 0) {
		node_dir_close(d);
		return r;
	}
	if (d->n_names)
		qsort(d->names, d->n_names, sizeof(*d->names), by_name);
	*ret = d;
	return 0;
}

struct node_dir *node_dir_close(struct node_dir *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->n_names; i++)
		put_unref(d->names[i].put);
	free(d->names);
	free(d);
	return NULL;
}

struct dir_op {
	struct node_dir *d;
	node_dir_fn fn;
	void *arg;
};

/* A page of the snapshot. */
static void read_private(struct node_dir *d, size_t from, uint32_t max, node_dir_fn fn, void *arg)
{
	size_t count = d->n_names - from < max ? d->n_names - from : max;
	struct msg_dirent *ents = calloc(count ? count : 1, sizeof(*ents));

	if (!ents) {
		fn(arg, -ENOMEM, NULL, 0, false);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		put_getattr(d->names[from + i].put, &ents[i].attr);
		ents[i].cookie = PRIVATE_COOKIE | (from + i + 1);
		strcpy(ents[i].name, d->names[from + i].name);
	}
	fn(arg, 0, ents, count, false);
	free(ents);
}

/* A name of the master's that stands for a private version here shows that one's attributes. */
static void overlay_attr(struct node *n, uint64_t dir, struct msg_dirent *e)
{
	struct put *p;

	pthread_mutex_lock(&n->overlay.lock);
	p = overlay_find(n, dir, e->name);
	if (p && p->exposed)
		put_getattr(p, &e->attr);
	pthread_mutex_unlock(&n->overlay.lock);
}

static void page_answer(void *arg, const struct msg *m)
{
	struct dir_op *op = arg;
	struct node_dir *d = op->d;
	bool private_names = atomic_load_explicit(&d->n->overlay.count, memory_order_relaxed);
	struct msg_dirent *ents = m->ents, *copy = NULL;
	size_t count = m->n_ents, k = 0;
	int r = m->status;

	if (r == 0 && count && (private_names || d->n_names)) {
		copy = malloc(count * sizeof(*copy));
		r = copy ? 0 : -ENOMEM;
		for (size_t i = 0; copy && i < count; i++) {
			if (in_snapshot(d, ents[i].name))
				continue;
			copy[k] = ents[i];
			overlay_attr(d->n, d->dir, &copy[k++]);
		}
		ents = copy;
		/* A page of nothing but repeats is not the end: go on behind it. */
		if (r == 0 && !k && !m->u.readdir.end) {
			uint64_t next = m->u.readdir.next_cookie;
			struct dir_op again = *op;

			free(copy);
			free(op);
			node_dir_read(d, next, (uint32_t)count, again.fn, again.arg);
			return;
		}
		count = k;
	}
	op->fn(op->arg, r, ents, r ? 0 : count, r == 0 && m->u.readdir.end);
	free(copy);
	free(op);
}

void node_dir_read(struct node_dir *d, uint64_t cookie, uint32_t max, node_dir_fn fn, void *arg)
{
	uint64_t from = cookie & PRIVATE_COOKIE ? cookie & ~PRIVATE_COOKIE : 0;
	struct dir_op *op;
	struct msg *m;

	if ((cookie == 0 || (cookie & PRIVATE_COOKIE)) && from < d->n_names) {
		read_private(d, (size_t)from, max, fn, arg);
		return;
	}
	op = malloc(sizeof(*op));
	m = msg_new(MSG_READDIR);
	if (!op || !m) {
		free(op);
		msg_free(m);
		fn(arg, -ENOMEM, NULL, 0, false);
		return;
	}
	*op = (struct dir_op){d, fn, arg};
	m->u.readdir.dir = d->dir;
	m->u.readdir.cookie = cookie & PRIVATE_COOKIE ? 0 : cookie;
	m->u.readdir.max = max;
	node_call(d->n, m, page_answer, op);
}
