/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ctl_ops.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/size.h"
#include "net/ctl.h"
#include "net/json.h"

#define LS_PAGE 512u
#define TTL_MAX 4000000000ull

/* What a path leads to. */
struct target {
	char path[PATH_MAX];
	uint64_t dir;		     /* its parent */
	char name[MSG_NAME_MAX + 1]; /* its last name; "" for the root */
	struct msg_attr attr;
	struct put *put; /* a reference, for a private version */
};

typedef json_t *(*op_fn)(const struct ctl_request *r);

json_t *ctl_error(int err, const char *line)
{
	return json_pack("{s:b,s:i,s:s}", "ok", 0, "errno", -err, "error", line);
}

static json_t *ok(void)
{
	return json_pack("{s:b}", "ok", 1);
}

/* An error about a name, which may have any bytes. */
static json_t *name_error(int err, const char *name, const char *what)
{
	json_t *safe = ctl_name_to_json(*name ? name : "/");
	char line[PATH_MAX * 3 + 512];

	snprintf(line, sizeof(line), "%s: %s", safe ? json_string_value(safe) : "?", what);
	json_decref(safe);
	return ctl_error(err, line);
}

static const char *common_error(int err)
{
	switch (-err) {
	case ENOENT:
		return "no such object or directory (never stored, removed, expired or evicted)";
	case EISDIR:
		return "is a directory; say --recursive for all that is below it";
	case ENOTDIR:
		return "is not a directory, or one of the names before it is not";
	case ENOTEMPTY:
		return "is not empty; say --recursive to remove all that is below it";
	case ESHUTDOWN:
		return "fluxkvd is stopping";
	case ETIMEDOUT:
		return "no answer in time; see fluxkv status and the daemon's log";
	default:
		return strerror(-err);
	}
}

static json_t *target_error(int err, const struct target *t)
{
	return name_error(err, t->path, common_error(err));
}

static void target_end(struct target *t)
{
	if (t->put)
		put_unref(t->put);
	t->put = NULL;
}

/* One step down from t. */
static int target_step(const struct ctl_request *r, struct target *t, const char *name, size_t len)
{
	if (len > MSG_NAME_MAX)
		return -ENAMETOOLONG;
	if (!S_ISDIR(t->attr.mode))
		return -ENOTDIR;
	target_end(t);
	t->dir = t->attr.id;
	memcpy(t->name, name, len);
	t->name[len] = '\0';
	return calls_lookup(r->calls, t->dir, t->name, &t->attr, &t->put);
}

/* On success the target is the caller's to end. */
static int target_find(const struct ctl_request *r, struct target *t)
{
	const char *p = t->path;
	int err;

	t->attr = (struct msg_attr){.id = MSG_ROOT_DIR, .kind = MSG_KIND_DIR, .mode = S_IFDIR};
	while (*p) {
		size_t len = strcspn(p, "/");

		if (len) {
			err = target_step(r, t, p, len);
			if (err)
				return err;
		}
		p += len;
		p += *p == '/';
	}
	return t->name[0] ? 0 : calls_getattr(r->calls, MSG_ROOT_DIR, &t->attr);
}

/* The target of the request's path, or the answer that says why not. */
static json_t *target_open(const struct ctl_request *r, struct target *t)
{
	const char *path = json_string_value(json_object_get(r->body, "path"));
	int err;

	*t = (struct target){0};
	if (!path)
		return ctl_error(-EINVAL, "the request has no path");
	err = ctl_name_from_json(path, t->path, sizeof(t->path));
	if (err)
		return ctl_error(err, err == -EINVAL ? "the path is malformed" : "the path is too long");
	err = target_find(r, t);
	if (!err)
		return NULL;
	target_end(t);
	return target_error(err, t);
}

/* The same for what only objects have. */
static json_t *target_open_object(const struct ctl_request *r, struct target *t)
{
	json_t *error = target_open(r, t);

	if (error || !S_ISDIR(t->attr.mode))
		return error;
	return target_error(-EISDIR, t);
}

/* ---- looking ------------------------------------------------------------------------------------------------ */

static json_t *op_hello(const struct ctl_request *r)
{
	return r->cfg->hello(r->cfg->arg);
}

static json_t *op_status(const struct ctl_request *r)
{
	return r->cfg->status(r->cfg->arg);
}

static bool is_private(const struct msg_attr *a)
{
	return a->id & NODE_PRIVATE_ID;
}

static void add_replicas(const struct ctl_request *r, json_t *j, const struct msg_attr *a)
{
	struct node_replicas rep;
	char sum[17];

	if (is_private(a) || node_replicas(calls_node(r->calls), a, &rep))
		return;
	json_object_set_new(j, "blocks", json_integer((json_int_t)rep.blocks));
	json_object_set_new(j, "in_dram", json_integer((json_int_t)rep.in_dram));
	json_object_set_new(j, "in_ssd", json_integer((json_int_t)rep.in_ssd));
	if (!rep.has_checksum)
		return;
	snprintf(sum, sizeof(sum), "%016" PRIx64, rep.checksum);
	json_object_set_new(j, "checksum", json_string(sum));
}

/* Adds what is known of a file or directory to j, and returns it. */
static json_t *add_attr(const struct ctl_request *r, json_t *j, const struct msg_attr *a)
{
	bool dir = S_ISDIR(a->mode) || a->kind == MSG_KIND_DIR;
	json_t *more = json_pack("{s:s,s:I,s:I,s:i,s:I,s:I,s:I}", "kind", dir ? "dir" : "file", "id",
				 (json_int_t)(a->id & ~NODE_PRIVATE_ID), "size", (json_int_t)a->size, "mode",
				 (int)(a->mode & 07777), "uid", (json_int_t)a->uid, "gid", (json_int_t)a->gid,
				 "mtime_ns", (json_int_t)a->mtime_ns);

	json_object_update_new(j, more);
	if (dir)
		return j;
	json_object_set_new(j, "expires_ns", json_integer((json_int_t)a->expires_ns));
	json_object_set_new(j, "pin", json_boolean(a->flags & MSG_ATTR_PIN));
	json_object_set_new(j, "private", json_boolean(is_private(a)));
	add_replicas(r, j, a);
	return j;
}

static json_t *op_stat(const struct ctl_request *r)
{
	struct target t;
	json_t *answer = target_open(r, &t);

	if (answer)
		return answer;
	answer = json_pack("{s:b,s:o}", "ok", 1, "path", ctl_name_to_json(t.path));
	answer = add_attr(r, answer, &t.attr);
	target_end(&t);
	return answer;
}

static json_t *ls_page(const struct ctl_request *r, const struct msg_dirent *ents, size_t n, bool more)
{
	json_t *entries = json_array();

	for (size_t i = 0; i < n; i++) {
		json_t *entry = json_pack("{s:o}", "name", ctl_name_to_json(ents[i].name));

		json_array_append_new(entries, add_attr(r, entry, &ents[i].attr));
	}
	return json_pack("{s:b,s:b,s:o}", "ok", 1, "more", (int)more, "entries", entries);
}

/* Sends all pages but the last, which is the answer. */
static json_t *ls_pages(const struct ctl_request *r, const struct target *t, struct node_dir **d)
{
	uint64_t cookie = 0;
	bool end = false;

	for (;;) {
		struct msg_dirent *ents;
		json_t *page;
		size_t n;
		int err;

		err = calls_dir_read(r->calls, d, cookie, LS_PAGE, &ents, &n, &end);
		if (err)
			return target_error(err, t);
		/* No entry and no end would go on for ever. */
		end |= !n;
		cookie = n ? ents[n - 1].cookie : cookie;
		page = ls_page(r, ents, n, !end);
		free(ents);
		if (end || !page)
			return page;
		if (r->stream(r->stream_arg, page))
			return NULL;
	}
}

static json_t *op_ls(const struct ctl_request *r)
{
	struct node_dir *d;
	struct target t;
	json_t *answer = target_open(r, &t);
	int err;

	if (answer)
		return answer;
	if (!S_ISDIR(t.attr.mode)) {
		/* As ls(1): a file lists itself. */
		struct msg_dirent self = {.attr = t.attr};

		memcpy(self.name, t.name, sizeof(self.name));
		answer = ls_page(r, &self, 1, false);
		target_end(&t);
		return answer;
	}
	err = node_dir_open(calls_node(r->calls), t.attr.id, &d);
	if (err)
		return target_error(err, &t);
	answer = ls_pages(r, &t, &d);
	if (d)
		node_dir_close(d);
	return answer;
}

/* ---- changing ----------------------------------------------------------------------------------------------- */

static void name_changed(const struct ctl_request *r, const struct target *t, uint64_t removed)
{
	r->cfg->name_changed(r->cfg->arg, t->dir, t->name, removed);
}

static json_t *op_rm(const struct ctl_request *r)
{
	struct target t;
	json_t *answer = target_open(r, &t);
	int err;

	if (answer)
		return answer;
	err = S_ISDIR(t.attr.mode) ? -EISDIR : calls_unlink(r->calls, t.dir, t.name);
	if (!err)
		name_changed(r, &t, t.attr.id);
	target_end(&t);
	return err ? target_error(err, &t) : ok();
}

static json_t *op_rmdir(const struct ctl_request *r)
{
	struct target t;
	json_t *answer = target_open(r, &t);
	int err;

	if (answer)
		return answer;
	if (!t.name[0])
		return name_error(-EBUSY, t.path, "the root stays");
	err = S_ISDIR(t.attr.mode) ? calls_rmdir(r->calls, t.dir, t.name) : -ENOTDIR;
	if (!err)
		name_changed(r, &t, 0);
	target_end(&t);
	return err ? target_error(err, &t) : ok();
}

static json_t *evict_error(int err, const struct target *t, bool force)
{
	switch (-err) {
	case ENODATA:
		return name_error(err, t->path, "has no copy on that tier");
	case EBUSY:
		return name_error(
		    err, t->path,
		    force ? "in use, or pinned: somebody has it open, or it is being copied between the tiers, or "
			    "fluxkv unpin must let it go first"
			  : "its last copy, or in use; --force drops the last copy of an object that nobody uses");
	default:
		return target_error(err, t);
	}
}

static json_t *op_evict(const struct ctl_request *r)
{
	const char *tier = json_str(r->body, "tier");
	bool force = json_is_true(json_object_get(r->body, "force"));
	struct target t;
	json_t *answer;
	int err;

	if (strcmp(tier, "dram") && strcmp(tier, "ssd"))
		return ctl_error(-EINVAL, "the tier is neither dram nor ssd");
	answer = target_open_object(r, &t);
	if (answer)
		return answer;
	err = is_private(&t.attr)
		  ? -EBUSY
		  : calls_evict(r->calls, &t.attr, strcmp(tier, "ssd") ? NODE_TIER_DRAM : NODE_TIER_SSD, force);
	if (err == -ENODATA && json_is_true(json_object_get(r->body, "absent_ok")))
		err = 0;
	/* It may have been the last copy; if so, the node says that it is no more. */
	if (!err && force)
		name_changed(r, &t, 0);
	target_end(&t);
	return err ? evict_error(err, &t, force || is_private(&t.attr)) : ok();
}

static json_t *op_prefetch(const struct ctl_request *r)
{
	struct target t;
	json_t *answer = target_open_object(r, &t);
	int err;

	if (answer)
		return answer;
	/* What is being written is in memory. */
	err = is_private(&t.attr) ? 0 : calls_prefetch(r->calls, &t.attr);
	target_end(&t);
	if (err == -ENOSPC)
		return name_error(
		    err, t.path,
		    "no room in DRAM: all of it is in use, pinned or not yet on the SSD; see fluxkv status");
	return err ? target_error(err, &t) : ok();
}

/* Sets what mask names in the target's attributes, which the caller has changed. */
static json_t *target_set(const struct ctl_request *r, struct target *t, uint32_t mask)
{
	int err = calls_setattr(r->calls, t->put, &t->attr, mask);

	target_end(t);
	return err ? target_error(err, t) : ok();
}

static json_t *op_pin(const struct ctl_request *r)
{
	const json_t *pin = json_object_get(r->body, "pin");
	struct target t;
	json_t *answer;

	if (!json_is_boolean(pin))
		return ctl_error(-EINVAL, "pin is neither true nor false");
	answer = target_open_object(r, &t);
	if (answer)
		return answer;
	t.attr.flags = json_is_true(pin) ? t.attr.flags | MSG_ATTR_PIN : t.attr.flags & ~MSG_ATTR_PIN;
	return target_set(r, &t, MSG_SET_PIN);
}

static json_t *op_ttl(const struct ctl_request *r)
{
	const json_t *seconds = json_object_get(r->body, "seconds");
	json_int_t n = json_integer_value(seconds);
	struct target t;
	json_t *answer;

	if (!json_is_integer(seconds) || n < 0 || (uint64_t)n > TTL_MAX)
		return ctl_error(-EINVAL, "seconds is not a number from 0 to 4000000000");
	answer = target_open_object(r, &t);
	if (answer)
		return answer;
	t.attr.expires_ns = n ? clock_real_ns() + n * (int64_t)NS_PER_SEC : 0;
	return target_set(r, &t, MSG_SET_TTL);
}

/* ---- namespaces --------------------------------------------------------------------------------------------- */

static json_t *ns_numbers(const json_t *body, struct msg_namespace *ns)
{
	const json_t *block = json_object_get(body, "block_size"), *ttl = json_object_get(body, "ttl_seconds");
	json_int_t b = json_integer_value(block), s = json_integer_value(ttl);

	if (block) {
		if (b < 4096 || (b & (b - 1)))
			return ctl_error(-EINVAL, "block_size is not a power of two from 4096 on");
		ns->block_size = (uint64_t)b;
		ns->mask |= MSG_NS_BLOCK_SIZE;
	}
	if (ttl) {
		if (!json_is_integer(ttl) || s < 0 || (uint64_t)s > TTL_MAX)
			return ctl_error(-EINVAL, "ttl_seconds is not a number from 0 to 4000000000");
		ns->ttl_seconds = (uint64_t)s;
		ns->mask |= MSG_NS_TTL;
	}
	return NULL;
}

/* The namespace that the request describes, or the answer that says what is wrong. */
static json_t *ns_parse(const struct ctl_request *r, struct msg_namespace *ns)
{
	const json_t *persist = json_object_get(r->body, "persist"), *mode = json_object_get(r->body, "mode");
	const char *name = json_string_value(json_object_get(r->body, "name"));

	*ns = (struct msg_namespace){.mode = S_IFDIR | 0755, .uid = r->uid, .gid = r->gid, .persist = 1};
	if (!name || ctl_name_from_json(name, ns->name, sizeof(ns->name)) || !ns->name[0])
		return ctl_error(-EINVAL, "the namespace's name is missing, malformed or longer than 1023 bytes");
	if (persist) {
		ns->persist = json_is_true(persist);
		ns->mask |= MSG_NS_PERSIST;
	}
	if (mode) {
		if (!json_is_integer(mode) || json_integer_value(mode) < 0 || json_integer_value(mode) > 07777)
			return ctl_error(-EINVAL, "mode is not one of 0 to 07777");
		ns->mode = S_IFDIR | (uint32_t)json_integer_value(mode);
	}
	return ns_numbers(r->body, ns);
}

static json_t *ns_error(int err, const char *name)
{
	switch (-err) {
	case ENOENT:
		return name_error(err, name, "no such namespace; see: fluxkv ns list");
	case EEXIST:
		return name_error(err, name, "there is a namespace or a directory of that name already");
	case EINVAL:
		return name_error(err, name, "cannot be a namespace's name, or lies inside another namespace");
	case ENOTEMPTY:
		return name_error(err, name, "is not empty; remove what it holds first: fluxkv rm -r");
	default:
		return name_error(err, name, common_error(err));
	}
}

/* A namespace's directories came or went: each name on the way to it. */
static void ns_changed(const struct ctl_request *r, const char *name)
{
	struct target t = {.attr = {.id = MSG_ROOT_DIR, .kind = MSG_KIND_DIR, .mode = S_IFDIR}};
	int err = 0;

	for (const char *p = name; *p && !err; p += strcspn(p, "/"), p += *p == '/') {
		err = target_step(r, &t, p, strcspn(p, "/"));
		name_changed(r, &t, 0);
	}
	target_end(&t);
}

static json_t *ns_call(const struct ctl_request *r, enum msg_type type)
{
	struct msg_namespace ns;
	json_t *answer = ns_parse(r, &ns);
	int err;

	if (answer)
		return answer;
	err = calls_namespace(r->calls, type, &ns, NULL, NULL);
	if (!err && type != MSG_NS_SET)
		ns_changed(r, ns.name);
	return err ? ns_error(err, ns.name) : ok();
}

static json_t *op_ns_create(const struct ctl_request *r)
{
	return ns_call(r, MSG_NS_CREATE);
}

static json_t *op_ns_set(const struct ctl_request *r)
{
	return ns_call(r, MSG_NS_SET);
}

static json_t *op_ns_rm(const struct ctl_request *r)
{
	return ns_call(r, MSG_NS_REMOVE);
}

static json_t *ns_to_json(const struct msg_namespace *ns)
{
	return json_pack("{s:o,s:I,s:I,s:I,s:I,s:b}", "name", ctl_name_to_json(ns->name), "objects",
			 (json_int_t)ns->objects, "bytes", (json_int_t)ns->bytes, "block_size",
			 (json_int_t)ns->block_size, "ttl_seconds", (json_int_t)ns->ttl_seconds, "persist",
			 (int)(ns->persist != 0));
}

static json_t *op_ns_list(const struct ctl_request *r)
{
	struct msg_namespace *list;
	json_t *all;
	size_t n;
	int err;

	err = calls_namespace(r->calls, MSG_NS_LIST, NULL, &list, &n);
	if (err)
		return ctl_error(err, common_error(err));
	all = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(all, ns_to_json(&list[i]));
	free(list);
	return json_pack("{s:b,s:o}", "ok", 1, "namespaces", all);
}

/* ---- which -------------------------------------------------------------------------------------------------- */

static const struct {
	const char *word;
	op_fn fn;
	bool changes;
} ops[] = {
    {"hello", op_hello, false},	 {"status", op_status, false},	 {"stat", op_stat, false},
    {"ls", op_ls, false},	 {"ns_list", op_ns_list, false}, {"rm", op_rm, true},
    {"rmdir", op_rmdir, true},	 {"evict", op_evict, true},	 {"prefetch", op_prefetch, true},
    {"pin", op_pin, true},	 {"ttl", op_ttl, true},		 {"ns_create", op_ns_create, true},
    {"ns_set", op_ns_set, true}, {"ns_rm", op_ns_rm, true},
};

json_t *ctl_handle(const struct ctl_request *r)
{
	const char *word = json_str(r->body, "op");

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (strcmp(word, ops[i].word))
			continue;
		if (ops[i].changes && !r->may_change)
			return ctl_error(-EPERM, "only root and the user that runs fluxkvd may do that");
		return ops[i].fn(r);
	}
	return ctl_error(-EOPNOTSUPP, "unknown request; are fluxkv and fluxkvd of one version?");
}
