/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that writes the catalogue. It commits at once when it is idle, and whatever has gathered meanwhile when it
 * is not (group commit); then it hands on the messages that waited for that. What a commit cannot do is tried again
 * with all that comes behind it, and the log says so once.
 *
 * Threads: one submits (the event loop); writer_commits() and the like may be called by any.
 */
#ifndef MASTER_WRITER_H
#define MASTER_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "master/catalogue.h"
#include "master/core.h"

struct writer;

struct writer_ops {
	/* The message may go out now; takes it over. On the writer's thread, in the order of the submits. */
	void (*deliver)(void *arg, struct core_msg *cm);
	/* The catalogue has ids up to here (core_committed); on the writer's thread. */
	void (*counter)(void *arg, uint64_t counter);
	void *arg;
	uint64_t stall_ns; /* a commit that takes longer is as good as one that fails */
};

int writer_start(struct catalogue *cat, const struct writer_ops *ops, struct writer **ret);
/* Commits all there is; what still cannot be committed gets its answers with -EIO. NULL is fine; returns NULL. */
struct writer *writer_stop(struct writer *w);

/* Takes the writes and the messages out of `out`. -ENOMEM: nothing was taken. */
int writer_submit(struct writer *w, struct core_out *out);
/* Nothing is submitted that has not been committed and delivered. */
bool writer_idle(struct writer *w);
/*
 * Waits while too much is queued. 0: there is room; -EAGAIN: still none at until_ns; -EIO: none, and the catalogue
 * cannot be written: nothing that changes the state should be done now.
 */
int writer_wait_room(struct writer *w, uint64_t until_ns);

uint64_t writer_commits(struct writer *w);
uint64_t writer_failures(struct writer *w);

#endif
