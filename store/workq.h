/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of threads for what may wait: for room, for the SSD, for the master. A job that cannot get on sleeps in its
 * thread, so that the threads which answer the kernel, the master's and the device's never do.
 *
 * The pool grows to its limit while every thread is busy and keeps its threads. Jobs start in the order they came.
 * Nothing that a job waits for may itself need a job that has not started: evictions, completions of the device and
 * answers of the master run on threads of their own. Any thread may submit; a job may too.
 */
#ifndef STORE_WORKQ_H
#define STORE_WORKQ_H

#include "common/list.h"

struct workq;

/* Embedded in what the job is about; belongs to the queue from submit until fn is called, then to fn. */
struct work {
	struct list link;
	void (*fn)(struct work *w);
};

struct workq *workq_new(unsigned max_threads);
/* Runs what is queued to its end, then joins the threads. Takes NULL, returns NULL. */
struct workq *workq_free(struct workq *q);

void workq_submit(struct workq *q, struct work *w, void (*fn)(struct work *w));

#endif
