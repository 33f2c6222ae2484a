/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control groups that this process is in, of version 1 or 2, and what memory they let it have. Any thread.
 */
#ifndef COMMON_CGROUP_H
#define COMMON_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Our group's path below the root of the hierarchy: of version 2, or of the memory controller in version 1. */
bool cgroup_own_path(bool v2, char ret[static PATH_MAX]);

/*
 * What of our group's path lies below a mount whose root is that group: "" when they are one, NULL when the mount is of
 * groups that we are not in. A root outside of our cgroup namespace is around us, and where below it we are is not
 * known: "". Pure.
 */
const char *cgroup_below(const char *own, const char *root);

/*
 * The least limit on memory, in bytes, of our group and those around it; UINT64_MAX: none. With the files of a tmpfs we
 * are charged as with our own memory: more than the limit in them and the kernel kills.
 */
uint64_t cgroup_memory_limit(void);

#endif
