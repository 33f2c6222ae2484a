/* SPDX-License-Identifier: Apache-2.0 */
#include "net/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/arena.h"
#include "net/wire_map.h"

#define ARENA_MAX (4u << 20) /* what one frame may become while it is looked at; the largest good one takes 1.5 MiB */
#define STATUS_MIN (-4095)

/* ---- which parts a message has ------------------------------------------------------------------------------ */

enum list { LIST_NONE, LIST_ITEMS, LIST_ENTS, LIST_NAMESPACES, LISTS };

struct parts {
	uint8_t body; /* enum wire_map */
	uint8_t list; /* enum list */
	bool blob;
};

struct shape {
	struct parts request, answer, notice;
	int16_t with_body; /* an answer with this error has its body all the same */
	bool is_request, is_notice;
};

#define REQUEST(...) .is_request = true, .request = {__VA_ARGS__}
#define ANSWER(...) .answer = {__VA_ARGS__}
#define NOTICE(...) .is_notice = true, .notice = {__VA_ARGS__}
#define ITEMS .list = LIST_ITEMS

static const struct shape shapes[MSG_TYPES] = {
    [MSG_JOIN] = {REQUEST(.body = MAP_JOIN), ANSWER(.body = MAP_JOIN)},
    [MSG_HEARTBEAT] = {REQUEST(.body = MAP_HEARTBEAT), ANSWER(.body = MAP_HEARTBEAT)},
    [MSG_LEAVE] = {REQUEST(.body = MAP_NONE)},
    [MSG_INVENTORY] = {REQUEST(.body = MAP_INVENTORY, .list = LIST_ITEMS), ANSWER(ITEMS)},
    [MSG_PUT_RESUME] = {REQUEST(.body = MAP_PUT, .list = LIST_ITEMS)},
    [MSG_LOOKUP] = {REQUEST(.body = MAP_NAME), ANSWER(.body = MAP_ENTRY), .with_body = -ENOENT},
    [MSG_GETATTR] = {REQUEST(.body = MAP_ATTR), ANSWER(.body = MAP_ENTRY)},
    [MSG_SETATTR] = {REQUEST(.body = MAP_ATTR), ANSWER(.body = MAP_ENTRY)},
    [MSG_READDIR] = {REQUEST(.body = MAP_READDIR), ANSWER(.body = MAP_READDIR, .list = LIST_ENTS)},
    [MSG_MKDIR] = {REQUEST(.body = MAP_NAME), ANSWER(.body = MAP_ENTRY)},
    [MSG_RMDIR] = {REQUEST(.body = MAP_NAME), ANSWER(.body = MAP_ENTRY)},
    [MSG_RENAME] = {REQUEST(.body = MAP_RENAME), ANSWER(.body = MAP_RENAME)},
    [MSG_DELETE] = {REQUEST(.body = MAP_NAME), ANSWER(.body = MAP_ENTRY)},
    [MSG_GETXATTRS] = {REQUEST(.body = MAP_ATTR), ANSWER(.blob = true)},
    [MSG_SETXATTRS] = {REQUEST(.body = MAP_ATTR, .blob = true)},
    [MSG_STATFS] = {REQUEST(.body = MAP_STATFS), ANSWER(.body = MAP_STATFS)},
    [MSG_NS_CREATE] = {REQUEST(.body = MAP_NS), ANSWER(.body = MAP_NS)},
    [MSG_NS_SET] = {REQUEST(.body = MAP_NS), ANSWER(.body = MAP_NS)},
    [MSG_NS_LIST] = {REQUEST(.body = MAP_NONE), ANSWER(.list = LIST_NAMESPACES)},
    [MSG_NS_REMOVE] = {REQUEST(.body = MAP_NS)},
    [MSG_PUT_START] = {REQUEST(.body = MAP_PUT), ANSWER(.body = MAP_PUT, .list = LIST_ITEMS), .with_body = -ENOSPC},
    [MSG_PUT_EXTEND] = {REQUEST(.body = MAP_PUT, .list = LIST_ITEMS), ANSWER(.body = MAP_PUT, .list = LIST_ITEMS),
			.with_body = -ENOSPC},
    [MSG_PUT_RESERVE] = {REQUEST(.body = MAP_PUT)},
    [MSG_PUT_DONE] = {REQUEST(.body = MAP_PUT, .list = LIST_ITEMS, .blob = true), ANSWER(.body = MAP_ENTRY)},
    [MSG_PUT_REVOKE] = {REQUEST(.body = MAP_PUT)},
    [MSG_PUT_RENEW] = {REQUEST(.body = MAP_PUT)},
    [MSG_GET_START] = {REQUEST(.body = MAP_GET), ANSWER(.body = MAP_GET), .with_body = -ENOSPC},
    [MSG_GET_DONE] = {REQUEST(.body = MAP_GET), ANSWER(.body = MAP_GET)},
    [MSG_GET_REVOKE] = {REQUEST(.body = MAP_GET)},
    [MSG_SSD_COMMIT] = {REQUEST(ITEMS), ANSWER(ITEMS)},
    [MSG_SSD_EVICT] = {REQUEST(ITEMS), ANSWER(ITEMS)},
    [MSG_MEM_EVICT] = {REQUEST(ITEMS), ANSWER(ITEMS)},
    [MSG_DELETE_ACK] = {REQUEST(ITEMS), ANSWER(ITEMS)},
    [MSG_ALLOC_FREED] = {REQUEST(ITEMS), ANSWER(ITEMS)},
    [MSG_HOLD] = {REQUEST(ITEMS), ANSWER(ITEMS)},
    [MSG_RELEASE] = {REQUEST(ITEMS), ANSWER(ITEMS)},
    [MSG_REVOKE_ACK] = {REQUEST(.body = MAP_REVOKE)},
    [MSG_NAME_REVOKE] = {NOTICE(.body = MAP_REVOKE)},
    [MSG_SSD_PERSIST] = {NOTICE(ITEMS)},
    [MSG_DROP] = {NOTICE(ITEMS)},
};

static const struct parts nothing;

/* Only what is asked and answered has an id, and a time to wait for has who asks. */
static bool good_head(uint32_t kind, uint64_t req_id, uint64_t timeout_us)
{
	return (kind == WIRE_NOTICE) == !req_id && (kind == WIRE_REQUEST || !timeout_us);
}

/* NULL when there is no message of that kind and type with that status. */
static const struct parts *parts_of(uint32_t kind, uint32_t type, int32_t status)
{
	static const struct parts bodies[MAP_BODIES] = {
	    [MAP_ENTRY] = {.body = MAP_ENTRY}, [MAP_PUT] = {.body = MAP_PUT}, [MAP_GET] = {.body = MAP_GET}};
	const struct shape *s = type < MSG_TYPES ? &shapes[type] : NULL;

	if (!s || status > 0 || status < STATUS_MIN || (status && kind != WIRE_ANSWER))
		return NULL;
	if (kind == WIRE_NOTICE)
		return s->is_notice ? &s->notice : NULL;
	if (!s->is_request)
		return NULL;
	if (kind == WIRE_REQUEST)
		return &s->request;
	if (kind != WIRE_ANSWER)
		return NULL;
	if (!status)
		return &s->answer;
	return s->with_body == status ? &bodies[s->answer.body] : &nothing;
}

/* ---- lists -------------------------------------------------------------------------------------------------- */

static int write_items(const void *at, size_t n, struct arena *a, Fluxkv__Wire__Frame *f)
{
	return map_write_items(at, n, a, &f->items);
}

static int read_items(const Fluxkv__Wire__Frame *f, void *at)
{
	return map_read_items(f->items, at);
}

/* n structs, each with its message, as protobuf-c has a list of those: an array of pointers. */
static int write_all(enum wire_map map, const void *at, size_t size, size_t n, struct arena *a, ProtobufCMessage ***ret)
{
	ProtobufCMessage **wire = arena_alloc(a, n * sizeof(*wire));
	int r = wire ? 0 : -ENOMEM;

	for (size_t k = 0; k < n && !r; k++)
		r = map_write(map, (const char *)at + k * size, a, &wire[k]);
	if (!r)
		*ret = wire;
	return r;
}

static int read_all(enum wire_map map, ProtobufCMessage **wire, size_t n, void *at, size_t size)
{
	int r = 0;

	for (size_t k = 0; k < n && !r; k++)
		r = map_read(map, wire[k], (char *)at + k * size);
	return r;
}

static int write_ents(const void *at, size_t n, struct arena *a, Fluxkv__Wire__Frame *f)
{
	f->n_ents = n;
	return write_all(MAP_DIRENT, at, sizeof(struct msg_dirent), n, a, (ProtobufCMessage ***)&f->ents);
}

static int read_ents(const Fluxkv__Wire__Frame *f, void *at)
{
	return read_all(MAP_DIRENT, (ProtobufCMessage **)f->ents, f->n_ents, at, sizeof(struct msg_dirent));
}

static int write_namespaces(const void *at, size_t n, struct arena *a, Fluxkv__Wire__Frame *f)
{
	f->n_namespaces = n;
	return write_all(MAP_NAMESPACE, at, sizeof(struct msg_namespace), n, a, (ProtobufCMessage ***)&f->namespaces);
}

static int read_namespaces(const Fluxkv__Wire__Frame *f, void *at)
{
	return read_all(MAP_NAMESPACE, (ProtobufCMessage **)f->namespaces, f->n_namespaces, at,
			sizeof(struct msg_namespace));
}

struct list_ops {
	size_t per_frame; /* so many fit, whatever they are */
	size_t max;	  /* in a message */
	size_t size;	  /* of one */
	size_t at, n_at;  /* in struct msg: the array, its length */
	int (*write)(const void *at, size_t n, struct arena *a, Fluxkv__Wire__Frame *f);
	int (*read)(const Fluxkv__Wire__Frame *f, void *at);
};

static const struct list_ops lists[LISTS] = {
    [LIST_ITEMS] = {16384, MSG_MAX_ITEMS, sizeof(struct msg_item), offsetof(struct msg, items),
		    offsetof(struct msg, n_items), write_items, read_items},
    [LIST_ENTS] = {1024, 1024, sizeof(struct msg_dirent), offsetof(struct msg, ents), offsetof(struct msg, n_ents),
		   write_ents, read_ents},
    [LIST_NAMESPACES] = {512, 65536, sizeof(struct msg_namespace), offsetof(struct msg, namespaces),
			 offsetof(struct msg, n_namespaces), write_namespaces, read_namespaces},
};

static void **list_at(const struct list_ops *l, const struct msg *m)
{
	return (void **)((char *)m + l->at);
}

static size_t *list_n(const struct list_ops *l, const struct msg *m)
{
	return (size_t *)((char *)m + l->n_at);
}

/* How many elements of which list a frame has. False: of more than one. */
static bool frame_list(const Fluxkv__Wire__Frame *f, enum list *ret, size_t *ret_n)
{
	const size_t n[LISTS] = {
	    [LIST_ITEMS] = f->items ? f->items->count : 0,
	    [LIST_ENTS] = f->n_ents,
	    [LIST_NAMESPACES] = f->n_namespaces,
	};

	*ret = LIST_NONE;
	*ret_n = 0;
	for (enum list k = LIST_NONE + 1; k < LISTS; k++) {
		if (!n[k])
			continue;
		if (*ret)
			return false;
		*ret = k;
		*ret_n = n[k];
	}
	return true;
}

/* ---- encoding ------------------------------------------------------------------------------------------------ */

static int append_frame(const Fluxkv__Wire__Frame *f, struct buf *out)
{
	size_t len = fluxkv__wire__frame__get_packed_size(f);
	uint8_t *to;

	if (len > WIRE_FRAME_MAX)
		return -E2BIG;
	to = buf_room(out, WIRE_LENGTH_BYTES + len);
	if (!to)
		return -ENOMEM;
	for (unsigned k = 0; k < WIRE_LENGTH_BYTES; k++)
		to[k] = (uint8_t)(len >> 8 * k);
	fluxkv__wire__frame__pack(f, to + WIRE_LENGTH_BYTES);
	out->len += WIRE_LENGTH_BYTES + len;
	return 0;
}

/* The body and the blob of a message's first frame. */
static int write_first(const struct msg *m, const struct parts *p, struct arena *a, Fluxkv__Wire__Frame *f)
{
	ProtobufCMessage *body;
	int r;

	if (p->blob && m->blob_len > MSG_XATTRS_MAX)
		return -E2BIG;
	if (p->blob)
		f->blob = (ProtobufCBinaryData){.len = m->blob_len, .data = m->blob};
	if (!p->body)
		return 0;
	r = map_write((enum wire_map)p->body, m, a, &body);
	if (!r)
		map_set_body(f, (enum wire_map)p->body, body);
	return r;
}

static int encode_part(const struct wire_msg *w, const struct parts *p, uint32_t part, size_t from, size_t n, bool more,
		       struct buf *out)
{
	const struct list_ops *l = &lists[p->list];
	const struct msg *m = w->m;
	Fluxkv__Wire__Frame f = FLUXKV__WIRE__FRAME__INIT;
	struct arena a;
	int r = 0;

	f.version = WIRE_VERSION;
	f.kind = w->kind;
	f.type = m->type;
	f.status = m->status;
	f.req_id = m->req_id;
	f.tomb_tag = m->tomb_tag;
	f.timeout_us = w->timeout_us;
	f.part = part;
	f.more = more;
	arena_init(&a, ARENA_MAX);
	if (!part)
		r = write_first(m, p, &a, &f);
	if (!r && n)
		r = l->write((const char *)*list_at(l, m) + from * l->size, n, &a, &f);
	if (!r)
		r = append_frame(&f, out);
	arena_fini(&a);
	return r;
}

int wire_encode(const struct wire_msg *w, struct buf *out)
{
	const struct parts *p = parts_of(w->kind, w->m->type, w->m->status);
	const struct list_ops *l = p ? &lists[p->list] : NULL;
	size_t begin = out->len, total, from = 0, n;
	uint32_t part = 0;
	int r;

	if (!p || !good_head(w->kind, w->m->req_id, w->timeout_us))
		return -EINVAL;
	total = p->list ? *list_n(l, w->m) : 0;
	if (total > l->max)
		return -E2BIG;
	do {
		n = total - from < l->per_frame ? total - from : l->per_frame;
		r = encode_part(w, p, part++, from, n, from + n < total, out);
		from += n;
	} while (!r && from < total);
	if (r < 0)
		out->len = begin;
	return r;
}

/* ---- decoding ------------------------------------------------------------------------------------------------ */

int wire_frame(const uint8_t *bytes, size_t len, size_t *ret)
{
	size_t n = 0;

	if (len < WIRE_LENGTH_BYTES)
		return -EAGAIN;
	for (unsigned k = 0; k < WIRE_LENGTH_BYTES; k++)
		n |= (size_t)bytes[k] << 8 * k;
	if (!n || n > WIRE_FRAME_MAX)
		return -EMSGSIZE;
	*ret = WIRE_LENGTH_BYTES + n;
	return 0;
}

void wire_reader_fini(struct wire_reader *r)
{
	msg_free(r->got.m);
	*r = (struct wire_reader){0};
}

/* A message's first frame: makes the message. */
static int begin(struct wire_reader *r, const Fluxkv__Wire__Frame *f, const struct parts *p)
{
	const ProtobufCMessage *body = NULL;
	struct msg *m;

	if (map_body(f, &body) != (enum wire_map)p->body || (f->blob.len && !p->blob) || f->blob.len > MSG_XATTRS_MAX)
		return -EBADMSG;
	m = r->got.m = msg_new((enum msg_type)f->type);
	if (!m)
		return -ENOMEM;
	r->got.kind = (enum wire_kind)f->kind;
	r->got.timeout_us = f->timeout_us;
	r->cap = 0;
	m->status = f->status;
	m->req_id = f->req_id;
	m->tomb_tag = f->tomb_tag;
	if (f->blob.len) {
		m->blob = malloc(f->blob.len);
		if (!m->blob)
			return -ENOMEM;
		memcpy(m->blob, f->blob.data, f->blob.len);
		m->blob_len = f->blob.len;
	}
	return p->body ? map_read((enum wire_map)p->body, body, m) : 0;
}

/* One of the others: it must go on with what has come, and bring something. */
static int check_next(const struct wire_reader *r, const Fluxkv__Wire__Frame *f, size_t n)
{
	const struct msg *m = r->got.m;

	if (f->kind != r->got.kind || f->type != m->type || f->req_id != m->req_id || f->status != m->status)
		return -EBADMSG;
	return n && !f->body_case && !f->blob.len ? 0 : -EBADMSG;
}

/* Room for n more elements, zeroed. */
static int list_room(struct wire_reader *r, const struct list_ops *l, size_t n)
{
	struct msg *m = r->got.m;
	size_t have = *list_n(l, m), cap = r->cap;
	char *more;

	/* What comes in one frame gets what it takes; what comes in many is not moved for each of them. */
	if (have + n > cap)
		cap = have + n > 2 * cap ? have + n : 2 * cap;
	if (cap != r->cap) {
		more = realloc(*list_at(l, m), cap * l->size);
		if (!more)
			return -ENOMEM;
		*list_at(l, m) = more;
		r->cap = cap;
	}
	memset((char *)*list_at(l, m) + have * l->size, 0, n * l->size);
	return 0;
}

static int add_list(struct wire_reader *r, const Fluxkv__Wire__Frame *f, const struct list_ops *l, size_t n)
{
	size_t *have = list_n(l, r->got.m);
	int err;

	if (n > l->per_frame || n > l->max - *have)
		return -EBADMSG;
	err = list_room(r, l, n);
	if (!err)
		err = l->read(f, (char *)*list_at(l, r->got.m) + *have * l->size);
	if (!err)
		*have += n;
	return err;
}

static int take_frame(struct wire_reader *r, const Fluxkv__Wire__Frame *f, struct wire_msg *ret)
{
	const struct parts *p;
	enum list list;
	size_t n;
	int err;

	if (f->version != WIRE_VERSION)
		return -EPROTO;
	p = parts_of(f->kind, f->type, f->status);
	if (!p || !good_head(f->kind, f->req_id, f->timeout_us) || f->part != r->part)
		return -EBADMSG;
	if (!frame_list(f, &list, &n) || (list && list != (enum list)p->list))
		return -EBADMSG;
	err = f->part ? check_next(r, f, n) : begin(r, f, p);
	if (!err && n)
		err = add_list(r, f, &lists[list], n);
	if (err < 0)
		return err;
	r->part++;
	if (f->more)
		return n ? 0 : -EBADMSG;
	*ret = r->got;
	*r = (struct wire_reader){0};
	return 1;
}

static void *unpack_alloc(void *arena, size_t n)
{
	return arena_alloc(arena, n);
}

/* It goes with the arena. */
static void unpack_free(void *arena, void *p)
{
}

int wire_decode(struct wire_reader *r, const uint8_t *frame, size_t len, struct wire_msg *ret)
{
	struct arena a;
	ProtobufCAllocator alloc = {.alloc = unpack_alloc, .free = unpack_free, .allocator_data = &a};
	const Fluxkv__Wire__Frame *f;
	int err;

	if (len > WIRE_FRAME_MAX)
		return -EBADMSG;
	arena_init(&a, ARENA_MAX);
	f = fluxkv__wire__frame__unpack(&alloc, len, frame);
	if (f)
		err = take_frame(r, f, ret);
	else
		err = a.no_memory ? -ENOMEM : -EBADMSG;
	arena_fini(&a);
	return err;
}
