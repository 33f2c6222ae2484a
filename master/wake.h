/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that sleeps until there is work, and those that give it some, without a lost wakeup and without a system
 * call while it is awake. The sleeper: wake_prepare(); look for work once more; if there is none wake_wait(), else
 * wake_cancel(). The others: make the work visible (a sequentially consistent store), then wake_up().
 */
#ifndef MASTER_WAKE_H
#define MASTER_WAKE_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct wake {
	atomic_uint asleep;
};

static inline void wake_prepare(struct wake *w)
{
	atomic_store(&w->asleep, 1);
}

static inline void wake_cancel(struct wake *w)
{
	atomic_store(&w->asleep, 0);
}

/* Sleeps for at most that long (UINT64_MAX: for ever); may return early. */
static inline void wake_wait(struct wake *w, uint64_t timeout_ns)
{
	struct timespec ts = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
			      .tv_nsec = (long)(timeout_ns % 1000000000u)};

	syscall(SYS_futex, &w->asleep, FUTEX_WAIT_PRIVATE, 1, timeout_ns == UINT64_MAX ? NULL : &ts, NULL, 0);
	atomic_store(&w->asleep, 0);
}

static inline void wake_up(struct wake *w)
{
	if (atomic_load(&w->asleep) && atomic_exchange(&w->asleep, 0))
		syscall(SYS_futex, &w->asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#endif
