/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel is to forget, told by a thread of its own: the kernel takes locks for it that a task may hold which
 * waits for one of our answers, so whoever answers requests must never do it.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"

#define QUEUE_MAX 65536 /* names; then those who bring more wait */
#define AGAIN_NS NS_PER_SEC

struct note {
	struct list link;
	uint64_t ino;	/* the directory of a name, or the inode whose pages go */
	uint64_t at_ns; /* not before */
	uint64_t off;
	size_t len;
	struct op *op; /* a write to answer; NULL: this is about a name */
	bool again;    /* tried before */
	bool idle;     /* ino is a private version's that nobody writes any more; its name is found when it is due */
	char name[];
};

struct notify {
	struct fs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake, room;
	struct list queue; /* lock */
	struct list later; /* lock; ordered by at_ns */
	size_t n;	   /* lock; names in both */
	bool stop;	   /* lock */
};

static struct note *note_new(uint64_t ino, const char *name)
{
	size_t len = strlen(name);
	struct note *t = calloc(1, sizeof(*t) + len + 1);

	if (!t)
		return NULL;
	t->ino = ino;
	memcpy(t->name, name, len + 1);
	return t;
}

void notify_entry(struct notify *n, uint64_t dir, const char *name)
{
	struct note *t = note_new(dir, name);

	if (!t) {
		log_warn(
		    "out of memory: the kernel may go on believing in an evicted name until its next open, ignoring");
		return;
	}
	pthread_mutex_lock(&n->lock);
	while (n->n >= QUEUE_MAX && !n->stop)
		pthread_cond_wait(&n->room, &n->lock);
	if (!n->stop) {
		list_add_tail(&t->link, &n->queue);
		n->n++;
		t = NULL;
		pthread_cond_signal(&n->wake);
	}
	pthread_mutex_unlock(&n->lock);
	free(t);
}

void notify_idle(struct notify *n, uint64_t ino)
{
	struct note *t = note_new(ino, "");

	if (!t)
		return;
	t->idle = t->again = true;
	t->at_ns = clock_ns() + AGAIN_NS;
	pthread_mutex_lock(&n->lock);
	if (n->n < QUEUE_MAX && !n->stop) {
		list_add_tail(&t->link, &n->later);
		n->n++;
		t = NULL;
		pthread_cond_signal(&n->wake);
	}
	pthread_mutex_unlock(&n->lock);
	free(t);
}

/* Readers through the page cache may have read old bytes back in while the write was under way. */
void notify_pages_then_write(struct notify *n, uint64_t ino, uint64_t off, size_t len, struct op *op)
{
	struct note *t = note_new(ino, "");
	bool queued = false;

	if (t) {
		t->off = off;
		t->len = len;
		t->op = op;
		pthread_mutex_lock(&n->lock);
		queued = !n->stop;
		if (queued) {
			list_add_tail(&t->link, &n->queue);
			pthread_cond_signal(&n->wake);
		}
		pthread_mutex_unlock(&n->lock);
	}
	if (!queued) {
		free(t);
		op_write(op, len);
	}
}

void notify_gone(void *arg, uint64_t put_id, uint64_t dir, const char *name)
{
	struct fs *fs = arg;
	struct inode *i = inode_get(fs->inodes, put_id);
	char known[MSG_NAME_MAX + 1];

	/* What the kernel does not know, or not under a name any more (its own unlink), it need not forget. */
	if (i && inode_get_name(fs->inodes, i, &dir, known) == 0)
		notify_entry(fs->notify, dir, known);
	else if (!put_id && name[0])
		notify_entry(fs->notify, dir, name);
	inode_unref(fs->inodes, i);
}

/* Under the name the kernel would keep the inode, and the inode the private version, for as long as it has memory. */
static void tell_idle(struct fs *fs, uint64_t ino)
{
	struct inode *i = inode_get(fs->inodes, ino);
	char name[MSG_NAME_MAX + 1];
	uint64_t dir;

	if (i && !atomic_load(&i->i_writers) && inode_get_name(fs->inodes, i, &dir, name) == 0) {
		count_add(fs, invalidations, 1);
		fuse_lowlevel_notify_inval_entry(fs->se, dir, name, strlen(name));
	}
	inode_unref(fs->inodes, i);
}

void fs_forget_name(struct fs *fs, uint64_t dir, const char *name)
{
	inode_name_removed(fs->inodes, dir, name);
	count_add(fs, invalidations, 1);
	fuse_lowlevel_notify_inval_entry(fs->se, dir, name, strlen(name));
}

/* False: the kernel does not know the name, or does not yet, as our answer to its lookup is still on its way. */
static bool tell(struct notify *n, struct note *t)
{
	struct fs *fs = n->fs;
	int r;

	if (t->idle) {
		tell_idle(fs, t->ino);
		return true;
	}
	count_add(fs, invalidations, 1);
	if (t->op) {
		fuse_lowlevel_notify_inval_inode(fs->se, t->ino, (off_t)t->off, (off_t)t->len);
		op_write(t->op, t->len);
		return true;
	}
	r = fuse_lowlevel_notify_inval_entry(fs->se, t->ino, t->name, strlen(t->name));
	return r != -ENOENT;
}

/* The next one that is due, or NULL when it is time to stop. Call with n locked. */
static struct note *next_note(struct notify *n)
{
	for (;;) {
		struct note *t = list_empty(&n->later) ? NULL : list_first(&n->later, struct note, link);
		struct timespec ts;

		if (!list_empty(&n->queue))
			return list_first(&n->queue, struct note, link);
		if (n->stop || (t && t->at_ns <= clock_ns()))
			return n->stop ? NULL : t;
		if (t) {
			ts.tv_sec = (time_t)(t->at_ns / NS_PER_SEC);
			ts.tv_nsec = (long)(t->at_ns % NS_PER_SEC);
			pthread_cond_timedwait(&n->wake, &n->lock, &ts);
		} else {
			pthread_cond_wait(&n->wake, &n->lock);
		}
	}
}

/* Call with n locked. */
static void done_with(struct notify *n, struct note *t, bool told)
{
	if (!t->op && !told && !t->again && !n->stop) {
		t->again = true;
		t->at_ns = clock_ns() + AGAIN_NS;
		list_add_tail(&t->link, &n->later);
		return;
	}
	if (!t->op) {
		n->n--;
		pthread_cond_signal(&n->room);
	}
	free(t);
}

static void *notify_main(void *arg)
{
	struct notify *n = arg;
	struct note *t;

	pthread_mutex_lock(&n->lock);
	while ((t = next_note(n))) {
		bool told;

		list_del(&t->link);
		pthread_mutex_unlock(&n->lock);
		told = tell(n, t);
		pthread_mutex_lock(&n->lock);
		done_with(n, t, told);
	}
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

struct notify *notify_new(struct fs *fs, struct errmsg *e)
{
	struct notify *n = calloc(1, sizeof(*n));
	pthread_condattr_t attr;
	int r = ENOMEM;

	if (!n)
		goto fail;
	n->fs = fs;
	list_init(&n->queue);
	list_init(&n->later);
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->room, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&n->wake, &attr);
	pthread_condattr_destroy(&attr);
	r = pthread_create(&n->thread, NULL, notify_main, n);
	if (!r) {
		pthread_setname_np(n->thread, "fuse-notify");
		return n;
	}
	free(n);
fail:
	errmsg_set(e, -r, "cannot start a thread: %s", strerror(r));
	return NULL;
}

void notify_stop(struct notify *n)
{
	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	n->stop = true;
	pthread_cond_signal(&n->wake);
	pthread_cond_broadcast(&n->room);
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->thread, NULL);
}

struct notify *notify_free(struct notify *n)
{
	struct list *l, *tmp;

	if (!n)
		return NULL;
	list_for_each(l, tmp, &n->later) free(container_of(l, struct note, link));
	pthread_cond_destroy(&n->wake);
	pthread_cond_destroy(&n->room);
	pthread_mutex_destroy(&n->lock);
	free(n);
	return NULL;
}
