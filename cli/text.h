/* SPDX-License-Identifier: Apache-2.0 */
/* Text for a terminal. One thread. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* A name to standard output: its bytes as they are into a file or pipe; on a terminal what could steer it is %XX. */
void text_print_name(const char *name);

/*
 * A progress bar on standard error for a transfer of total bytes (0: not known). It shows itself after half a second,
 * and only on a terminal.
 */
struct progress {
	const char *title;
	uint64_t total, done;
	uint64_t started, shown; /* clock_ns() */
	bool enabled, visible;
};
void progress_start(struct progress *p, const char *title, uint64_t total, bool quiet);
void progress_add(struct progress *p, uint64_t bytes);
/* Wipes the bar. */
void progress_end(struct progress *p);

#endif
