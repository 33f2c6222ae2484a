/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the SSD tier gives values back: ssd_refill DIR VALUE_BYTES IN_FLIGHT TOTAL_BYTES SECONDS
 *
 * Fills a ring in DIR, then reads random values of it, IN_FLIGHT at a time, each verified, and prints "write MB/s  read
 * MB/s  mean latency us". To be compared with fio --ioengine=io_uring --direct=1 --rw=randread of the same block size
 * and depth in the same directory.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/hash.h"
#include "ssd/ssd.h"

static struct ssd_store *store;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
/* under lock */
static unsigned free_slots[64], n_free;
static uint64_t n_done, latency_ns;
static int failure;

static uint64_t value_len, n_values;
static unsigned in_flight;
static unsigned char *memory;

struct slot {
	unsigned id;
	uint64_t key, start;
	bool write;
};
static struct slot slots[64];

static void on_done(void *arg, int err, uint64_t sum)
{
	struct slot *s = arg;

	if (s->write && !err)
		ssd_commit_done(store, (struct ssd_key){.id = s->key});
	pthread_mutex_lock(&lock);
	if (err)
		failure = err;
	n_done++;
	latency_ns += clock_ns() - s->start;
	free_slots[n_free++] = s->id;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&lock);
}

/* A free slot, with its clock running. */
static struct slot *take(uint64_t key, bool write)
{
	struct slot *s;

	pthread_mutex_lock(&lock);
	while (!n_free)
		pthread_cond_wait(&cond, &lock);
	s = &slots[free_slots[--n_free]];
	pthread_mutex_unlock(&lock);
	*s = (struct slot){.id = (unsigned)(s - slots), .key = key, .write = write, .start = clock_ns()};
	return s;
}

static void wait_all(void)
{
	pthread_mutex_lock(&lock);
	while (n_free < in_flight)
		pthread_cond_wait(&cond, &lock);
	pthread_mutex_unlock(&lock);
}

static int start(uint64_t key, bool write)
{
	struct slot *s = take(key, write);
	unsigned char *buf = memory + s->id * value_len;

	if (!write)
		return ssd_read(store, (struct ssd_key){.id = key}, buf, value_len, value_len, on_done, s);
	memcpy(buf, &key, sizeof(key));
	return ssd_write(store, (struct ssd_key){.id = key}, buf, value_len, NULL, SSD_WAIT, on_done, s);
}

static double rate(uint64_t bytes, uint64_t since)
{
	return (double)bytes * 1e3 / (double)(clock_ns() - since);
}

static int run(unsigned seconds)
{
	uint64_t rng = 1, begin = clock_ns();
	double write_rate;
	int r = 0;

	for (uint64_t i = 0; i < n_values && !r; i++)
		r = start(i, true);
	wait_all();
	write_rate = rate(n_values * value_len, begin);
	pthread_mutex_lock(&lock);
	n_done = latency_ns = 0;
	pthread_mutex_unlock(&lock);
	begin = clock_ns();
	while (!r && clock_ns() - begin < seconds * NS_PER_SEC)
		r = start(hash_u64(rng++) % n_values, false);
	wait_all();
	if (r || failure || !n_done)
		return r ? r : failure ? failure : -EIO;
	printf("write %.0f MB/s  read %.0f MB/s  latency %.0f us\n", write_rate, rate(n_done * value_len, begin),
	       (double)latency_ns / (double)n_done / 1e3);
	return 0;
}

/* Huge pages where the kernel gives them, as the node's segment has: a device then sees few, large ranges. */
static int map_memory(void)
{
	const size_t huge = 2u << 20;
	size_t size = in_flight * value_len + huge;
	unsigned char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return -errno;
	memory = map + (huge - (uintptr_t)map % huge) % huge;
	if (!getenv("SSD_REFILL_SMALL_PAGES") && madvise(memory, in_flight * value_len, MADV_HUGEPAGE) < 0)
		fprintf(stderr, "ssd_refill: no huge pages, going on without\n");
	for (size_t i = 0; i + 8 <= in_flight * value_len; i += 8)
		memcpy(memory + i, &(uint64_t){hash_u64(i)}, 8);
	return 0;
}

int main(int argc, char **argv)
{
	struct ssd_root root;
	struct ssd_config cfg = {
	    .roots = &root, .n_roots = 1, .cluster_name = "bench", .instance_key = "1", .direct = true};
	struct errmsg e = {0};
	int r;

	if (argc != 6) {
		fprintf(stderr, "usage: ssd_refill DIR VALUE_BYTES IN_FLIGHT TOTAL_BYTES SECONDS\n");
		return 2;
	}
	value_len = strtoull(argv[2], NULL, 10);
	in_flight = (unsigned)strtoul(argv[3], NULL, 10);
	root = (struct ssd_root){.path = argv[1], .limit = strtoull(argv[4], NULL, 10)};
	if (!value_len || !in_flight || in_flight > 64 || root.limit / 8 < value_len) {
		fprintf(stderr, "ssd_refill: 1 to 64 in flight, and room for 8 values\n");
		return 2;
	}
	/* A little less than the ring takes, so that nothing is overwritten. */
	n_values = root.limit / value_len - 4;
	for (unsigned i = 0; i < in_flight; i++)
		free_slots[n_free++] = i;
	r = map_memory();
	if (!r)
		r = ssd_store_open(&cfg, &store, &e);
	if (!r)
		r = run((unsigned)strtoul(argv[5], NULL, 10));
	if (r)
		fprintf(stderr, "ssd_refill: %s %s\n", strerror(-r), e.text);
	ssd_store_close(store);
	return r ? 1 : 0;
}
