/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device asks of its I/O engine, as a table of functions: io_uring in production (ssd_io_uring), and in tests
 * a layer over it that fails, shortens, delays or reorders completions.
 *
 * Threads: one engine a device. submit and wait are called by the device's thread alone, wake by any thread; open and
 * close by whoever starts or stops the device while its thread does neither of the others.
 */
#ifndef SSD_IO_H
#define SSD_IO_H

#include <stdbool.h>
#include <stdint.h>

/* One request. The device owns it; from submit until wait hands it back the engine alone may touch it. */
struct ssd_io_req {
	unsigned file; /* index in the array given to open */
	bool write;
	uint32_t len;
	uint64_t off;
	void *buf;
	int res; /* set by wait: bytes transferred, or a negative errno */
};

struct ssd_io_ops {
	void *ctx; /* handed to open */
	/* depth: how many requests the device will have in flight at most. 0 or a negative errno. */
	int (*open)(void *ctx, const int *fds, unsigned n_fds, unsigned depth, void **ret);
	/* Takes the request; it may stay unknown to the kernel until the next wait. */
	void (*submit)(void *io, struct ssd_io_req *req);
	/*
	 * Hands everything submitted to the kernel and sleeps until a request is complete or wake was called since the
	 * last wait. Returns how many of at most max completed requests are in ret, perhaps 0; or a negative errno when
	 * the engine itself has failed, which says nothing about the requests in flight.
	 */
	int (*wait)(void *io, struct ssd_io_req **ret, unsigned max);
	void (*wake)(void *io);
	/* Nothing is in flight any longer. */
	void (*close)(void *io);
};

extern const struct ssd_io_ops ssd_io_uring;

#endif
