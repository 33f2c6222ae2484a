/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's requests about namespaces. A name of several components makes the directories above the namespace's
 * root, which belong to no namespace and hold only others; they go with the last namespace below them.
 */
#ifndef MASTER_NAMESPACES_H
#define MASTER_NAMESPACES_H

#include "master/state.h"

int op_ns_create(struct core *c, struct msg *m);
int op_ns_set(struct core *c, struct msg *m);
int op_ns_list(struct core *c, struct msg *m);
int op_ns_remove(struct core *c, struct msg *m);

#endif
