/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, as far as names need it that are bytes. Pure; any thread. */
#ifndef NET_UTF8_H
#define NET_UTF8_H

#include <stddef.h>

/* The length of the well-formed sequence at s (n bytes are there), or 0: also for overlong forms and surrogates. */
size_t utf8_sequence(const char *s, size_t n);

#endif
