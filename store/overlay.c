/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The overlay: which names stand, on this node, for a private version. A name has at most one. A put that is not
 * exposed keeps its place, since its name may be renamed, or it may be written again, but lookups pass it by.
 */
#include <string.h>

#include "store/impl.h"

uint64_t node_name_hash(uint64_t dir, const char *name)
{
	return hash_bytes(name, strlen(name), dir);
}

static struct put **slot_of(struct node *n, uint64_t dir, const char *name)
{
	return &n->overlay.slots[node_name_hash(dir, name) % OVERLAY_SLOTS];
}

struct put *overlay_find(struct node *n, uint64_t dir, const char *name)
{
	struct put *p = *slot_of(n, dir, name);

	while (p && (p->dir != dir || strcmp(p->name, name)))
		p = p->next;
	return p;
}

void overlay_insert(struct node *n, struct put *p)
{
	struct put **slot = slot_of(n, p->dir, p->name);

	p->next = *slot;
	*slot = p;
	p->named = true;
	atomic_fetch_add_explicit(&n->overlay.count, 1, memory_order_relaxed);
}

void overlay_remove(struct node *n, struct put *p)
{
	struct put **slot;

	if (!p->named)
		return;
	slot = slot_of(n, p->dir, p->name);
	while (*slot != p)
		slot = &(*slot)->next;
	*slot = p->next;
	p->named = false;
	atomic_fetch_sub_explicit(&n->overlay.count, 1, memory_order_relaxed);
}

bool node_name_unsettled(struct node *n, uint64_t dir, const char *name)
{
	bool found;

	if (!atomic_load_explicit(&n->overlay.count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&n->overlay.lock);
	found = overlay_find(n, dir, name);
	pthread_mutex_unlock(&n->overlay.lock);
	return found;
}

bool overlay_dir_in_use(struct node *n, uint64_t dir)
{
	bool found = false;

	if (!atomic_load_explicit(&n->overlay.count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&n->overlay.lock);
	for (size_t i = 0; i < OVERLAY_SLOTS && !found; i++)
		for (struct put *p = n->overlay.slots[i]; p && !found; p = p->next)
			found = p->dir == dir && p->exposed;
	pthread_mutex_unlock(&n->overlay.lock);
	return found;
}
