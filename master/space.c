/* SPDX-License-Identifier: Apache-2.0 */
#include "master/space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/step.h"

#define TTL_MAX (1ull << 32) /* seconds */

/* The index of the first namespace whose number is not below the given one. */
static uint32_t space_index(const struct core *c, uint32_t number)
{
	uint32_t lo = 0, hi = c->n_spaces;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (c->spaces[mid]->number < number)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct space *space_find(const struct core *c, uint32_t number)
{
	uint32_t k = number ? space_index(c, number) : c->n_spaces;

	return k < c->n_spaces && c->spaces[k]->number == number ? c->spaces[k] : NULL;
}

struct space *space_new(struct core *c, uint32_t number, uint32_t root)
{
	uint32_t k = space_index(c, number);
	struct space *s;

	if (c->n_spaces >= c->cfg.max_namespaces)
		return NULL;
	if (c->n_spaces == c->cap_spaces) {
		uint32_t cap = c->cap_spaces ? c->cap_spaces * 2 : 16;
		struct space **spaces = realloc(c->spaces, cap * sizeof(struct space *));

		if (!spaces)
			return NULL;
		c->spaces = spaces;
		c->cap_spaces = cap;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->number = number;
	s->root = root;
	memmove(c->spaces + k + 1, c->spaces + k, (c->n_spaces - k) * sizeof(struct space *));
	c->spaces[k] = s;
	c->n_spaces++;
	if (number >= c->next_ns)
		c->next_ns = number + 1;
	inode_get(c, root)->dir->space = s;
	return s;
}

void space_free(struct core *c, struct space *s)
{
	uint32_t k = space_index(c, s->number);

	c->n_spaces--;
	memmove(c->spaces + k, c->spaces + k + 1, (c->n_spaces - k) * sizeof(struct space *));
	inode_get(c, s->root)->dir->space = NULL;
	free(s);
}

void spaces_fini(struct core *c)
{
	for (uint32_t k = 0; k < c->n_spaces; k++)
		free(c->spaces[k]);
	free(c->spaces);
	c->spaces = NULL;
	c->n_spaces = 0;
}

void space_name(const struct core *c, uint32_t dir, char name[MSG_NS_NAME_MAX + 1])
{
	size_t at = MSG_NS_NAME_MAX;

	name[at] = '\0';
	for (; dir && dir != c->root; dir = inode_get(c, dir)->parent) {
		const struct inode *i = inode_get(c, dir);

		if (at < i->name_len + 1u) {
			at = MSG_NS_NAME_MAX;
			break;
		}
		if (at < MSG_NS_NAME_MAX)
			name[--at] = '/';
		at -= i->name_len;
		memcpy(name + at, i->name, i->name_len);
	}
	memmove(name, name + at, MSG_NS_NAME_MAX + 1 - at);
}

void space_record(const struct core *c, const struct space *s, struct write_rec *rec, char *name)
{
	space_name(c, s->root, name);
	*rec = (struct write_rec){
	    .type = WRITE_NAMESPACE,
	    .len = (uint32_t)strlen(name),
	    .data = (const uint8_t *)name,
	    .u.ns = {.root_dir = inode_get(c, s->root)->id,
		     .block_size = 1ull << s->block_shift,
		     .ttl_seconds = s->ttl_seconds,
		     .number = s->number,
		     .kind = s->kind,
		     .persist = s->persist},
	};
}

int space_check(const struct msg_namespace *ns)
{
	if (ns->kind)
		return -EINVAL;
	if ((ns->mask & MSG_NS_BLOCK_SIZE) && !is_block_size(ns->block_size))
		return -EINVAL;
	if ((ns->mask & MSG_NS_TTL) && ns->ttl_seconds > TTL_MAX)
		return -EINVAL;
	if ((ns->mask & MSG_NS_PERSIST) && ns->persist > 1)
		return -EINVAL;
	return 0;
}

int space_make(struct core *c, uint32_t dir, const struct msg_namespace *want)
{
	struct space *s = space_new(c, c->next_ns, dir);
	char name[MSG_NS_NAME_MAX + 1];
	struct write_rec rec;

	if (!s)
		return c->n_spaces >= c->cfg.max_namespaces ? -ENOSPC : -ENOMEM;
	s->block_shift = shift_of(want->mask & MSG_NS_BLOCK_SIZE ? want->block_size : c->cfg.default_block_size);
	s->ttl_seconds = want->mask & MSG_NS_TTL ? want->ttl_seconds : 0;
	s->persist = want->mask & MSG_NS_PERSIST ? want->persist : 1;
	inode_get(c, dir)->ns = s->number;
	space_record(c, s, &rec, name);
	step_write(c, &rec);
	return 0;
}
