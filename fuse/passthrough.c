/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passthrough: the kernel reads a published version's memory file itself. A file is registered when the first handle
 * that may have it so is opened, which gives a backing id, and every further one names that id; it is taken back with
 * the last handle, as an id holds the file's pages.
 *
 * The kernel's rule is that an inode is open in one way at a time: while a handle reads through the page cache, none
 * may pass through, and the reverse, or the open fails with EIO. A mapping does not count; it lives on when its handle
 * has gone. The kernel ends a handle's way before it sends RELEASE, and begins it after our answer, so that what is
 * counted here is never less than what the kernel goes by.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/hash.h"
#include "common/log.h"
#include "store/segment.h"

#define LOCKS 64 /* a power of two */

struct passthrough {
	atomic_bool on;
	char why_not[160]; /* set before the mount serves */
	pthread_mutex_t locks[LOCKS];
	atomic_ullong held; /* bytes of the versions that pass through: they cannot be evicted */
};

#ifdef HAVE_FUSE_PASSTHROUGH

/* The kernel's interface, which the headers of older systems lack (linux/fuse.h since 6.9). */
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/* The id, which is positive. libfuse's own function tells no errno. */
static int backing_open(struct fs *fs, int fd)
{
	struct backing_map map = {.fd = fd};
	int r = ioctl(fuse_session_fd(fs->se), BACKING_OPEN, &map);

	return r > 0 ? r : r < 0 ? -errno : -EIO;
}

static void backing_close(struct fs *fs, int id)
{
	uint32_t arg = (uint32_t)id;

	if (ioctl(fuse_session_fd(fs->se), BACKING_CLOSE, &arg) < 0)
		log_debug("backing id %d cannot be closed: %s", id, strerror(errno));
}

static void name_backing(struct fuse_file_info *fi, int id)
{
	fi->backing_id = id;
}

void passthrough_init(struct fs *fs, struct fuse_conn_info *conn)
{
	struct passthrough *p = fs->passthrough;

	if (fs->cfg.passthrough == FS_PASSTHROUGH_OFF)
		snprintf(p->why_not, sizeof(p->why_not), "switched off (passthrough: off)");
	else if (!fs_set_feature(conn, FUSE_CAP_PASSTHROUGH, true))
		snprintf(p->why_not, sizeof(p->why_not),
			 "the kernel cannot do it (Linux 6.9 with CONFIG_FUSE_PASSTHROUGH)");
}

/*
 * Registers a file of the segment and takes it back: that is what needs the privilege. The lease is how the store will
 * find out what programs map.
 */
static void try_out(struct fs *fs)
{
	struct passthrough *p = fs->passthrough;
	int fd, id, lease, r;

	if (p->why_not[0])
		return;
	r = node_scratch_file(fs->node, &fd);
	if (r < 0) {
		snprintf(p->why_not, sizeof(p->why_not), "no file to try it with: %s", strerror(-r));
		return;
	}
	lease = segment_lease(fd);
	id = backing_open(fs, fd);
	close(fd);
	if (id > 0)
		backing_close(fs, id);
	if (id > 0 && lease < 0)
		snprintf(p->why_not, sizeof(p->why_not), "no leases on files (sysctl fs.leases-enable): %s",
			 strerror(-lease));
	else if (id <= 0)
		snprintf(p->why_not, sizeof(p->why_not),
			 id == -EPERM ? "it needs CAP_SYS_ADMIN" : "the kernel says: %s", strerror(-id));
}

#else

static int backing_open(struct fs *fs, int fd)
{
	return -EOPNOTSUPP;
}

static void backing_close(struct fs *fs, int id)
{
}

static void name_backing(struct fuse_file_info *fi, int id)
{
}

void passthrough_init(struct fs *fs, struct fuse_conn_info *conn)
{
	struct passthrough *p = fs->passthrough;

	snprintf(p->why_not, sizeof(p->why_not),
		 fs->cfg.passthrough == FS_PASSTHROUGH_OFF ? "switched off (passthrough: off)"
							   : "built with a libfuse older than 3.17");
}

static void try_out(struct fs *fs)
{
}

#endif

struct passthrough *passthrough_new(void)
{
	struct passthrough *p = calloc(1, sizeof(*p));

	for (size_t i = 0; p && i < LOCKS; i++)
		pthread_mutex_init(&p->locks[i], NULL);
	return p;
}

struct passthrough *passthrough_free(struct passthrough *p)
{
	for (size_t i = 0; p && i < LOCKS; i++)
		pthread_mutex_destroy(&p->locks[i]);
	free(p);
	return NULL;
}

int passthrough_start(struct fs *fs, struct errmsg *e)
{
	struct passthrough *p = fs->passthrough;

	try_out(fs);
	if (!p->why_not[0]) {
		atomic_store(&p->on, true);
		return 0;
	}
	if (fs->cfg.passthrough == FS_PASSTHROUGH_ON)
		return errmsg_set(e, -EOPNOTSUPP, "%s: no passthrough, which the configuration insists on: %s",
				  fs->cfg.mountpoint, p->why_not);
	if (fs->cfg.passthrough == FS_PASSTHROUGH_AUTO)
		log_info("%s: reads are copied by the daemon, without passthrough: %s", fs->cfg.mountpoint, p->why_not);
	return 0;
}

void passthrough_stop(struct fs *fs)
{
	struct passthrough *p = fs->passthrough;

	atomic_store(&p->on, false);
	/* Who saw it on has one of these. */
	for (size_t i = 0; i < LOCKS; i++) {
		pthread_mutex_lock(&p->locks[i]);
		pthread_mutex_unlock(&p->locks[i]);
	}
}

const char *passthrough_why_not(struct fs *fs)
{
	return atomic_load(&fs->passthrough->on) ? NULL : fs->passthrough->why_not;
}

uint64_t passthrough_held(struct fs *fs)
{
	return atomic_load_explicit(&fs->passthrough->held, memory_order_relaxed);
}

static pthread_mutex_t *lock_of(struct fs *fs, const struct inode *i)
{
	return &fs->passthrough->locks[hash_u64(i->i_id) & (LOCKS - 1)];
}

/* Call with the inode's lock held, or for a guess. */
static bool may_pass(struct fs *fs, struct inode *i, const struct version *v)
{
	unsigned through = atomic_load_explicit(&i->i_through, memory_order_relaxed);

	if (!atomic_load_explicit(&fs->passthrough->on, memory_order_relaxed) || !version_is_one_block(v))
		return false;
	if (through || atomic_load_explicit(&i->i_opens, memory_order_relaxed))
		return through;
	return passthrough_held(fs) + version_size(v) <= fs->cfg.passthrough_hold;
}

enum passthrough_need passthrough_need(struct fs *fs, struct inode *i, struct version *v)
{
	if (!may_pass(fs, i, v))
		return PASSTHROUGH_NO;
	if (version_pin_now(v))
		return PASSTHROUGH_PINNED;
	return version_size(v) <= fs->cfg.passthrough_max ? PASSTHROUGH_WAIT : PASSTHROUGH_NO;
}

static void give_back(struct fs *fs, const struct version *v)
{
	atomic_fetch_sub_explicit(&fs->passthrough->held, version_size(v), memory_order_relaxed);
}

/* Takes the version's part of what may be held: others take theirs at the same time, under other locks. */
static bool take_room(struct fs *fs, const struct version *v)
{
	uint64_t size = version_size(v);

	if (atomic_fetch_add_explicit(&fs->passthrough->held, size, memory_order_relaxed) + size <=
	    fs->cfg.passthrough_hold)
		return true;
	give_back(fs, v);
	return false;
}

/* The first handle's. Call with the inode's lock held. */
static int register_file(struct fs *fs, struct inode *i, struct version *v)
{
	int fd, r;

	if (!take_room(fs, v))
		return -ENOSPC;
	r = version_share(v, &fd);
	if (r < 0)
		goto give_back;
	r = backing_open(fs, fd);
	close(fd);
	if (r < 0)
		goto give_back;
	i->i_backing = r;
	return 0;
give_back:
	give_back(fs, v);
	return r;
}

void passthrough_enter(struct fs *fs, struct handle *h, bool pinned, struct fuse_file_info *fi)
{
	struct inode *i = h->h_inode;
	int r = 0;

	pthread_mutex_lock(lock_of(fs, i));
	if (may_pass(fs, i, h->h_version)) {
		/* A file that others have open so is in memory. */
		pinned = pinned || version_pin_now(h->h_version);
		if (pinned && !atomic_load(&i->i_through))
			r = register_file(fs, i, h->h_version);
		h->h_through = pinned && r == 0;
	}
	atomic_fetch_add(&i->i_opens, 1);
	if (h->h_through) {
		atomic_fetch_add(&i->i_through, 1);
		name_backing(fi, i->i_backing);
	} else {
		fi->keep_cache = 1; /* its bytes never change */
	}
	pthread_mutex_unlock(lock_of(fs, i));
	if (pinned && !h->h_through)
		version_unpin(h->h_version);
	if (r < 0)
		log_debug("version %llu is read through the page cache: %s", (unsigned long long)i->i_id, strerror(-r));
}

void passthrough_leave(struct fs *fs, struct handle *h)
{
	struct inode *i = h->h_inode;

	pthread_mutex_lock(lock_of(fs, i));
	if (h->h_through && atomic_fetch_sub(&i->i_through, 1) == 1) {
		if (atomic_load(&fs->passthrough->on)) /* else the kernel's ids go with the mount */
			backing_close(fs, i->i_backing);
		i->i_backing = 0;
		give_back(fs, h->h_version);
	}
	atomic_fetch_sub(&i->i_opens, 1);
	pthread_mutex_unlock(lock_of(fs, i));
	if (h->h_through)
		version_unpin(h->h_version);
}
