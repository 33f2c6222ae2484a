/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemons' log: one line a message to stderr, with a syslog level prefix ("<4>") when systemd reads it and a
 * time stamp when a person or a file does. Any thread may call; a line is written with one write(2).
 *
 * Libraries below fuse/ and cli/ log only what nobody above can know; a message about something survivable ends in
 * ", ignoring" or says what happens now.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>

#include "common/errmsg.h"

enum log_level {
	LOG_LVL_ERROR = 3, /* the values of syslog(3) */
	LOG_LVL_WARN = 4,
	LOG_LVL_INFO = 6,
	LOG_LVL_DEBUG = 7,
};

/* Messages above max are dropped. systemd: prefix lines for the journal. Call before threads start. */
void log_setup(enum log_level max, bool systemd);
void log_set_level(enum log_level max);
/* Whether the journal reads standard error. */
bool log_is_journal(void);
/* From here on standard error goes to the end of that file, which is made if need be. */
int log_open(const char *path, struct errmsg *e);
/* "error", "warn", "info" or "debug" to a level; -EINVAL for anything else. */
int log_level_parse(const char *word, enum log_level *ret);
const char *log_level_word(enum log_level level);

void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_msg(LOG_LVL_ERROR, __VA_ARGS__)
#define log_warn(...) log_msg(LOG_LVL_WARN, __VA_ARGS__)
#define log_info(...) log_msg(LOG_LVL_INFO, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_LVL_DEBUG, __VA_ARGS__)

#endif
