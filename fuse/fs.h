/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file system: one FUSE mount over one node. It owns the mount, its worker threads and its inode table; the node
 * is borrowed and must outlive it.
 *
 * Order of calls: fs_mount() → (READY) → fs_loop() → fs_unmount(). fs_mount() starts threads: a daemon that forks
 * into the background forks before it, and tells its parent "ready" after it.
 *
 * Threads: fs_exit() may be called from any thread and from a signal handler; fs_stats() from any thread. The others
 * are for the one thread that mounted. The workers block every signal, so signals reach the program's own threads.
 */
#ifndef FUSE_FS_H
#define FUSE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errmsg.h"

struct fs;
struct node;

/* The files of .fluxkv/. */
enum fs_virtual { FS_VIRTUAL_STATUS, FS_VIRTUAL_METRICS, FS_VIRTUAL_CONFIG, FS_VIRTUAL_VERSION, FS_VIRTUALS };

/* Reads that the kernel serves from the memory file: where that is possible, or else no mount, or never. */
enum fs_passthrough { FS_PASSTHROUGH_AUTO, FS_PASSTHROUGH_ON, FS_PASSTHROUGH_OFF };

struct fs_config {
	struct node *node;
	const char *mountpoint;
	const char *source;	  /* shown by mount(8): "standalone" or HOST:PORT */
	const char *instance_key; /* shown by user.fluxkv.owners */
	const char *options;	  /* further mount options for the kernel ("nodev,noexec"), or NULL */
	bool allow_other;
	bool ro;
	double negative_timeout; /* seconds that "no such name" is believed */
	double entry_timeout;	 /* of published names; changes are pushed to the kernel, so it may be long */
	double attr_timeout;	 /* of published versions and directories */
	enum fs_passthrough passthrough;
	uint64_t passthrough_max;  /* bytes of a version that an open brings into memory for that */
	uint64_t passthrough_hold; /* bytes of all open ones, which cannot be evicted; beyond, reads are copied */
	unsigned threads;	   /* workers; 0: from the number of CPUs */
	/*
	 * The content of a virtual file, made anew at each open: *ret from malloc, which the file system frees. Called
	 * on a worker: it must not wait for the file system or for the master. 0 or a negative errno.
	 */
	int (*text)(void *arg, enum fs_virtual which, char **ret, size_t *ret_len);
	void *text_arg;
};

/* How many workers fs_mount() starts where wanted (0: from the number of CPUs) stands in the configuration. */
unsigned fs_threads(uint64_t wanted);

/*
 * Mounts and serves. When it returns 0, the workers run and the kernel's INIT has been answered: the first open(2)
 * behind it works. The node's events are taken over (node_set_events). Refusals, each with its reason in e:
 * -ENOTDIR, -ENOTEMPTY, -EBUSY (something is mounted there), -ENOENT, -EINVAL (an option), -EPERM. A mount that a
 * crashed daemon left there (ENOTCONN) is taken away first.
 */
int fs_mount(const struct fs_config *cfg, struct fs **ret, struct errmsg *e);

/* The mount's device number, by which it is known among others on the same directory. */
dev_t fs_device(const struct fs *fs);

/* Waits until somebody unmounts, or until fs_exit() and what it lets finish. 0, or a negative errno: serving failed. */
int fs_loop(struct fs *fs);

/*
 * Asks for the end: nothing new may be made or opened for writing, what runs and what is being written may finish
 * within ten seconds, with reads served meanwhile; then fs_loop() returns, and fs_unmount() takes the mount away.
 * Async-signal-safe; calling it again is harmless.
 */
void fs_exit(struct fs *fs);

/*
 * Unmounts if need be, ends the workers, releases every handle that is still open (what is half-written is given up),
 * frees all. Takes NULL, returns NULL. Nothing of the node is in use afterwards.
 */
struct fs *fs_unmount(struct fs *fs);

/*
 * The name stands for something else now, or for nothing, and not by a request of this mount's kernel (the control
 * socket removed, evicted or made it; removed: the id of what lost the name by that, or 0): when this returns, the
 * kernel believes nothing of it. It may wait for locks of the kernel that callers of the mount hold: never call it from
 * a callback of the node.
 */
void fs_forget_name(struct fs *fs, uint64_t dir, const char *name, uint64_t removed);

struct fs_stats {
	uint64_t lookups, opens, creates, reads, read_bytes, writes, write_bytes, flushes, renames, unlinks, readdirs;
	uint64_t requests;	    /* of all kinds that may wait */
	uint64_t in_flight;	    /* of those, not yet answered */
	uint64_t parked;	    /* that had to wait for memory, a refill or the master, since the start */
	uint64_t interrupted;	    /* answered EINTR, because their task is being killed */
	uint64_t errors_io;	    /* answered EIO */
	uint64_t estale;	    /* opens sent back to look the name up again */
	uint64_t inodes, handles;   /* now */
	uint64_t invalidations;	    /* names and pages that the kernel was told to drop */
	uint64_t max_write;	    /* bytes of the largest request agreed with the kernel */
	uint64_t passthrough_held;  /* bytes of the open versions that the kernel reads by itself */
	const char *no_passthrough; /* why, or NULL: it is on; lives as long as the mount */
};
void fs_get_stats(struct fs *fs, struct fs_stats *ret);

#endif
