/* SPDX-License-Identifier: Apache-2.0 */
#include "net/msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct msg *msg_new(enum msg_type type)
{
	struct msg *m = calloc(1, sizeof(*m));

	if (m)
		m->type = type;
	return m;
}

struct msg *msg_free(struct msg *m)
{
	if (!m)
		return NULL;
	free(m->items);
	free(m->ents);
	free(m->namespaces);
	free(m->blob);
	free(m);
	return NULL;
}

int msg_alloc_items(struct msg *m, size_t n)
{
	struct msg_item *items;

	if (n > MSG_MAX_ITEMS)
		return -E2BIG;
	items = calloc(n ? n : 1, sizeof(*items));
	if (!items)
		return -ENOMEM;
	free(m->items);
	m->items = items;
	m->n_items = n;
	return 0;
}

struct msg *msg_copy(const struct msg *m)
{
	struct msg *copy = msg_new(m->type);

	if (!copy)
		return NULL;
	*copy = *m;
	copy->items = NULL;
	copy->ents = NULL;
	copy->namespaces = NULL;
	copy->blob = NULL;
	copy->n_items = copy->n_ents = copy->n_namespaces = copy->blob_len = 0;
	if (m->n_items && msg_alloc_items(copy, m->n_items) < 0)
		return msg_free(copy);
	if (m->n_items)
		memcpy(copy->items, m->items, m->n_items * sizeof(*m->items));
	if (m->blob_len) {
		copy->blob = malloc(m->blob_len);
		if (!copy->blob)
			return msg_free(copy);
		memcpy(copy->blob, m->blob, m->blob_len);
		copy->blob_len = m->blob_len;
	}
	return copy;
}

int msg_set_name(char dst[MSG_NAME_MAX + 1], const char *name)
{
	size_t len = strlen(name);

	if (len > MSG_NAME_MAX)
		return -ENAMETOOLONG;
	if (!len || memchr(name, '/', len))
		return -EINVAL;
	memcpy(dst, name, len + 1);
	return 0;
}

const char *msg_type_name(enum msg_type type)
{
	static const char *const names[MSG_TYPES] = {
	    [MSG_NONE] = "none",
	    [MSG_JOIN] = "Join",
	    [MSG_HEARTBEAT] = "Heartbeat",
	    [MSG_LEAVE] = "Leave",
	    [MSG_INVENTORY] = "Inventory",
	    [MSG_PUT_RESUME] = "PutResume",
	    [MSG_LOOKUP] = "Lookup",
	    [MSG_GETATTR] = "GetAttr",
	    [MSG_SETATTR] = "SetAttr",
	    [MSG_READDIR] = "ReadDir",
	    [MSG_MKDIR] = "MkDir",
	    [MSG_RMDIR] = "RmDir",
	    [MSG_RENAME] = "Rename",
	    [MSG_DELETE] = "Delete",
	    [MSG_GETXATTRS] = "GetXattrs",
	    [MSG_SETXATTRS] = "SetXattrs",
	    [MSG_STATFS] = "StatFs",
	    [MSG_NS_CREATE] = "NamespaceCreate",
	    [MSG_NS_SET] = "NamespaceSet",
	    [MSG_NS_LIST] = "NamespaceList",
	    [MSG_NS_REMOVE] = "NamespaceRemove",
	    [MSG_PUT_START] = "PutStart",
	    [MSG_PUT_EXTEND] = "PutExtend",
	    [MSG_PUT_RESERVE] = "PutReserve",
	    [MSG_PUT_DONE] = "PutDone",
	    [MSG_PUT_REVOKE] = "PutRevoke",
	    [MSG_PUT_RENEW] = "PutRenew",
	    [MSG_GET_START] = "GetStart",
	    [MSG_GET_DONE] = "GetDone",
	    [MSG_GET_REVOKE] = "GetRevoke",
	    [MSG_SSD_COMMIT] = "SsdReplicaCommit",
	    [MSG_SSD_EVICT] = "BatchSsdReplicaEvict",
	    [MSG_MEM_EVICT] = "MemReplicaEvict",
	    [MSG_DELETE_ACK] = "BatchDeleteAck",
	    [MSG_ALLOC_FREED] = "AllocFreed",
	    [MSG_HOLD] = "Hold",
	    [MSG_RELEASE] = "Release",
	    [MSG_REVOKE_ACK] = "NameRevokeAck",
	    [MSG_NAME_REVOKE] = "NameRevoke",
	    [MSG_SSD_PERSIST] = "SsdReplicaPersist",
	    [MSG_DROP] = "Drop",
	};

	return (unsigned)type < MSG_TYPES && names[type] ? names[type] : "unknown";
}

bool msg_only_reads(enum msg_type type)
{
	switch (type) {
	case MSG_LOOKUP:
	case MSG_GETATTR:
	case MSG_READDIR:
	case MSG_GETXATTRS:
	case MSG_STATFS:
	case MSG_NS_LIST:
	case MSG_HEARTBEAT:
		return true;
	default:
		return false;
	}
}

bool msg_gives_back(enum msg_type type)
{
	switch (type) {
	case MSG_PUT_REVOKE:
	case MSG_PUT_RENEW:
	case MSG_GET_REVOKE:
	case MSG_DELETE_ACK:
	case MSG_ALLOC_FREED:
	case MSG_RELEASE:
	case MSG_REVOKE_ACK:
		return true;
	default:
		return false;
	}
}

bool msg_goes_first(enum msg_type type)
{
	switch (type) {
	case MSG_JOIN:
	case MSG_HEARTBEAT:
	case MSG_INVENTORY:
	case MSG_PUT_RESUME:
	case MSG_REVOKE_ACK:
	case MSG_HOLD: /* so that no release overtakes it */
	case MSG_RELEASE:
		return true;
	default:
		return false;
	}
}
