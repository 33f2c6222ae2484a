/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel is to forget, told by threads of their own: the kernel takes locks for it that a task may hold which
 * waits for one of our answers, so whoever answers requests must never do it.
 *
 * There are two, since the locks differ. Dropping pages or an inode takes locks that only reads and writes hold, and
 * those are answered without us; so a write's answer may wait for that. Dropping a name takes the directory's lock.
 * Who holds that may wait for a file's lock (unlink), whose holder waits for its write to be answered: one thread for
 * both would wait for itself. And a thread that is killed with the daemon while it waits for a directory keeps the
 * mount's descriptor, and so all who wait for an answer. So names are dropped only where nothing else will do: for the
 * control socket, for versions that are gone while somebody uses them, and by kernels that cannot prune inodes.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "common/clock.h"

#define QUEUE_MAX 65536 /* of notes that are not needed for a right answer */
#define LATER_NS NS_PER_SEC
#define PRUNE_MAX 64

/* Since protocol 7.45; older headers do not have it. */
#define NOTIFY_PRUNE 9
struct prune_out {
	uint32_t count, padding;
	uint64_t spare;
	uint64_t ids[PRUNE_MAX];
};

/* A thread with a queue. */
struct lane {
	struct notify *n;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list queue; /* lock */
	struct list later; /* lock; ordered by at_ns */
	size_t count;	   /* lock; of notes in both */
	bool stop;	   /* lock */
};

struct notify {
	struct fs *fs;
	struct lane inodes, names;

	/* lane inodes' thread only */
	bool no_prune; /* the kernel cannot */
	struct prune_out prune;
};

/* ---- bringing ----------------------------------------------------------------------------------------------- */

static struct note *note_new(enum note_kind kind, uint64_t ino, const char *name)
{
	size_t len = strlen(name);
	struct note *t = calloc(1, sizeof(*t) + len + 1);

	if (!t)
		return NULL;
	t->kind = kind;
	t->ino = ino;
	t->name = memcpy(t + 1, name, len + 1);
	return t;
}

/* Takes t over (NULL is nothing). False: it was not queued, and is freed, but for one that is an op's. */
static bool bring(struct lane *l, struct note *t, size_t max, uint64_t delay_ns)
{
	bool queued = false;

	if (!t)
		return false;
	t->at_ns = delay_ns ? clock_ns() + delay_ns : 0;
	pthread_mutex_lock(&l->lock);
	if (!l->stop && l->count < max) {
		list_add_tail(&t->link, delay_ns ? &l->later : &l->queue);
		l->count++;
		queued = true;
		pthread_cond_signal(&l->wake);
	}
	pthread_mutex_unlock(&l->lock);
	if (!queued && !t->op)
		free(t);
	return queued;
}

void notify_idle(struct notify *n, uint64_t ino)
{
	bring(&n->inodes, note_new(NOTE_IDLE, ino, ""), QUEUE_MAX, LATER_NS);
}

void notify_pages_then_write(struct notify *n, struct note *t, uint64_t off, size_t len, struct op *op)
{
	*t = (struct note){.kind = NOTE_WRITTEN, .ino = op->op_ino, .off = off, .len = len, .op = op};
	if (!bring(&n->inodes, t, SIZE_MAX, 0))
		op_write(op, len);
}

static bool is_dir(struct fs *fs, struct inode *i)
{
	struct msg_attr a;

	inode_get_attr(fs->inodes, i, &a, NULL);
	return a.kind == MSG_KIND_DIR;
}

/*
 * Never waits: it runs on a thread of the node, which others may wait for. The queues are bounded by what the kernel
 * knows and by what is open. Without memory the kernel learns it at its next open of the name.
 */
void notify_gone(void *arg, uint64_t put_id, uint64_t dir, const char *name)
{
	struct fs *fs = arg;
	struct inode *i = inode_get(fs->inodes, put_id);
	char known[MSG_NAME_MAX + 1];

	/* What the kernel does not know, or not under a name any more (its own unlink), it need not forget. */
	if (i && inode_get_name(fs->inodes, i, &dir, known) == 0) {
		atomic_store(&i->i_gone, true);
		bring(&fs->notify->inodes, note_new(NOTE_GONE, put_id, ""), SIZE_MAX, 0);
	} else if (name[0] && (!put_id || (i && is_dir(fs, i)))) {
		/* A directory's inode knows no name; that of another node's making or removing has one. */
		bring(&fs->notify->names, note_new(NOTE_NAME, dir, name), SIZE_MAX, 0);
	}
	inode_unref(fs->inodes, i);
}

void fs_forget_name(struct fs *fs, uint64_t dir, const char *name, uint64_t removed)
{
	inode_name_removed(fs->inodes, &(struct inode_name){dir, name, removed});
	count_add(fs, invalidations, 1);
	fuse_lowlevel_notify_inval_entry(fs->se, dir, name, strlen(name));
}

/* ---- telling ------------------------------------------------------------------------------------------------ */

/* Drops the dentries and inodes that nobody uses, as the kernel would do when it is short of memory. */
static void send_prune(struct notify *n)
{
	struct fuse_out_header out = {.error = NOTIFY_PRUNE};
	size_t size = offsetof(struct prune_out, ids) + n->prune.count * sizeof(n->prune.ids[0]);
	struct iovec iov[2] = {{&out, sizeof(out)}, {&n->prune, size}};

	if (!n->prune.count)
		return;
	out.len = (uint32_t)(sizeof(out) + size);
	if (writev(fuse_session_fd(n->fs->se), iov, 2) < 0 && errno == EINVAL)
		n->no_prune = true;
	n->prune.count = 0;
}

static void prune(struct notify *n, uint64_t ino)
{
	n->prune.ids[n->prune.count++] = ino;
	if (n->prune.count == PRUNE_MAX)
		send_prune(n);
}

/*
 * Its dentry would keep the inode, and that the private version, until the kernel is short of memory: one of both for
 * each file that was written and not looked at again.
 */
static void tell_idle(struct notify *n, struct note *t)
{
	struct fs *fs = n->fs;
	struct inode *i = inode_get(fs->inodes, t->ino);
	char name[MSG_NAME_MAX + 1];
	uint64_t dir;

	if (i && !atomic_load(&i->i_writers)) {
		if (!n->no_prune)
			prune(n, t->ino);
		else if (inode_get_name(fs->inodes, i, &dir, name) == 0)
			bring(&n->names, note_new(NOTE_NAME, dir, name), QUEUE_MAX, 0);
	}
	inode_unref(fs->inodes, i);
}

/*
 * First the quick way, which leaves what is in use, and what the kernel does not know yet as our answer to its lookup
 * is on its way. False: what of it is left is to be told again.
 */
static bool tell_gone(struct notify *n, struct note *t)
{
	struct fs *fs = n->fs;
	struct inode *i = inode_get(fs->inodes, t->ino);
	bool quick = !t->again && !n->no_prune && !(i && atomic_load(&i->i_opens));
	char name[MSG_NAME_MAX + 1];
	uint64_t dir;

	if (i && atomic_load(&i->i_gone)) {
		fuse_lowlevel_notify_inval_inode(fs->se, t->ino, 0, 0);
		if (quick)
			prune(n, t->ino);
		else if (inode_get_name(fs->inodes, i, &dir, name) == 0)
			bring(&n->names, note_new(NOTE_NAME, dir, name), SIZE_MAX, 0);
	}
	inode_unref(fs->inodes, i);
	return !quick;
}

/* False: the kernel does not know it, or not yet, as our answer to its lookup is still on its way. */
static bool tell(struct notify *n, struct note *t)
{
	struct fuse_session *se = n->fs->se;

	count_add(n->fs, invalidations, 1);
	switch (t->kind) {
	case NOTE_NAME:
		return fuse_lowlevel_notify_inval_entry(se, t->ino, t->name, strlen(t->name)) != -ENOENT;
	case NOTE_WRITTEN:
		fuse_lowlevel_notify_inval_inode(se, t->ino, (off_t)t->off, (off_t)t->len);
		op_write(t->op, t->len);
		return true;
	case NOTE_GONE:
		return tell_gone(n, t);
	case NOTE_IDLE:
		tell_idle(n, t);
		return true;
	}
	return true;
}

/* ---- a lane's thread ---------------------------------------------------------------------------------------- */

/* What is due, or NULL. Call with l locked. */
static struct note *due(struct lane *l)
{
	struct note *t = list_empty(&l->later) ? NULL : list_first(&l->later, struct note, link);

	if (!list_empty(&l->queue))
		return list_first(&l->queue, struct note, link);
	return t && t->at_ns <= clock_ns() && !l->stop ? t : NULL;
}

/* Call with l locked. */
static void wait_note(struct lane *l)
{
	struct note *t = list_empty(&l->later) ? NULL : list_first(&l->later, struct note, link);
	struct timespec ts;

	if (!t) {
		pthread_cond_wait(&l->wake, &l->lock);
		return;
	}
	ts = clock_timespec(t->at_ns);
	pthread_cond_timedwait(&l->wake, &l->lock, &ts);
}

/* Call with l locked. */
static void done_with(struct lane *l, struct note *t, bool told)
{
	if (!told && !t->again && !l->stop) {
		t->again = true;
		t->at_ns = clock_ns() + LATER_NS;
		list_add_tail(&t->link, &l->later);
		return;
	}
	l->count--;
	free(t);
}

static void *lane_main(void *arg)
{
	struct lane *l = arg;
	struct note *t;
	bool told, ops;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		t = due(l);
		if (t) {
			list_del(&t->link);
			pthread_mutex_unlock(&l->lock);
			ops = t->op; /* gone when that is answered */
			told = tell(l->n, t);
			pthread_mutex_lock(&l->lock);
			if (ops)
				l->count--;
			else
				done_with(l, t, told);
		} else if (l->stop) {
			break;
		} else if (l == &l->n->inodes && l->n->prune.count) {
			pthread_mutex_unlock(&l->lock);
			send_prune(l->n);
			pthread_mutex_lock(&l->lock);
		} else {
			wait_note(l);
		}
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static int lane_start(struct lane *l, struct notify *n, const char *name)
{
	int r;

	l->n = n;
	list_init(&l->queue);
	list_init(&l->later);
	pthread_mutex_init(&l->lock, NULL);
	clock_cond_init(&l->wake);
	r = pthread_create(&l->thread, NULL, lane_main, l);
	if (r)
		return -r;
	l->started = true;
	pthread_setname_np(l->thread, name);
	return 0;
}

static void lane_stop(struct lane *l)
{
	if (!l->started)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	l->started = false;
}

static void lane_free(struct lane *l)
{
	struct list *e, *tmp;

	list_for_each(e, tmp, &l->later) free(container_of(e, struct note, link));
	pthread_cond_destroy(&l->wake);
	pthread_mutex_destroy(&l->lock);
}

struct notify *notify_new(struct fs *fs, struct errmsg *e)
{
	struct notify *n = calloc(1, sizeof(*n));
	int r, r2;

	if (!n) {
		errmsg_set(e, -ENOMEM, "out of memory");
		return NULL;
	}
	n->fs = fs;
	r = lane_start(&n->inodes, n, "fuse-inodes");
	r2 = lane_start(&n->names, n, "fuse-names");
	if (!r && !r2)
		return n;
	errmsg_set(e, r ? r : r2, "cannot start a thread: %s", strerror(-(r ? r : r2)));
	notify_stop(n);
	return notify_free(n);
}

void notify_stop(struct notify *n)
{
	if (!n)
		return;
	lane_stop(&n->inodes);
	lane_stop(&n->names);
}

struct notify *notify_free(struct notify *n)
{
	if (!n)
		return NULL;
	lane_free(&n->inodes);
	lane_free(&n->names);
	free(n);
	return NULL;
}
