/* SPDX-License-Identifier: Apache-2.0 */
#include "master/heap.h"

#include <errno.h>
#include <stdlib.h>

int heap_room(struct core *c)
{
	uint32_t cap, *heap;

	if (c->heap_n + 1 < c->heap_cap)
		return 0;
	if (c->heap_cap > UINT32_MAX / 2)
		return -ENOMEM;
	cap = c->heap_cap ? c->heap_cap * 2 : 64;
	heap = realloc(c->heap, cap * sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	c->heap = heap;
	c->heap_cap = cap;
	return 0;
}

static int64_t key(const struct core *c, uint32_t pos)
{
	return inode_get(c, c->heap[pos])->expires_ns;
}

static void place(struct core *c, uint32_t pos, uint32_t h)
{
	c->heap[pos] = h;
	inode_get(c, h)->heap_pos = pos;
}

static void sift_up(struct core *c, uint32_t pos)
{
	uint32_t h = c->heap[pos];
	int64_t k = key(c, pos);

	for (; pos > 1 && key(c, pos / 2) > k; pos /= 2)
		place(c, pos, c->heap[pos / 2]);
	place(c, pos, h);
}

static void sift_down(struct core *c, uint32_t pos)
{
	uint32_t h = c->heap[pos], child;
	int64_t k = key(c, pos);

	for (; (child = pos * 2) <= c->heap_n; pos = child) {
		if (child < c->heap_n && key(c, child + 1) < key(c, child))
			child++;
		if (key(c, child) >= k)
			break;
		place(c, pos, c->heap[child]);
	}
	place(c, pos, h);
}

void heap_remove(struct core *c, uint32_t h)
{
	uint32_t pos = inode_get(c, h)->heap_pos, last;

	if (!pos)
		return;
	inode_get(c, h)->heap_pos = 0;
	last = c->heap[c->heap_n--];
	if (last == h)
		return;
	place(c, pos, last);
	sift_up(c, pos);
	sift_down(c, inode_get(c, last)->heap_pos);
}

void heap_set(struct core *c, uint32_t h)
{
	heap_remove(c, h);
	if (!inode_get(c, h)->expires_ns)
		return;
	place(c, ++c->heap_n, h);
	sift_up(c, c->heap_n);
}
