/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Namespaces: their attributes and what they hold. A namespace's name is the path of its root directory, which the
 * directory tree knows; nothing keeps it twice.
 */
#ifndef MASTER_SPACE_H
#define MASTER_SPACE_H

#include "master/state.h"

struct space *space_find(const struct core *c, uint32_t number); /* NULL: none */
/* A new one of that number, which no other has, with the directory as its root. NULL: no memory, or too many. */
struct space *space_new(struct core *c, uint32_t number, uint32_t root);
void space_free(struct core *c, struct space *s);
void spaces_fini(struct core *c);
/* Its catalogue row; name holds MSG_NS_NAME_MAX + 1 bytes that must live as long as the record. */
void space_record(const struct core *c, const struct space *s, struct write_rec *rec, char *name);
/* The path of a directory below the root, as a namespace name; "" when it is longer than one may be. */
void space_name(const struct core *c, uint32_t dir, char name[MSG_NS_NAME_MAX + 1]);
/* Makes the directory, which is empty and outside any namespace, the root of a new one. After step_room() for it. */
int space_make(struct core *c, uint32_t dir, const struct msg_namespace *want);

/* -EINVAL for a kind or attributes that no namespace may have; of these only what the mask names is looked at. */
int space_check(const struct msg_namespace *ns);

#endif
