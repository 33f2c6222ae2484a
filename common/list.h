/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive doubly linked list in the manner of the Linux kernel's: the node is a member of the element, the
 * list owns nothing. Not thread safe: the owner of the list says which lock guards it.
 */
#ifndef COMMON_LIST_H
#define COMMON_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert(struct list *n, struct list *prev, struct list *next)
{
	next->prev = n;
	n->next = next;
	n->prev = prev;
	prev->next = n;
}

static inline void list_add(struct list *n, struct list *head)
{
	list_insert(n, head, head->next);
}

static inline void list_add_tail(struct list *n, struct list *head)
{
	list_insert(n, head->prev, head);
}

/* Removes n and leaves it an empty list of its own, so that removing it again is harmless. */
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* Moves all of src behind the last of dst; src is empty afterwards. */
static inline void list_splice_tail(struct list *src, struct list *dst)
{
	if (list_empty(src))
		return;
	src->next->prev = dst->prev;
	dst->prev->next = src->next;
	src->prev->next = dst;
	dst->prev = src->prev;
	list_init(src);
}

#define list_first(head, type, member) container_of((head)->next, type, member)

/* Safe against removal of the current element. */
#define list_for_each(pos, tmp, head)                                                                                  \
	for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head); (pos) = (tmp), (tmp) = (pos)->next)

#endif
