/* SPDX-License-Identifier: Apache-2.0 */
#include "net/wire_map.h"

#include <errno.h>
#include <string.h>

enum field_kind {
	FIELD_U64, /* also signed ones: both sides have the same */
	FIELD_U32,
	FIELD_BOOL,
	FIELD_NAME, /* an array of char, NUL at its end */
	FIELD_MAC,  /* an array of bytes: all of them, or none for zeros */
	FIELD_ATTR, /* a struct msg_attr */
};

struct field {
	uint8_t kind;
	uint16_t wire_at, at; /* where it is, there and here */
	uint32_t limit;	      /* FIELD_U32: the highest value, 0 for any; FIELD_NAME, FIELD_MAC: the array's size */
};

#define KIND(x)                                                                                                        \
	_Generic((x),                                                                                                  \
	    uint64_t: FIELD_U64,                                                                                       \
	    int64_t: FIELD_U64,                                                                                        \
	    uint32_t: FIELD_U32,                                                                                       \
	    bool: FIELD_BOOL,                                                                                          \
	    char *: FIELD_NAME,                                                                                        \
	    uint8_t *: FIELD_MAC,                                                                                      \
	    struct msg_attr: FIELD_ATTR)

/* Fields have the same name on both sides. S, path: of what struct, and in which part of it. */
#define FIELD(W, S, path, f, max)                                                                                      \
	{                                                                                                              \
		KIND(((S *)0)->path f), offsetof(Fluxkv__Wire__##W, f), offsetof(S, path f), max                       \
	}
#define BODY(W, part, f) FIELD(W, struct msg, u.part., f, 0)
#define BODY_ENUM(W, part, f, max) FIELD(W, struct msg, u.part., f, max)
#define BODY_NAME(W, part, f) FIELD(W, struct msg, u.part., f, sizeof(((struct msg *)0)->u.part.f))
#define OWN(W, S, f) FIELD(W, S, , f, 0)
#define OWN_ENUM(W, S, f, max) FIELD(W, S, , f, max)
#define OWN_NAME(W, S, f) FIELD(W, S, , f, sizeof(((S *)0)->f))

static const struct field attr_fields[] = {
    OWN(Attr, struct msg_attr, id),
    OWN(Attr, struct msg_attr, size),
    OWN(Attr, struct msg_attr, storage_id),
    OWN(Attr, struct msg_attr, mtime_ns),
    OWN(Attr, struct msg_attr, ctime_ns),
    OWN(Attr, struct msg_attr, atime_ns),
    OWN(Attr, struct msg_attr, expires_ns),
    OWN_ENUM(Attr, struct msg_attr, kind, MSG_KIND_FILE),
    OWN(Attr, struct msg_attr, mode),
    OWN(Attr, struct msg_attr, uid),
    OWN(Attr, struct msg_attr, gid),
    OWN(Attr, struct msg_attr, nlink),
    OWN_ENUM(Attr, struct msg_attr, flags, MSG_ATTR_PIN),
    OWN(Attr, struct msg_attr, ns),
    OWN(Attr, struct msg_attr, has_xattrs),
    OWN(Attr, struct msg_attr, block_size),
};

static const struct field join_fields[] = {
    BODY(Join, join, capacity),	      BODY(Join, join, ssd_capacity),	   BODY(Join, join, tomb_tag),
    BODY(Join, join, kv_ssd_storage), BODY_NAME(Join, join, instance_key), BODY_NAME(Join, join, address),
};

static const struct field heartbeat_fields[] = {
    BODY(Heartbeat, heartbeat, capacity),     BODY(Heartbeat, heartbeat, zombie),
    BODY(Heartbeat, heartbeat, ssd_capacity), BODY(Heartbeat, heartbeat, ssd_used),
    BODY(Heartbeat, heartbeat, master_ns),    BODY(Heartbeat, heartbeat, lease_ns),
};

static const struct field inventory_fields[] = {
    BODY(Inventory, inventory, page),
    BODY(Inventory, inventory, end),
};

static const struct field name_fields[] = {
    BODY(Name, name, dir),
    BODY(Name, name, attr),
    BODY_NAME(Name, name, name),
};

static const struct field set_attr_fields[] = {
    BODY(SetAttr, attr, a),
    BODY_ENUM(SetAttr, attr, mask, 2 * MSG_SET_TTL - 1),
};

static const struct field entry_fields[] = {
    BODY(Entry, entry, a),
    BODY(Entry, entry, lease),
    BODY(Entry, entry, replaced_id),
    BODY_ENUM(Entry, entry, miss, MSG_MISS_LOST),
};

static const struct field readdir_fields[] = {
    BODY(ReadDir, readdir, dir), BODY(ReadDir, readdir, cookie), BODY(ReadDir, readdir, next_cookie),
    BODY(ReadDir, readdir, max), BODY(ReadDir, readdir, end),
};

static const struct field rename_fields[] = {
    BODY(Rename, rename, from_dir), BODY(Rename, rename, to_dir),    BODY(Rename, rename, replaced_id),
    BODY(Rename, rename, lease),    BODY(Rename, rename, noreplace), BODY_NAME(Rename, rename, from),
    BODY_NAME(Rename, rename, to),
};

static const struct field statfs_fields[] = {
    BODY(StatFs, statfs, dir),
    BODY(StatFs, statfs, total_bytes),
    BODY(StatFs, statfs, used_bytes),
    BODY(StatFs, statfs, objects),
};

static const struct field namespace_fields[] = {
    OWN_NAME(Namespace, struct msg_namespace, name),
    OWN_ENUM(Namespace, struct msg_namespace, mask, 2 * MSG_NS_PERSIST - 1),
    OWN(Namespace, struct msg_namespace, kind),
    OWN(Namespace, struct msg_namespace, block_size),
    OWN(Namespace, struct msg_namespace, ttl_seconds),
    OWN(Namespace, struct msg_namespace, persist),
    OWN(Namespace, struct msg_namespace, mode),
    OWN(Namespace, struct msg_namespace, uid),
    OWN(Namespace, struct msg_namespace, gid),
    OWN(Namespace, struct msg_namespace, root_dir),
    OWN(Namespace, struct msg_namespace, objects),
    OWN(Namespace, struct msg_namespace, bytes),
};

static const struct field put_fields[] = {
    BODY(Put, put, ticket),	    BODY(Put, put, dir),	BODY(Put, put, bytes),
    BODY(Put, put, replaces),	    BODY(Put, put, block_size), BODY(Put, put, total),
    BODY(Put, put, free),	    BODY(Put, put, attr),	BODY_ENUM(Put, put, flags, 2 * MSG_PUT_NOREPLACE - 1),
    BODY(Put, put, persist_to_ssd), BODY_NAME(Put, put, name),
};

static const struct field get_fields[] = {
    BODY(Get, get, put_id),	 BODY(Get, get, block),
    BODY(Get, get, source_node), BODY_ENUM(Get, get, source, MSG_SOURCE_SSD_REMOTE),
    BODY(Get, get, get_id),	 BODY(Get, get, alloc),
    BODY(Get, get, bytes),	 BODY(Get, get, total),
    BODY(Get, get, free),	 BODY(Get, get, drop_ssd_source),
    BODY(Get, get, promoted),	 BODY(Get, get, source_alloc),
    BODY(Get, get, source_tag),	 BODY(Get, get, expires_ns),
    BODY_NAME(Get, get, mac),	 BODY_NAME(Get, get, source_address),
    BODY(Get, get, len),
};

static const struct field revoke_fields[] = {
    BODY(Revoke, revoke, dir), BODY(Revoke, revoke, seq),
    BODY(Revoke, revoke, id),  BODY_ENUM(Revoke, revoke, reason, MSG_REVOKE_LOST),
    BODY(Revoke, revoke, ack), BODY_NAME(Revoke, revoke, name),
};

static const struct field dirent_fields[] = {
    OWN(Dirent, struct msg_dirent, cookie),
    OWN(Dirent, struct msg_dirent, attr),
    OWN_NAME(Dirent, struct msg_dirent, name),
};

struct map {
	const ProtobufCMessageDescriptor *wire;
	const struct field *fields;
	uint16_t n;
	uint16_t base_at; /* bodies: where in the struct msg their fields' offsets begin */
	Fluxkv__Wire__Frame__BodyCase body;
};

#define MAP(w, f, ...)                                                                                                 \
	{                                                                                                              \
		.wire = &fluxkv__wire__##w##__descriptor, .fields = f, .n = sizeof(f) / sizeof(f[0]), __VA_ARGS__      \
	}

static const struct map maps[MAPS] = {
    [MAP_JOIN] = MAP(join, join_fields, .body = FLUXKV__WIRE__FRAME__BODY_JOIN),
    [MAP_HEARTBEAT] = MAP(heartbeat, heartbeat_fields, .body = FLUXKV__WIRE__FRAME__BODY_HEARTBEAT),
    [MAP_NAME] = MAP(name, name_fields, .body = FLUXKV__WIRE__FRAME__BODY_NAME),
    [MAP_ENTRY] = MAP(entry, entry_fields, .body = FLUXKV__WIRE__FRAME__BODY_ENTRY),
    [MAP_ATTR] = MAP(set_attr, set_attr_fields, .body = FLUXKV__WIRE__FRAME__BODY_ATTR),
    [MAP_READDIR] = MAP(read_dir, readdir_fields, .body = FLUXKV__WIRE__FRAME__BODY_READDIR),
    [MAP_RENAME] = MAP(rename, rename_fields, .body = FLUXKV__WIRE__FRAME__BODY_RENAME),
    [MAP_STATFS] = MAP(stat_fs, statfs_fields, .body = FLUXKV__WIRE__FRAME__BODY_STATFS),
    [MAP_NS] =
	MAP(namespace, namespace_fields, .body = FLUXKV__WIRE__FRAME__BODY_NS, .base_at = offsetof(struct msg, u.ns)),
    [MAP_PUT] = MAP(put, put_fields, .body = FLUXKV__WIRE__FRAME__BODY_PUT),
    [MAP_GET] = MAP(get, get_fields, .body = FLUXKV__WIRE__FRAME__BODY_GET),
    [MAP_REVOKE] = MAP(revoke, revoke_fields, .body = FLUXKV__WIRE__FRAME__BODY_REVOKE),
    [MAP_INVENTORY] = MAP(inventory, inventory_fields, .body = FLUXKV__WIRE__FRAME__BODY_INVENTORY),
    [MAP_DIRENT] = MAP(dirent, dirent_fields),
    [MAP_NAMESPACE] = MAP(namespace, namespace_fields),
    [MAP_ATTRIBUTES] = MAP(attr, attr_fields),
};

/* ---- one field --------------------------------------------------------------------------------------------- */

static int write_name(const char *name, size_t size, ProtobufCBinaryData *to)
{
	size_t len = strnlen(name, size);

	if (len == size)
		return -EINVAL;
	/* Packing does not write to it. */
	*to = (ProtobufCBinaryData){.len = len, .data = (uint8_t *)name};
	return 0;
}

static int read_name(const ProtobufCBinaryData *from, char *name, size_t size)
{
	if (from->len >= size || (from->len && memchr(from->data, 0, from->len)))
		return -EBADMSG;
	if (from->len)
		memcpy(name, from->data, from->len);
	name[from->len] = '\0';
	return 0;
}

static int write_mac(const uint8_t *mac, size_t size, ProtobufCBinaryData *to)
{
	bool any = false;

	for (size_t k = 0; k < size && !any; k++)
		any = mac[k] != 0;
	/* Packing does not write to it. */
	*to = (ProtobufCBinaryData){.len = any ? size : 0, .data = (uint8_t *)mac};
	return 0;
}

static int read_mac(const ProtobufCBinaryData *from, uint8_t *mac, size_t size)
{
	if (from->len && from->len != size)
		return -EBADMSG;
	if (from->len)
		memcpy(mac, from->data, size);
	return 0;
}

static bool in_range(const struct field *f, uint32_t v)
{
	return !f->limit || v <= f->limit;
}

static int write_field(const struct field *f, const void *from, void *to, struct arena *a)
{
	switch (f->kind) {
	case FIELD_U64:
		memcpy(to, from, sizeof(uint64_t));
		return 0;
	case FIELD_U32:
		memcpy(to, from, sizeof(uint32_t));
		return in_range(f, *(const uint32_t *)from) ? 0 : -EINVAL;
	case FIELD_BOOL:
		*(protobuf_c_boolean *)to = *(const bool *)from;
		return 0;
	case FIELD_NAME:
		return write_name(from, f->limit, to);
	case FIELD_MAC:
		return write_mac(from, f->limit, to);
	default:
		return map_write(MAP_ATTRIBUTES, from, a, to);
	}
}

static int read_field(const struct field *f, const void *from, void *to)
{
	const ProtobufCMessage *attr;

	switch (f->kind) {
	case FIELD_U64:
		memcpy(to, from, sizeof(uint64_t));
		return 0;
	case FIELD_U32:
		memcpy(to, from, sizeof(uint32_t));
		return in_range(f, *(const uint32_t *)from) ? 0 : -EBADMSG;
	case FIELD_BOOL:
		*(bool *)to = *(const protobuf_c_boolean *)from;
		return 0;
	case FIELD_NAME:
		return read_name(from, to, f->limit);
	case FIELD_MAC:
		return read_mac(from, to, f->limit);
	default:
		attr = *(const ProtobufCMessage *const *)from;
		return attr ? map_read(MAP_ATTRIBUTES, attr, to) : 0;
	}
}

/* ---- one struct -------------------------------------------------------------------------------------------- */

int map_write(enum wire_map map, const void *base, struct arena *a, ProtobufCMessage **ret)
{
	const struct map *m = &maps[map];
	ProtobufCMessage *wire = arena_alloc(a, m->wire->sizeof_message);
	int r = 0;

	if (!wire)
		return -ENOMEM;
	protobuf_c_message_init(m->wire, wire);
	for (const struct field *f = m->fields; f < m->fields + m->n && !r; f++)
		r = write_field(f, (const char *)base + m->base_at + f->at, (char *)wire + f->wire_at, a);
	if (r < 0)
		return r;
	*ret = wire;
	return 0;
}

int map_read(enum wire_map map, const ProtobufCMessage *wire, void *base)
{
	const struct map *m = &maps[map];
	int r = 0;

	for (const struct field *f = m->fields; f < m->fields + m->n && !r; f++)
		r = read_field(f, (const char *)wire + f->wire_at, (char *)base + m->base_at + f->at);
	return r;
}

void map_set_body(Fluxkv__Wire__Frame *f, enum wire_map map, ProtobufCMessage *body)
{
	f->body_case = maps[map].body;
	f->join = (Fluxkv__Wire__Join *)body; /* the oneof is a union of pointers */
}

enum wire_map map_body(const Fluxkv__Wire__Frame *f, const ProtobufCMessage **ret)
{
	if (f->body_case == FLUXKV__WIRE__FRAME__BODY__NOT_SET)
		return MAP_NONE;
	*ret = (const ProtobufCMessage *)f->join;
	for (enum wire_map map = MAP_NONE + 1; map < MAP_BODIES; map++)
		if (maps[map].body == f->body_case)
			return map;
	return MAPS; /* no type has such a body */
}

/* ---- items ------------------------------------------------------------------------------------------------- */

struct column {
	uint16_t n_at, wire_at; /* the list's length and the list */
	uint16_t at;
	uint8_t size;
};

#define COLUMN(f)                                                                                                      \
	{                                                                                                              \
		offsetof(Fluxkv__Wire__Items, n_##f), offsetof(Fluxkv__Wire__Items, f), offsetof(struct msg_item, f),  \
		    sizeof(((struct msg_item *)0)->f)                                                                  \
	}

static const struct column columns[] = {
    COLUMN(put_id), COLUMN(alloc), COLUMN(bytes), COLUMN(block), COLUMN(flags), COLUMN(status),
};

#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))
#define ITEM_FLAGS (2 * MSG_ITEM_LOOSE - 1)

static bool good_item(const struct msg_item *it)
{
	return it->flags <= ITEM_FLAGS && it->status <= 0 && it->status >= -4095;
}

static bool is_zero(const void *p, size_t size)
{
	static const uint64_t zero;

	return !memcmp(p, &zero, size);
}

static int write_column(const struct column *c, const struct msg_item *items, size_t n, struct arena *a, void *wire)
{
	bool any = false;
	char *list;

	for (size_t k = 0; k < n && !any; k++)
		any = !is_zero((const char *)&items[k] + c->at, c->size);
	if (!any)
		return 0;
	list = arena_alloc(a, n * c->size);
	if (!list)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++)
		memcpy(list + k * c->size, (const char *)&items[k] + c->at, c->size);
	*(size_t *)((char *)wire + c->n_at) = n;
	*(void **)((char *)wire + c->wire_at) = list;
	return 0;
}

int map_write_items(const struct msg_item *items, size_t n, struct arena *a, Fluxkv__Wire__Items **ret)
{
	Fluxkv__Wire__Items *wire = arena_alloc(a, sizeof(*wire));
	int r = wire ? 0 : -ENOMEM;

	for (size_t k = 0; k < n && !r; k++)
		r = good_item(&items[k]) ? 0 : -EINVAL;
	if (r < 0)
		return r;
	fluxkv__wire__items__init(wire);
	wire->count = (uint32_t)n;
	for (size_t k = 0; k < N_COLUMNS && !r; k++)
		r = write_column(&columns[k], items, n, a, wire);
	if (r < 0)
		return r;
	*ret = wire;
	return 0;
}

static int read_column(const struct column *c, const Fluxkv__Wire__Items *wire, struct msg_item *items)
{
	size_t n = *(const size_t *)((const char *)wire + c->n_at);
	const char *list = *(const char *const *)((const char *)wire + c->wire_at);

	if (n && n != wire->count)
		return -EBADMSG;
	for (size_t k = 0; k < n; k++)
		memcpy((char *)&items[k] + c->at, list + k * c->size, c->size);
	return 0;
}

int map_read_items(const Fluxkv__Wire__Items *wire, struct msg_item *items)
{
	int r = 0;

	for (size_t k = 0; k < N_COLUMNS && !r; k++)
		r = read_column(&columns[k], wire, items);
	for (size_t k = 0; k < wire->count && !r; k++)
		r = good_item(&items[k]) ? 0 : -EBADMSG;
	return r;
}
