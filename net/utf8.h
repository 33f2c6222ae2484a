/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, as far as names and configured words need it. Pure; any thread. */
#ifndef NET_UTF8_H
#define NET_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length of the well-formed sequence at s (n bytes are there), or 0: also for overlong forms and surrogates. */
size_t utf8_sequence(const char *s, size_t n);
/* What a well-formed sequence of that length stands for. */
uint32_t utf8_code_point(const char *s, size_t len);

#endif
