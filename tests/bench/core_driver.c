/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/core_driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WRITER 1u
#define READER 2u

void core_driver_name(uint64_t k, char name[static MSG_NAME_MAX + 1])
{
	snprintf(name, MSG_NAME_MAX + 1, "%0*llx", CORE_DRIVER_NAME, (unsigned long long)(k * 0x9e3779b97f4a7c15ull));
}

static void drop_messages(struct core_driver *d)
{
	for (size_t i = 0; i < d->out.n_msgs; i++)
		msg_free(d->out.msgs[i].msg);
	d->out.n_msgs = 0;
}

int core_driver_call(struct core_driver *d, uint32_t node, struct msg *m, struct msg *ret, struct msg_item *ret_item)
{
	int r;

	if (!m)
		return -ENOMEM;
	m->node = node;
	m->req_id = 1;
	m->tomb_tag = d->tags[node];
	d->now++;
	r = core_handle(d->core, m, d->now, (int64_t)d->now, &d->out);
	if (r < 0) {
		msg_free(m);
		return r;
	}
	r = m->status;
	if (ret)
		*ret = *m;
	if (ret_item && m->n_items)
		*ret_item = m->items[0];
	drop_messages(d);
	if (d->keep_writes)
		return r;
	if (d->out.writes.counter)
		core_committed(d->core, d->out.writes.counter);
	writes_clear(&d->out.writes);
	return r;
}

static int join(struct core_driver *d, uint32_t node)
{
	struct msg *m = msg_new(MSG_JOIN), answer;
	int r;

	if (m) {
		m->u.join.capacity = 1ull << 50;
		snprintf(m->u.join.instance_key, sizeof(m->u.join.instance_key), "node%u", node);
		snprintf(m->u.join.address, sizeof(m->u.join.address), "node%u:7000", node);
	}
	r = core_driver_call(d, node, m, &answer, NULL);
	if (r == 0)
		d->tags[node] = answer.u.join.tomb_tag;
	return r;
}

int core_driver_start(struct core_driver *d, bool keep_writes)
{
	const struct core_config cfg = {.auto_namespace = true, .hash_seed = 1};
	struct msg *m, answer;
	int r;

	*d = (struct core_driver){.core = core_new(&cfg), .keep_writes = keep_writes};
	r = d->core ? core_load_end(d->core, &d->out) : -ENOMEM;
	if (r < 0)
		return r;
	core_committed(d->core, d->out.writes.counter);
	for (uint32_t node = 1; r == 0 && node <= CORE_DRIVER_NODES; node++)
		r = join(d, node);
	m = r == 0 ? msg_new(MSG_MKDIR) : NULL;
	if (!m)
		return r < 0 ? r : -ENOMEM;
	m->u.name.dir = MSG_ROOT_DIR;
	strcpy(m->u.name.name, "ns");
	r = core_driver_call(d, WRITER, m, &answer, NULL);
	if (r == 0)
		d->dir = answer.u.entry.a.id;
	return r;
}

void core_driver_end(struct core_driver *d)
{
	core_free(d->core);
	core_out_clear(&d->out);
	*d = (struct core_driver){.core = NULL};
}

static int put_start(struct core_driver *d, uint64_t *ret_ticket, uint64_t *ret_alloc)
{
	struct msg *m = msg_new(MSG_PUT_START), answer;
	struct msg_item grant = {0};
	int r;

	if (m) {
		m->u.put.dir = d->dir;
		m->u.put.bytes = 4096;
	}
	r = core_driver_call(d, WRITER, m, &answer, &grant);
	if (r < 0)
		return r;
	*ret_ticket = answer.u.put.ticket;
	*ret_alloc = grant.alloc;
	return 0;
}

int core_driver_put(struct core_driver *d, uint64_t k, uint64_t *ret_replaced)
{
	uint64_t ticket, alloc;
	struct msg *m, answer;
	int r = put_start(d, &ticket, &alloc);

	if (r < 0)
		return r;
	m = msg_new(MSG_PUT_DONE);
	if (!m || msg_alloc_items(m, 1) < 0) {
		msg_free(m);
		return -ENOMEM;
	}
	m->u.put.ticket = ticket;
	m->u.put.dir = d->dir;
	m->u.put.bytes = 4000;
	core_driver_name(k, m->u.put.name);
	m->items[0] = (struct msg_item){.alloc = alloc, .bytes = 4000, .flags = MSG_ITEM_MEM};
	r = core_driver_call(d, WRITER, m, &answer, NULL);
	if (r == 0 && ret_replaced)
		*ret_replaced = answer.u.entry.replaced_id;
	return r;
}

static int named(struct core_driver *d, enum msg_type type, uint64_t k, struct msg *ret)
{
	struct msg *m = msg_new(type);

	if (m) {
		m->u.name.dir = d->dir;
		core_driver_name(k, m->u.name.name);
	}
	return core_driver_call(d, WRITER, m, ret, NULL);
}

int core_driver_lookup(struct core_driver *d, uint64_t k, uint64_t *ret_id)
{
	struct msg answer;
	int r = named(d, MSG_LOOKUP, k, &answer);

	if (r == 0 && ret_id)
		*ret_id = answer.u.entry.a.id;
	return r;
}

int core_driver_delete(struct core_driver *d, uint64_t k, uint64_t *ret_id)
{
	struct msg answer;
	int r = named(d, MSG_DELETE, k, &answer);

	if (r == 0 && ret_id)
		*ret_id = answer.u.entry.a.id;
	return r;
}

static int about_item(struct core_driver *d, uint32_t node, enum msg_type type, const struct msg_item *item)
{
	struct msg_item answer = {.status = 0};
	struct msg *m = msg_new(type);
	int r;

	if (!m || msg_alloc_items(m, 1) < 0) {
		msg_free(m);
		return -ENOMEM;
	}
	m->items[0] = *item;
	r = core_driver_call(d, node, m, NULL, &answer);
	return r < 0 ? r : answer.status;
}

int core_driver_let_go(struct core_driver *d, uint64_t id)
{
	return about_item(d, WRITER, MSG_DELETE_ACK, &(struct msg_item){.put_id = id});
}

int core_driver_get(struct core_driver *d, uint64_t id, uint64_t *ret_alloc)
{
	struct msg *m = msg_new(MSG_GET_START), answer;
	uint64_t get_id, alloc;
	int r;

	if (m)
		m->u.get.put_id = id;
	r = core_driver_call(d, READER, m, &answer, NULL);
	if (r < 0)
		return r;
	if (answer.u.get.source != MSG_SOURCE_MEM_REMOTE)
		return -EBADMSG;
	get_id = answer.u.get.get_id;
	alloc = answer.u.get.alloc;
	m = msg_new(MSG_GET_DONE);
	if (m)
		m->u.get.get_id = get_id;
	r = core_driver_call(d, READER, m, &answer, NULL);
	if (r == 0 && !answer.u.get.promoted)
		r = -EBADMSG;
	if (r == 0)
		*ret_alloc = alloc;
	return r;
}

int core_driver_forget(struct core_driver *d, uint64_t id, uint64_t alloc)
{
	int r = about_item(d, READER, MSG_MEM_EVICT, &(struct msg_item){.put_id = id});

	return r < 0 ? r : about_item(d, READER, MSG_ALLOC_FREED, &(struct msg_item){.alloc = alloc});
}
