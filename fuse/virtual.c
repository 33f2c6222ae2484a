/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .fluxkv/ at the root: found by name, not listed. Its files are made at each open, and read without the page cache,
 * like those of /proc.
 */
#include "fuse/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"

static const char *const file_names[FS_VIRTUALS] = {
    [FS_VIRTUAL_STATUS] = "status",
    [FS_VIRTUAL_METRICS] = "metrics",
    [FS_VIRTUAL_CONFIG] = "config",
    [FS_VIRTUAL_VERSION] = "version",
};

#define TIMEOUT 3600.0 /* they never change */

bool name_is_virtual(fuse_ino_t dir, const char *name)
{
	return ino_is_virtual(dir) || (dir == MSG_ROOT_DIR && !strcmp(name, VIRTUAL_DIR_NAME));
}

static void stat_of(struct fs *fs, fuse_ino_t ino, struct stat *st)
{
	bool dir = ino == VIRTUAL_DIR_ID;

	*st = (struct stat){
	    .st_ino = ino,
	    .st_mode = dir ? S_IFDIR | 0555 : S_IFREG | 0444,
	    .st_nlink = dir ? 2 : 1,
	    .st_blksize = 4096,
	    .st_mtim = {.tv_sec = (time_t)(fs->start_ns / NS_PER_SEC)},
	};
	st->st_atim = st->st_ctim = st->st_mtim;
}

/* The inode of a name, 0: none. */
static fuse_ino_t find(fuse_ino_t dir, const char *name)
{
	if (dir == MSG_ROOT_DIR)
		return VIRTUAL_DIR_ID;
	for (unsigned i = 0; i < FS_VIRTUALS; i++)
		if (dir == VIRTUAL_DIR_ID && !strcmp(name, file_names[i]))
			return VIRTUAL_DIR_ID + 1 + i;
	return 0;
}

void virtual_lookup(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	struct fuse_entry_param e = {
	    .ino = find(dir, name),
	    .attr_timeout = TIMEOUT,
	    .entry_timeout = TIMEOUT,
	};

	if (!e.ino) {
		req_err(req, -ENOENT);
		return;
	}
	stat_of(req_fs(req), e.ino, &e.attr);
	fuse_reply_entry(req, &e);
}

void virtual_getattr(fuse_req_t req, fuse_ino_t ino)
{
	struct stat st;

	stat_of(req_fs(req), ino, &st);
	fuse_reply_attr(req, &st, TIMEOUT);
}

void virtual_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = req_fs(req);
	struct handle *h;
	int r;

	if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) || ino == VIRTUAL_DIR_ID) {
		req_err(req, -EACCES);
		return;
	}
	h = handle_new(fs, HANDLE_TEXT, NULL);
	if (!h) {
		req_err(req, -ENOMEM);
		return;
	}
	r = fs->cfg.text(fs->cfg.text_arg, (enum fs_virtual)(ino - VIRTUAL_DIR_ID - 1), &h->h_text, &h->h_text_len);
	fi->fh = (uintptr_t)h;
	fi->direct_io = 1;
	fi->noflush = 1;
	if (r < 0)
		req_err(req, r);
	if (r < 0 || fuse_reply_open(req, fi))
		handle_unref(fs, h);
}

void virtual_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	char buf[2048];
	size_t len = 0;

	for (off_t i = off; i < 2 + FS_VIRTUALS; i++) {
		const char *name = i == 0 ? "." : i == 1 ? ".." : file_names[i - 2];
		struct fuse_entry_param e = {
		    .attr.st_ino = i < 2 ? ino : VIRTUAL_DIR_ID + (uint64_t)i - 1,
		    .attr.st_mode = i < 2 ? S_IFDIR : S_IFREG,
		};
		size_t room = (size < sizeof(buf) ? size : sizeof(buf)) - len, need;

		need = plus ? fuse_add_direntry_plus(req, buf + len, room, name, &e, i + 1)
			    : fuse_add_direntry(req, buf + len, room, name, &e.attr, i + 1);
		if (need > room)
			break;
		len += need;
	}
	fuse_reply_buf(req, buf, len);
}
