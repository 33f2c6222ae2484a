/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs of net/msg.h and their counterparts in net/wire.proto, field by field, in tables: net/wire.c's alone.
 * What comes from the wire is checked here: bounds of names, ranges of enums and of flags. Pure.
 */
#ifndef NET_WIRE_MAP_H
#define NET_WIRE_MAP_H

#include "net/arena.h"
#include "net/msg.h"
#include "net/wire.pb-c.h"

enum wire_map {
	MAP_NONE,
	MAP_JOIN,
	MAP_HEARTBEAT,
	MAP_NAME,
	MAP_ENTRY,
	MAP_ATTR,
	MAP_READDIR,
	MAP_RENAME,
	MAP_STATFS,
	MAP_NS,
	MAP_PUT,
	MAP_GET,
	MAP_REVOKE,
	MAP_INVENTORY,
	MAP_BODIES, /* those before it are bodies: base is the struct msg. Of the others it is the struct itself */

	MAP_DIRENT = MAP_BODIES,
	MAP_NAMESPACE,
	MAP_ATTRIBUTES,
	MAPS
};

/* In the arena. 0, -EINVAL for what map_read() would refuse, -ENOMEM. */
int map_write(enum wire_map map, const void *base, struct arena *a, ProtobufCMessage **ret);
/* -EBADMSG: base has got some of it. */
int map_read(enum wire_map map, const ProtobufCMessage *wire, void *base);

/* The body of a frame, as the oneof has it. */
void map_set_body(Fluxkv__Wire__Frame *f, enum wire_map map, ProtobufCMessage *body);
enum wire_map map_body(const Fluxkv__Wire__Frame *f, const ProtobufCMessage **ret);

/* n items from m's at on. 0, -EINVAL, -ENOMEM. */
int map_write_items(const struct msg_item *items, size_t n, struct arena *a, Fluxkv__Wire__Items **ret);
/* wire->count items. -EBADMSG. */
int map_read_items(const Fluxkv__Wire__Items *wire, struct msg_item *items);

#endif
