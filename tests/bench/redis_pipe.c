/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/redis_pipe.h"

#include <errno.h>

#ifdef HAVE_HIREDIS

#include <hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/core_driver.h"

#define IN_FLIGHT 64u
/* About what the master keeps of an object beside its name. */
#define VALUE "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct redis_pipe {
	redisContext *c;
};

int redis_pipe_open(const struct backend *b, struct redis_pipe **ret, struct errmsg *e)
{
	struct redis_pipe *p = calloc(1, sizeof(*p));

	if (!p)
		return errmsg_set(e, -ENOMEM, "no memory for a connection");
	p->c = redisConnectUnix(b->address);
	if (!p->c || p->c->err) {
		errmsg_set(e, -ECONNREFUSED, "cannot talk to redis: %s", p->c ? p->c->errstr : "no memory");
		redis_pipe_close(p);
		return -ECONNREFUSED;
	}
	*ret = p;
	return 0;
}

struct redis_pipe *redis_pipe_close(struct redis_pipe *p)
{
	if (p && p->c)
		redisFree(p->c);
	free(p);
	return NULL;
}

static int ask(struct redis_pipe *p, enum redis_pipe_op op, uint64_t key)
{
	char name[MSG_NAME_MAX + 1];
	int r = REDIS_ERR;

	core_driver_name(key, name);
	switch (op) {
	case REDIS_PIPE_SET:
		r = redisAppendCommand(p->c, "SET %s %s", name, VALUE);
		break;
	case REDIS_PIPE_GET:
		r = redisAppendCommand(p->c, "GET %s", name);
		break;
	case REDIS_PIPE_DEL:
		r = redisAppendCommand(p->c, "DEL %s", name);
		break;
	}
	return r == REDIS_OK ? 0 : -EIO;
}

static bool is_right(enum redis_pipe_op op, const redisReply *reply)
{
	switch (op) {
	case REDIS_PIPE_SET:
		return reply->type == REDIS_REPLY_STATUS && !strcmp(reply->str, "OK");
	case REDIS_PIPE_GET:
		return reply->type == REDIS_REPLY_STRING && !strcmp(reply->str, VALUE);
	case REDIS_PIPE_DEL:
		return reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
	}
	return false;
}

static int take(struct redis_pipe *p, enum redis_pipe_op op)
{
	void *reply = NULL;
	int r;

	if (redisGetReply(p->c, &reply) != REDIS_OK)
		return -EIO;
	r = is_right(op, reply) ? 0 : -EBADMSG;
	freeReplyObject(reply);
	return r;
}

int redis_pipe_run(struct redis_pipe *p, enum redis_pipe_op op, const uint64_t *keys, unsigned n)
{
	unsigned asked = 0;
	int r = 0;

	for (unsigned taken = 0; r == 0 && taken < n;) {
		for (; r == 0 && asked < n && asked - taken < IN_FLIGHT; asked++)
			r = ask(p, op, keys[asked]);
		/* All of them, so that the server always gets as many at once. */
		for (; r == 0 && taken < asked; taken++)
			r = take(p, op);
	}
	return r;
}

#else

int redis_pipe_open(const struct backend *b, struct redis_pipe **ret, struct errmsg *e)
{
	return errmsg_set(e, -ENOSYS, "built without hiredis");
}

struct redis_pipe *redis_pipe_close(struct redis_pipe *p)
{
	return NULL;
}

int redis_pipe_run(struct redis_pipe *p, enum redis_pipe_op op, const uint64_t *keys, unsigned n)
{
	return -ENOSYS;
}

#endif
