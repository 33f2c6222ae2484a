/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer over the io_uring engine that fails, shortens, holds back and reorders what comes back, as a test says.
 * A test has one of these for all its devices. Any thread may change the settings.
 */
#ifndef TESTS_UNIT_SSD_FAULTY_H
#define TESTS_UNIT_SSD_FAULTY_H

#include <pthread.h>
#include <stdbool.h>

#include "ssd/io.h"

#define FAULTY_DEVICES 4u
#define FAULTY_HELD 8192u

enum faulty_what { FAULTY_READ = 1, FAULTY_WRITE = 2 };

struct faulty {
	struct ssd_io_ops ops; /* for ssd_config.io */
	pthread_mutex_t lock;
	/* lock */
	unsigned allow;	  /* so many of allowed come back all the same */
	unsigned allowed; /* enum faulty_what */
	bool last_first;  /* of these, the one that lies farthest behind */
	unsigned hold;	  /* enum faulty_what: these do not come back while it is set */
	int held_device;  /* on this device; -1: on any */
	unsigned fail;	  /* these get `error`, `count` of them, after `skip` have passed */
	unsigned shorten; /* these transfer half of what was asked for, `count` of them */
	int error, only_device;
	unsigned skip, count;
	unsigned lose_order; /* n: n of 8 completions wait for a later turn */
	uint64_t rng;
	int open_error;				 /* 0: open works */
	unsigned reads, writes, opens;		 /* what was asked for */
	struct faulty_dev *devs[FAULTY_DEVICES]; /* in the order of the opens; NULL: closed */
};

void faulty_init(struct faulty *f, uint64_t seed);
/* Sets hold, and when that lets something go, wakes the devices. */
void faulty_hold(struct faulty *f, unsigned what);
/* The same for the device opened as the n-th alone. */
void faulty_hold_device(struct faulty *f, unsigned what, int device);
/* Lets one of what come back that is held: the first that came, or the last of the file. */
void faulty_release(struct faulty *f, unsigned what);
void faulty_release_last(struct faulty *f, unsigned what);
/* The next count of what, after skip of them, fail with error, on the device opened as the n-th (-1: any). */
void faulty_fail(struct faulty *f, unsigned what, unsigned skip, unsigned count, int error, int device);
void faulty_shorten(struct faulty *f, unsigned what, unsigned count);
/* Waits until n requests in all are held back, or no more than n. */
void faulty_wait_held(struct faulty *f, unsigned n);
void faulty_wait_let_go(struct faulty *f, unsigned n);
/* How many reads were asked for. */
unsigned faulty_reads(struct faulty *f);

#endif
