/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody probably meant to type. Pure; any thread. */
#ifndef COMMON_NEAREST_H
#define COMMON_NEAREST_H

/* The word of the NULL-ended list that needs the fewest typing errors to become word; NULL when that are too many. */
const char *nearest_word(const char *word, const char *const *list);

#endif
