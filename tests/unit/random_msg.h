/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random messages, each with exactly the parts that net/msg.h names for its type and direction: written from there, not
 * from the tables of net/wire.c, which they test.
 */
#ifndef TESTS_UNIT_RANDOM_MSG_H
#define TESTS_UNIT_RANDOM_MSG_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/wire.h"

enum { LONG_LISTS = 1, EXTREME = 2 };

static uint64_t random_state = 1;
static unsigned random_how; /* LONG_LISTS: of several frames; EXTREME: every number and name as large as it may be */

static inline uint64_t random_u64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state * 0x2545f4914f6cdd1dull;
}

static inline uint64_t random_below(uint64_t n)
{
	return random_u64() % n;
}

/* Of any size, so that all lengths on the wire come up. */
static inline uint64_t random_number(void)
{
	return random_how & EXTREME ? UINT64_MAX : random_u64() >> random_below(64);
}

static inline uint32_t random_up_to(uint32_t max)
{
	return random_how & EXTREME ? max : (uint32_t)random_below(max + 1);
}

static inline bool random_bool(void)
{
	return random_how & EXTREME ? true : random_u64() & 1;
}

static inline void random_name(char *name, size_t size)
{
	size_t len = random_how & EXTREME ? size - 1 : random_below(random_below(8) ? 20 : size);

	for (size_t k = 0; k < len; k++)
		name[k] = (char)(1 + random_below(255));
	name[len] = '\0';
}

static inline void random_attr(struct msg_attr *a)
{
	*a = (struct msg_attr){
	    .id = random_number(),
	    .size = random_number(),
	    .storage_id = random_number(),
	    .mtime_ns = random_how & EXTREME ? INT64_MIN : (int64_t)random_number(),
	    .ctime_ns = random_how & EXTREME ? INT64_MIN : (int64_t)random_number(),
	    .atime_ns = random_how & EXTREME ? INT64_MIN : (int64_t)random_number(),
	    .expires_ns = random_how & EXTREME ? INT64_MIN : (int64_t)random_number(),
	    .kind = random_up_to(MSG_KIND_FILE),
	    .mode = (uint32_t)random_number(),
	    .uid = (uint32_t)random_number(),
	    .gid = (uint32_t)random_number(),
	    .nlink = (uint32_t)random_number(),
	    .flags = random_up_to(MSG_ATTR_PIN),
	    .ns = (uint32_t)random_number(),
	    .has_xattrs = (uint32_t)random_number(),
	    .block_size = random_number(),
	};
}

static inline void random_namespace(struct msg_namespace *ns)
{
	random_name(ns->name, sizeof(ns->name));
	ns->mask = random_up_to(MSG_NS_BLOCK_SIZE | MSG_NS_TTL | MSG_NS_PERSIST);
	ns->kind = (uint32_t)random_number();
	ns->block_size = random_number();
	ns->ttl_seconds = random_number();
	ns->persist = (uint32_t)random_number();
	ns->mode = (uint32_t)random_number();
	ns->uid = (uint32_t)random_number();
	ns->gid = (uint32_t)random_number();
	ns->root_dir = random_number();
	ns->objects = random_number();
	ns->bytes = random_number();
}

/* ---- bodies ------------------------------------------------------------------------------------------------ */

static inline void random_join(struct msg *m)
{
	m->u.join.capacity = random_number();
	m->u.join.ssd_capacity = random_number();
	m->u.join.tomb_tag = random_number();
	m->u.join.kv_ssd_storage = random_bool();
	random_name(m->u.join.instance_key, sizeof(m->u.join.instance_key));
	random_name(m->u.join.address, sizeof(m->u.join.address));
}

static inline void random_heartbeat(struct msg *m)
{
	m->u.heartbeat.capacity = random_number();
	m->u.heartbeat.zombie = random_number();
	m->u.heartbeat.ssd_capacity = random_number();
	m->u.heartbeat.ssd_used = random_number();
	m->u.heartbeat.master_ns = random_number();
	m->u.heartbeat.lease_ns = random_number();
}

static inline void random_inventory(struct msg *m)
{
	m->u.inventory.page = (uint32_t)random_number();
	m->u.inventory.end = random_bool();
}

static inline void random_name_body(struct msg *m)
{
	m->u.name.dir = random_number();
	random_attr(&m->u.name.attr);
	random_name(m->u.name.name, sizeof(m->u.name.name));
}

static inline void random_entry(struct msg *m)
{
	random_attr(&m->u.entry.a);
	m->u.entry.lease = random_number();
	m->u.entry.replaced_id = random_number();
	m->u.entry.miss = random_up_to(MSG_MISS_LOST);
}

static inline void random_attr_body(struct msg *m)
{
	random_attr(&m->u.attr.a);
	m->u.attr.mask = random_up_to(MSG_SET_MODE | MSG_SET_UID | MSG_SET_GID | MSG_SET_MTIME | MSG_SET_ATIME |
				      MSG_SET_PIN | MSG_SET_TTL);
}

static inline void random_readdir(struct msg *m)
{
	m->u.readdir.dir = random_number();
	m->u.readdir.cookie = random_number();
	m->u.readdir.next_cookie = random_number();
	m->u.readdir.max = (uint32_t)random_number();
	m->u.readdir.end = random_bool();
}

static inline void random_rename(struct msg *m)
{
	m->u.rename.from_dir = random_number();
	m->u.rename.to_dir = random_number();
	m->u.rename.replaced_id = random_number();
	m->u.rename.lease = random_number();
	m->u.rename.noreplace = random_bool();
	random_name(m->u.rename.from, sizeof(m->u.rename.from));
	random_name(m->u.rename.to, sizeof(m->u.rename.to));
}

static inline void random_statfs(struct msg *m)
{
	m->u.statfs.dir = random_number();
	m->u.statfs.total_bytes = random_number();
	m->u.statfs.used_bytes = random_number();
	m->u.statfs.objects = random_number();
}

static inline void random_ns(struct msg *m)
{
	random_namespace(&m->u.ns);
}

static inline void random_put(struct msg *m)
{
	m->u.put.ticket = random_number();
	m->u.put.dir = random_number();
	m->u.put.bytes = random_number();
	m->u.put.replaces = random_number();
	m->u.put.block_size = random_number();
	m->u.put.total = random_number();
	m->u.put.free = random_number();
	random_attr(&m->u.put.attr);
	m->u.put.flags = random_up_to(MSG_PUT_EXCL | MSG_PUT_NOREPLACE);
	m->u.put.persist_to_ssd = random_bool();
	random_name(m->u.put.name, sizeof(m->u.put.name));
}

static inline void random_get(struct msg *m)
{
	m->u.get.put_id = random_number();
	m->u.get.block = (uint32_t)random_number();
	m->u.get.source = random_up_to(MSG_SOURCE_SSD_REMOTE);
	m->u.get.source_node = (uint32_t)random_number();
	m->u.get.get_id = random_number();
	m->u.get.alloc = random_number();
	m->u.get.bytes = random_number();
	m->u.get.len = random_number();
	m->u.get.total = random_number();
	m->u.get.free = random_number();
	m->u.get.drop_ssd_source = random_bool();
	m->u.get.promoted = random_bool();
	m->u.get.source_alloc = random_number();
	m->u.get.source_tag = random_number();
	m->u.get.expires_ns = random_number();
	for (size_t k = 0; random_bool() && k < sizeof(m->u.get.mac); k++)
		m->u.get.mac[k] = (uint8_t)random_u64();
	random_name(m->u.get.source_address, sizeof(m->u.get.source_address));
}

static inline void random_revoke(struct msg *m)
{
	m->u.revoke.dir = random_number();
	m->u.revoke.seq = random_number();
	m->u.revoke.id = random_number();
	m->u.revoke.reason = random_up_to(MSG_REVOKE_LOST);
	m->u.revoke.ack = random_bool();
	random_name(m->u.revoke.name, sizeof(m->u.revoke.name));
}

/* ---- lists ------------------------------------------------------------------------------------------------- */

static inline size_t random_length(size_t max)
{
	if (random_how & EXTREME)
		return max;
	return random_how & LONG_LISTS ? random_below(max + 1) : random_below(random_below(2) ? 3 : 60);
}

static inline void *random_zeroed(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		abort();
	return p;
}

static inline void random_items(struct msg *m)
{
	unsigned zero = random_how & EXTREME ? 0 : (unsigned)random_below(64); /* these fields are 0 in all of them */

	m->n_items = random_length(MSG_MAX_ITEMS);
	m->items = random_zeroed(m->n_items, sizeof(*m->items));
	for (size_t k = 0; k < m->n_items; k++)
		m->items[k] = (struct msg_item){
		    .put_id = zero & 1 ? 0 : random_number(),
		    .alloc = zero & 2 ? 0 : random_number(),
		    .bytes = zero & 4 ? 0 : random_number(),
		    .block = zero & 8 ? 0 : (uint32_t)random_number(),
		    .flags = zero & 16 ? 0 : random_up_to(2 * MSG_ITEM_LOOSE - 1),
		    .status = zero & 32 ? 0 : -(int32_t)random_up_to(4095),
		};
}

static inline void random_ents(struct msg *m)
{
	m->n_ents = random_length(1024);
	m->ents = random_zeroed(m->n_ents, sizeof(*m->ents));
	for (size_t k = 0; k < m->n_ents; k++) {
		m->ents[k].cookie = random_number();
		random_attr(&m->ents[k].attr);
		random_name(m->ents[k].name, sizeof(m->ents[k].name));
	}
}

static inline void random_namespaces(struct msg *m)
{
	m->n_namespaces = random_length(random_how & EXTREME ? 65536 : 2000);
	m->namespaces = random_zeroed(m->n_namespaces, sizeof(*m->namespaces));
	for (size_t k = 0; k < m->n_namespaces; k++)
		random_namespace(&m->namespaces[k]);
}

static inline void random_blob(struct msg *m)
{
	m->blob_len = random_how & EXTREME ? MSG_XATTRS_MAX : random_below(random_below(4) ? 100 : MSG_XATTRS_MAX + 1);
	m->blob = random_zeroed(m->blob_len, 1);
	for (size_t k = 0; k < m->blob_len; k++)
		m->blob[k] = (uint8_t)random_u64();
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

static inline void random_request(struct msg *m)
{
	switch (m->type) {
	case MSG_JOIN:
		return random_join(m);
	case MSG_HEARTBEAT:
		return random_heartbeat(m);
	case MSG_LOOKUP:
	case MSG_MKDIR:
	case MSG_RMDIR:
	case MSG_DELETE:
		return random_name_body(m);
	case MSG_SETXATTRS:
		random_blob(m);
		/* fallthrough */
	case MSG_GETATTR:
	case MSG_SETATTR:
	case MSG_GETXATTRS:
		return random_attr_body(m);
	case MSG_READDIR:
		return random_readdir(m);
	case MSG_RENAME:
		return random_rename(m);
	case MSG_STATFS:
		return random_statfs(m);
	case MSG_NS_CREATE:
	case MSG_NS_SET:
	case MSG_NS_REMOVE:
		return random_ns(m);
	case MSG_PUT_DONE:
		random_blob(m);
		/* fallthrough */
	case MSG_PUT_EXTEND:
	case MSG_PUT_RESUME:
		random_items(m);
		/* fallthrough */
	case MSG_PUT_START:
	case MSG_PUT_RESERVE:
	case MSG_PUT_REVOKE:
	case MSG_PUT_RENEW:
		return random_put(m);
	case MSG_GET_START:
	case MSG_GET_DONE:
	case MSG_GET_REVOKE:
		return random_get(m);
	case MSG_SSD_COMMIT:
	case MSG_SSD_EVICT:
	case MSG_MEM_EVICT:
	case MSG_DELETE_ACK:
	case MSG_ALLOC_FREED:
	case MSG_HOLD:
	case MSG_RELEASE:
		return random_items(m);
	case MSG_REVOKE_ACK:
		return random_revoke(m);
	case MSG_INVENTORY:
		random_items(m);
		return random_inventory(m);
	default:
		return; /* MSG_LEAVE, MSG_NS_LIST */
	}
}

static inline void random_answer(struct msg *m)
{
	switch (m->type) {
	case MSG_JOIN:
		return random_join(m);
	case MSG_HEARTBEAT:
		return random_heartbeat(m);
	case MSG_LOOKUP:
	case MSG_GETATTR:
	case MSG_SETATTR:
	case MSG_MKDIR:
	case MSG_RMDIR:
	case MSG_DELETE:
	case MSG_PUT_DONE:
		return random_entry(m);
	case MSG_READDIR:
		random_ents(m);
		return random_readdir(m);
	case MSG_RENAME:
		return random_rename(m);
	case MSG_GETXATTRS:
		return random_blob(m);
	case MSG_STATFS:
		return random_statfs(m);
	case MSG_NS_CREATE:
	case MSG_NS_SET:
		return random_ns(m);
	case MSG_NS_LIST:
		return random_namespaces(m);
	case MSG_PUT_START:
	case MSG_PUT_EXTEND:
		random_items(m);
		return random_put(m);
	case MSG_GET_START:
	case MSG_GET_DONE:
		return random_get(m);
	case MSG_SSD_COMMIT:
	case MSG_SSD_EVICT:
	case MSG_MEM_EVICT:
	case MSG_DELETE_ACK:
	case MSG_ALLOC_FREED:
	case MSG_INVENTORY:
	case MSG_HOLD:
	case MSG_RELEASE:
		return random_items(m);
	default:
		return; /* MSG_LEAVE and others that are only confirmed */
	}
}

static inline void random_error(struct msg *m)
{
	static const int with_body[][2] = {
	    {MSG_LOOKUP, -ENOENT}, {MSG_PUT_START, -ENOSPC}, {MSG_PUT_EXTEND, -ENOSPC}, {MSG_GET_START, -ENOSPC}};

	m->status = -(int32_t)(1 + random_below(4095));
	for (size_t k = 0; k < sizeof(with_body) / sizeof(with_body[0]); k++) {
		if ((int)m->type != with_body[k][0])
			continue;
		if (random_below(2))
			m->status = with_body[k][1];
		if (m->status == with_body[k][1])
			(void)(m->type == MSG_LOOKUP	  ? random_entry(m)
			       : m->type == MSG_GET_START ? random_get(m)
							  : random_put(m));
	}
}

static inline bool random_is_notice(enum msg_type type)
{
	return type == MSG_NAME_REVOKE || type == MSG_SSD_PERSIST || type == MSG_DROP;
}

/* NULL: there is no message of that kind and type. An answer is an error now and then. */
static inline struct msg *random_msg(enum wire_kind kind, enum msg_type type)
{
	struct msg *m;

	if (type == MSG_NONE || (kind == WIRE_NOTICE) != random_is_notice(type))
		return NULL;
	m = msg_new(type);
	if (!m)
		abort();
	m->tomb_tag = random_number();
	if (kind != WIRE_NOTICE)
		m->req_id = 1 + random_number() / 2;
	if (kind == WIRE_NOTICE)
		type == MSG_NAME_REVOKE ? random_revoke(m) : random_items(m);
	else if (kind == WIRE_REQUEST)
		random_request(m);
	else if (random_how & EXTREME || random_below(4))
		random_answer(m);
	else
		random_error(m);
	return m;
}

static inline bool same_list(const void *a, size_t n_a, const void *b, size_t n_b, size_t size)
{
	return n_a == n_b && (!n_a || !memcmp(a, b, n_a * size));
}

/* Whether two messages are the same in every byte; node is not the messages'. */
static inline bool same_msg(const struct msg *a, const struct msg *b)
{
	return a->type == b->type && a->status == b->status && a->req_id == b->req_id && a->tomb_tag == b->tomb_tag &&
	       !memcmp(&a->u, &b->u, sizeof(a->u)) &&
	       same_list(a->ents, a->n_ents, b->ents, b->n_ents, sizeof(*a->ents)) &&
	       same_list(a->namespaces, a->n_namespaces, b->namespaces, b->n_namespaces, sizeof(*a->namespaces)) &&
	       same_list(a->blob, a->blob_len, b->blob, b->blob_len, 1);
}

/* Items have padding. */
static inline bool same_items(const struct msg *a, const struct msg *b)
{
	bool same = a->n_items == b->n_items;

	for (size_t k = 0; same && k < a->n_items; k++) {
		const struct msg_item *x = &a->items[k], *y = &b->items[k];

		same = x->put_id == y->put_id && x->alloc == y->alloc && x->bytes == y->bytes && x->block == y->block &&
		       x->flags == y->flags && x->status == y->status;
	}
	return same;
}

#endif
