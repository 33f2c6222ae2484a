/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/impl.h"

#include <stdlib.h>

struct handle *handle_new(struct fs *fs, enum handle_kind kind, struct inode *i)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h) {
		inode_unref(fs->inodes, i);
		return NULL;
	}
	h->h_kind = kind;
	h->h_inode = i;
	atomic_init(&h->h_refs, 1);
	pthread_mutex_init(&h->h_lock, NULL);
	count_add(fs, handles, 1);
	pthread_mutex_lock(&fs->handles_lock);
	list_add_tail(&h->h_link, &fs->handles);
	pthread_mutex_unlock(&fs->handles_lock);
	return h;
}

static void end_put(struct fs *fs, struct handle *h)
{
	if (h->h_writable) {
		atomic_fetch_sub(&fs->writers, 1);
		if (atomic_fetch_sub(&h->h_inode->i_writers, 1) == 1)
			notify_idle(fs->notify, h->h_inode->i_id);
	}
	if (!h->h_direct)
		atomic_fetch_sub(&h->h_inode->i_cached, 1);
	put_release(h->h_put, h->h_writer);
	put_unref(h->h_put);
}

void handle_ref(struct handle *h)
{
	atomic_fetch_add_explicit(&h->h_refs, 1, memory_order_relaxed);
}

void handle_unref(struct fs *fs, struct handle *h)
{
	if (!h || atomic_fetch_sub_explicit(&h->h_refs, 1, memory_order_acq_rel) != 1)
		return;
	pthread_mutex_lock(&fs->handles_lock);
	list_del(&h->h_link);
	pthread_mutex_unlock(&fs->handles_lock);
	count_sub(fs, handles, 1);
	if (h->h_version) {
		passthrough_leave(fs, h);
		version_close(h->h_version);
	}
	if (h->h_put)
		end_put(fs, h);
	if (h->h_dir)
		node_dir_close(h->h_dir);
	inode_unref(fs->inodes, h->h_inode);
	pthread_mutex_destroy(&h->h_lock);
	free(h->h_page.ents);
	free(h->h_text);
	free(h);
}

void handle_give_up(struct fs *fs, struct handle *h)
{
	if (h && h->h_put && h->h_writer)
		put_abandon(h->h_put);
	handle_unref(fs, h);
}

/* No op is left: each handle has the kernel's reference alone. */
void handles_free_all(struct fs *fs)
{
	while (!list_empty(&fs->handles)) {
		struct handle *h = list_first(&fs->handles, struct handle, h_link);

		handle_give_up(fs, h);
	}
}
