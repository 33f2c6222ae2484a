/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's messages to a fluxkv-master, and nothing else of a node: what t_master.py talks to one with.
 *
 *	master_client ADDR:PORT KEYFILE|- STEP...
 *
 * Steps: join=KEY, mkdir=NAME (below the root, or below the last one), cd=NAME, put=NAME:BYTES, lookup=NAME,
 * wait=FILE (until it is there), leave. Each prints one line, "STEP STATUS", and behind a status of 0 what it learnt,
 * as word=number. "put" goes through PUT_START and PUT_DONE of one block, whose bytes nobody has. Without a connection
 *a step ends with -110 after two seconds, and says why there is none: "error=-13".
 */
#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net/rpc_client.h"

#define TIMEOUT_MS 2000
#define CAPACITY (UINT64_C(1) << 30)

struct node {
	struct rpc_client *client;
	struct channel *ch;
	uint64_t tag, dir;
};

struct waiter {
	sem_t sem;
	struct msg answer;    /* the part of fixed size */
	struct msg_item item; /* the first, if there is one */
};

static struct msg *new_msg(enum msg_type type)
{
	struct msg *m = msg_new(type);

	if (!m) {
		fprintf(stderr, "master_client: out of memory\n");
		exit(1);
	}
	return m;
}

static void told(void *arg, const struct msg *m)
{
	struct waiter *w = arg;

	w->answer = *m;
	if (m->n_items)
		w->item = m->items[0];
	sem_post(&w->sem);
}

static int ask(struct node *n, struct msg *m, struct waiter *ret)
{
	*ret = (struct waiter){.answer.type = MSG_NONE};
	sem_init(&ret->sem, 0, 0);
	m->tomb_tag = n->tag;
	channel_call(n->ch, m, told, ret);
	while (sem_wait(&ret->sem))
		;
	sem_destroy(&ret->sem);
	return ret->answer.status;
}

static int join(struct node *n, const char *key)
{
	struct msg *m = new_msg(MSG_JOIN);
	struct waiter w;
	int r;

	m->u.join.capacity = CAPACITY;
	snprintf(m->u.join.instance_key, sizeof(m->u.join.instance_key), "%s", key);
	r = ask(n, m, &w);
	if (!r) {
		n->tag = w.answer.u.join.tomb_tag;
		printf("join 0 tag=%" PRIu64 "\n", n->tag);
	}
	return r;
}

/* mkdir, lookup and cd: what the name stands for. */
static int name_step(struct node *n, enum msg_type type, const char *step, const char *name)
{
	struct msg *m = new_msg(type);
	struct waiter w;
	int r;

	m->u.name.dir = n->dir;
	m->u.name.attr.mode = 0755;
	r = msg_set_name(m->u.name.name, name);
	if (r) {
		msg_free(m);
		return r;
	}
	r = ask(n, m, &w);
	if (r)
		return r;
	if (strcmp(step, "lookup"))
		n->dir = w.answer.u.entry.a.id;
	printf("%s 0 id=%" PRIu64 " size=%" PRIu64 "\n", step, w.answer.u.entry.a.id, w.answer.u.entry.a.size);
	return 0;
}

static int put_done(struct node *n, const struct waiter *started, const char *name, uint64_t bytes)
{
	struct msg *m = new_msg(MSG_PUT_DONE);
	struct waiter w;
	int r = msg_alloc_items(m, 1);

	if (!r)
		r = msg_set_name(m->u.put.name, name);
	if (r) {
		msg_free(m);
		return r;
	}
	m->u.put.ticket = started->answer.u.put.ticket;
	m->u.put.dir = n->dir;
	m->u.put.bytes = bytes;
	m->u.put.attr.mode = 0644;
	m->items[0] = (struct msg_item){.alloc = started->item.alloc, .bytes = bytes, .flags = MSG_ITEM_MEM};
	r = ask(n, m, &w);
	if (!r)
		printf("put 0 id=%" PRIu64 " size=%" PRIu64 "\n", w.answer.u.entry.a.id, w.answer.u.entry.a.size);
	return r;
}

static int put(struct node *n, char *what)
{
	char *colon = strchr(what, ':');
	struct msg *m = new_msg(MSG_PUT_START);
	struct waiter w;
	uint64_t bytes = colon ? strtoull(colon + 1, NULL, 10) : 1;
	int r;

	if (colon)
		*colon = '\0';
	m->u.put.dir = n->dir;
	m->u.put.bytes = bytes;
	r = msg_set_name(m->u.put.name, what);
	if (r) {
		msg_free(m);
		return r;
	}
	r = ask(n, m, &w);
	return r ? r : put_done(n, &w, what, bytes);
}

static int leave(struct node *n)
{
	struct waiter w;
	int r = ask(n, new_msg(MSG_LEAVE), &w);

	if (!r)
		puts("leave 0");
	return r;
}

static int wait_for(const char *path)
{
	while (access(path, F_OK))
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	puts("wait 0");
	return 0;
}

static int run_step(struct node *n, const char *step, char *value)
{
	if (!strcmp(step, "join"))
		return join(n, value);
	if (!strcmp(step, "mkdir"))
		return name_step(n, MSG_MKDIR, step, value);
	if (!strcmp(step, "cd") || !strcmp(step, "lookup"))
		return name_step(n, MSG_LOOKUP, step, value);
	if (!strcmp(step, "put"))
		return put(n, value);
	if (!strcmp(step, "wait"))
		return wait_for(value);
	if (!strcmp(step, "leave"))
		return leave(n);
	return -EINVAL;
}

static void run(struct node *n, char *word)
{
	char *equals = strchr(word, '='), none[] = "";
	struct rpc_client_stats stats;
	int r;

	if (equals)
		*equals = '\0';
	r = run_step(n, word, equals ? equals + 1 : none);
	if (r) {
		rpc_client_get_stats(n->client, &stats);
		printf("%s %d error=%d\n", word, r, stats.up ? 0 : stats.error);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct rpc_client_config cfg = {.timeout_ms = TIMEOUT_MS, .back_off_ms = 5, .max_back_off_ms = 50};
	struct node n = {.dir = MSG_ROOT_DIR};
	struct errmsg e;

	if (argc < 4) {
		fprintf(stderr, "usage: master_client ADDR:PORT KEYFILE|- STEP...\n");
		return 2;
	}
	cfg.master = argv[1];
	cfg.key_file = strcmp(argv[2], "-") ? argv[2] : NULL;
	if (rpc_client_start(&cfg, &n.client, &e)) {
		fprintf(stderr, "master_client: %s\n", e.text);
		return 1;
	}
	n.ch = rpc_client_channel(n.client);
	for (int k = 3; k < argc; k++)
		run(&n, argv[k]);
	rpc_client_stop(n.client);
	return 0;
}
