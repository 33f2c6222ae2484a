/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redis, a server of our own on a socket of our own, driven by hiredis. It has no SSD tier. Evicts by frequency, which
 * suits the workload best; persistence is off. A reply is the caller's copy, in holder mode too: there is nothing
 * cheaper. Hits are Redis's own count, all of them from DRAM.
 */
#include "tests/bench/backend.h"

#define PROGRAM "redis-server"
#define HOW "INFO keyspace_hits, at both ends of the window; all are from DRAM"

#ifdef HAVE_HIREDIS

#include <errno.h>
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session {
	redisContext *c;
};

static bool answers(void *arg)
{
	const struct backend *b = arg;
	redisContext *c = redisConnectUnix(b->address);
	redisReply *reply = c && !c->err ? redisCommand(c, "PING") : NULL;
	bool yes = reply && reply->type == REDIS_REPLY_STATUS;

	freeReplyObject(reply);
	if (c)
		redisFree(c);
	return yes;
}

static int start(struct backend *b, struct errmsg *e)
{
	char memory[32];
	const char *const argv[] = {PROGRAM,
				    "--port",
				    "0",
				    "--unixsocket",
				    b->address,
				    "--dir",
				    b->work.path,
				    "--save",
				    "",
				    "--appendonly",
				    "no",
				    "--maxmemory",
				    memory,
				    "--maxmemory-policy",
				    "allkeys-lfu",
				    NULL};
	int r = backend_work(b, "redis", e);

	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)b->setup.dram);
	return r < 0 ? r : service_start(&b->service, argv, answers, b, e);
}

static void stop(struct backend *b)
{
	service_stop(&b->service);
}

static int session_open(const struct backend *b, struct session **ret, struct errmsg *e)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return errmsg_set(e, -ENOMEM, "no memory for a session");
	s->c = redisConnectUnix(b->address);
	if (!s->c || s->c->err) {
		errmsg_set(e, -ECONNREFUSED, "cannot talk to redis: %s", s->c ? s->c->errstr : "no memory");
		if (s->c)
			redisFree(s->c);
		free(s);
		return -ECONNREFUSED;
	}
	*ret = s;
	return 0;
}

static void session_close(struct session *s)
{
	if (s)
		redisFree(s->c);
	free(s);
}

static int put(struct session *s, unsigned key, const void *buf, size_t len)
{
	char name[KEY_LEN];
	redisReply *reply;
	int r = 0;

	backend_key(key, name);
	reply = redisCommand(s->c, "SET %s %b", name, buf, len);
	if (!reply)
		return -EIO;
	if (reply->type == REDIS_REPLY_ERROR)
		r = strncmp(reply->str, "OOM", 3) ? -EIO : -ENOSPC;
	freeReplyObject(reply);
	return r;
}

static int get(struct session *s, unsigned key, enum output output, struct got *ret)
{
	char name[KEY_LEN];
	redisReply *reply;
	int r = 0;

	backend_key(key, name);
	reply = redisCommand(s->c, "GET %s", name);
	if (!reply)
		return -EIO;
	if (reply->type == REDIS_REPLY_STRING)
		*ret = (struct got){.data = reply->str, .len = reply->len, .handle = reply};
	else
		r = reply->type == REDIS_REPLY_NIL ? -ENOENT : -EIO;
	if (r < 0)
		freeReplyObject(reply);
	return r;
}

static void release(struct session *s, struct got *g)
{
	freeReplyObject(g->handle);
	g->handle = NULL;
}

static int count(const struct backend *b, struct hits *ret)
{
	redisContext *c = redisConnectUnix(b->address);
	redisReply *reply = c && !c->err ? redisCommand(c, "INFO stats") : NULL;
	const char *at = reply && reply->str ? strstr(reply->str, "keyspace_hits:") : NULL;
	int r = at ? 0 : -EIO;

	if (at)
		*ret = (struct hits){.dram = strtoull(strchr(at, ':') + 1, NULL, 10)};
	freeReplyObject(reply);
	if (c)
		redisFree(c);
	return r;
}

const struct backend_ops backend_redis = {.name = "redis",
					  .program = PROGRAM,
					  .package = PROGRAM,
					  .built = true,
					  .no_ssd = true,
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

const struct backend_ops backend_redis = {
    .name = "redis", .program = PROGRAM, .package = "libhiredis-dev", .no_ssd = true, .how = HOW};

#endif
