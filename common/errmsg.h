/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One clear line for a person, beside the errno for the program. Libraries do not log what the caller can say
 * better: they fill an errmsg, and the program prints it once. The caller owns the struct; NULL is allowed.
 */
#ifndef COMMON_ERRMSG_H
#define COMMON_ERRMSG_H

#include <stdarg.h>

struct errmsg {
	char text[1024];
};

/* Puts "?" for what would break the line or steer a terminal: names of files may hold any byte. */
void errmsg_one_line(char *text);

/* Formats the one line, cut to fit, and returns err, so that `return errmsg_set(e, -EINVAL, ...)` reads well. */
int errmsg_set(struct errmsg *e, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before what is there already. Returns err. */
int errmsg_prefix(struct errmsg *e, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
