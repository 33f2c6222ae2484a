/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memcached, a server of our own on a socket of our own, driven by libmemcached; with extstore for an SSD tier. What is
 * set beside the sizes is only what values of that size need; with an SSD tier its page cache is limited too. A value
 * is the caller's copy, in holder mode too. Hits are memcached's own count: get_hits in all, of which get_extstore,
 * less what was not there, from the SSD.
 */
#include "tests/bench/backend.h"

#define PROGRAM "memcached"
#define HOW "stats get_hits and get_extstore, at both ends of the window; they must add up to the hits"

#ifdef HAVE_LIBMEMCACHED

#include <errno.h>
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define PAGE_MIB 64   /* of extstore; a write buffer is less */
#define BESIDE_MIB 64 /* of memory that it needs beside its values and buffers */

struct session {
	memcached_st *mc;
};

static memcached_st *connect_to(const struct backend *b)
{
	memcached_st *mc = memcached_create(NULL);

	if (mc && memcached_server_add_unix_socket(mc, b->address) != MEMCACHED_SUCCESS) {
		memcached_free(mc);
		return NULL;
	}
	/* A value that is waited for from the SSD is late, not lost. */
	if (mc)
		memcached_behavior_set(mc, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, 60000);
	return mc;
}

static bool answers(void *arg)
{
	memcached_st *mc = connect_to(arg);
	bool yes = mc && memcached_version(mc) == MEMCACHED_SUCCESS;

	if (mc)
		memcached_free(mc);
	return yes;
}

/* A write buffer takes a whole value; and so that it has time to empty, four values' memory is kept free. */
static void extstore_options(const struct backend *b, unsigned item_mib, char *buf, size_t len)
{
	double keep = 4.0 * (double)b->setup.payload / (double)b->setup.dram;
	unsigned buffer_mib = item_mib > 4 ? item_mib : 4;

	snprintf(buf, len,
		 "ext_page_size=%u,ext_wbuf_size=%u,ext_threads=4,slab_automove_freeratio=%.3f,ext_path=%s/ext:%lluM",
		 buffer_mib > PAGE_MIB ? buffer_mib : PAGE_MIB, buffer_mib,
		 keep < 0.01  ? 0.01
		 : keep > 0.3 ? 0.3
			      : keep,
		 b->ssd.path, (unsigned long long)(b->setup.ssd / MIB));
}

/*
 * extstore reads and writes through the page cache, which -m does not cover: with memory to spare its SSD tier would be
 * memory too. So all of the server's pages together are what its DRAM may be, and what it has beside the values. Few
 * are there yet when it answers.
 */
static int hold(struct backend *b, unsigned item_mib, struct errmsg *e)
{
	int r = cgroup_new(&b->held, b->setup.dram + (BESIDE_MIB + 4 * item_mib) * MIB, e);

	if (r == 0) {
		r = cgroup_take(&b->held, b->service.pid);
		if (r < 0)
			errmsg_set(e, r, "memcached cannot be put into a control group: %s", strerror(-r));
	}
	return r;
}

static int start(struct backend *b, struct errmsg *e)
{
	char memory[32], item[32], ext[PATH_MAX + 256];
	unsigned item_mib = (unsigned)(b->setup.payload / MIB) + 1;
	const char *argv[] = {PROGRAM, "-s", b->address, "-m", memory, "-I", item,
			      "-t",    "4",  NULL,	 NULL, NULL,   NULL, NULL};
	unsigned n = 9;
	int r = backend_work(b, "memcached", e);

	if (r == 0 && b->setup.ssd)
		r = target_open(&b->ssd, "ssd", b->setup.ssd_dir, e);
	if (r < 0)
		return r;
	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)(b->setup.dram / MIB));
	snprintf(item, sizeof(item), "%um", item_mib);
	if (geteuid() == 0) {
		argv[n++] = "-u";
		argv[n++] = "root";
	}
	if (b->setup.ssd) {
		extstore_options(b, item_mib, ext, sizeof(ext));
		argv[n++] = "-o";
		argv[n++] = ext;
	}
	r = service_start(&b->service, argv, answers, b, e);
	return r == 0 && b->setup.ssd ? hold(b, item_mib, e) : r;
}

static void stop(struct backend *b)
{
	service_stop(&b->service);
}

static int session_open(const struct backend *b, struct session **ret, struct errmsg *e)
{
	struct session *s = calloc(1, sizeof(*s));

	if (s)
		s->mc = connect_to(b);
	if (!s || !s->mc) {
		free(s);
		return errmsg_set(e, -ENOMEM, "no memory for a session");
	}
	*ret = s;
	return 0;
}

static void session_close(struct session *s)
{
	if (s)
		memcached_free(s->mc);
	free(s);
}

static int put(struct session *s, unsigned key, const void *buf, size_t len)
{
	char name[KEY_LEN];

	backend_key(key, name);
	switch (memcached_set(s->mc, name, strlen(name), buf, len, 0, 0)) {
	case MEMCACHED_SUCCESS:
		return 0;
	case MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE:
		return -ENOSPC;
	default:
		return -EIO;
	}
}

static int get(struct session *s, unsigned key, enum output output, struct got *ret)
{
	memcached_return_t rc;
	char name[KEY_LEN];
	uint32_t flags;
	size_t len;
	char *data;

	backend_key(key, name);
	data = memcached_get(s->mc, name, strlen(name), &len, &flags, &rc);
	if (rc == MEMCACHED_NOTFOUND)
		return -ENOENT;
	if (rc != MEMCACHED_SUCCESS || !data)
		return -EIO;
	*ret = (struct got){.data = data, .len = len, .handle = data};
	return 0;
}

static void release(struct session *s, struct got *g)
{
	free(g->handle);
	g->handle = NULL;
}

struct counters {
	uint64_t hits, ext, ext_lost;
};

static memcached_return_t take_counter(const memcached_instance_st *server, const char *name, size_t name_len,
				       const char *value, size_t len, void *arg)
{
	struct counters *c = arg;
	char text[32];
	uint64_t v;

	snprintf(text, sizeof(text), "%.*s", (int)len, value);
	v = strtoull(text, NULL, 10);
	snprintf(text, sizeof(text), "%.*s", (int)name_len, name);
	if (!strcmp(text, "get_hits"))
		c->hits = v;
	else if (!strcmp(text, "get_extstore"))
		c->ext = v;
	else if (!strcmp(text, "miss_from_extstore") || !strcmp(text, "badcrc_from_extstore"))
		c->ext_lost += v;
	return MEMCACHED_SUCCESS;
}

static int count(const struct backend *b, struct hits *ret)
{
	memcached_st *mc = connect_to(b);
	struct counters c = {0};
	int r = -EIO;

	if (mc && memcached_stat_execute(mc, NULL, take_counter, &c) == MEMCACHED_SUCCESS)
		r = c.ext - c.ext_lost > c.hits ? -EBADMSG : 0;
	if (mc)
		memcached_free(mc);
	if (r == 0)
		*ret = (struct hits){.ssd = c.ext - c.ext_lost, .dram = c.hits - (c.ext - c.ext_lost)};
	return r;
}

const struct backend_ops backend_memcached = {.name = "memcached",
					      .program = PROGRAM,
					      .package = PROGRAM,
					      .built = true,
					      .how = HOW,
					      .start = start,
					      .stop = stop,
					      .count = count,
					      .open = session_open,
					      .close = session_close,
					      .put = put,
					      .get = get,
					      .release = release};

#else

const struct backend_ops backend_memcached = {
    .name = "memcached", .program = PROGRAM, .package = "libmemcached-dev", .how = HOW};

#endif
