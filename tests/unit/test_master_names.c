/* SPDX-License-Identifier: Apache-2.0 */
/* The core: namespaces, directories, names, attributes, listing. */
#include <stdio.h>

#include "net/xattr.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/run.h"

#define MIB (1ull << 20)

static struct rig rg;

static void set_up(void)
{
	const struct core_config cfg = {.auto_namespace = true, .default_block_size = MIB};

	rig_start(&rg, &cfg);
	ck_assert_int_eq(rig_join(&rg, 1, 1024 * MIB, false), 0);
}

static void tear_down(void)
{
	rig_stop(&rg);
}

static struct msg *ns_msg(enum msg_type type, const char *name)
{
	struct msg *m = msg_new(type);

	rig_name(m->u.ns.name, sizeof(m->u.ns.name), name);
	return m;
}

static int ns(enum msg_type type, const char *name)
{
	return rig_send(&rg, 1, ns_msg(type, name));
}

START_TEST(names_are_checked)
{
	char longest[MSG_NAME_MAX + 2];
	const struct {
		const char *name;
		int err;
	} t[] = {
	    {"", -EINVAL},  {".", -EINVAL},   {"..", -EINVAL}, {"a/b", -EINVAL},
	    {"/", -EINVAL}, {"...", -ENOENT}, {" ", -ENOENT},  {"\xff\x01", -ENOENT},
	};

	for (size_t k = 0; k < sizeof(t) / sizeof(t[0]); k++)
		ck_assert_int_eq(rig_lookup(&rg, 1, MSG_ROOT_DIR, t[k].name), t[k].err);
	memset(longest, 'x', sizeof(longest));
	longest[MSG_NAME_MAX + 1] = '\0';
	/* 256 bytes without an end: nothing may be read behind them */
	ck_assert_int_eq(rig_lookup(&rg, 1, MSG_ROOT_DIR, longest), -ENAMETOOLONG);
	longest[MSG_NAME_MAX] = '\0';
	ck_assert_int_eq(rig_lookup(&rg, 1, MSG_ROOT_DIR, longest), -ENOENT);
	rig_mkdir(&rg, MSG_ROOT_DIR, longest);
	ck_assert_int_eq(rig_lookup(&rg, 1, MSG_ROOT_DIR, longest), 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, 12345, longest), -ENOENT);
	ck_assert_uint_eq(rg.answer->u.entry.miss, MSG_MISS_NEVER); /* and nothing that is left of the question */
}
END_TEST

START_TEST(mkdir_makes_namespaces_and_directories)
{
	uint64_t a = rig_mkdir(&rg, MSG_ROOT_DIR, "a"), b;
	uint32_t number = rg.answer->u.entry.a.ns;

	ck_assert(rg.after_commit);
	ck_assert_uint_ne(number, 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.mode, S_IFDIR | 0755);
	ck_assert_uint_eq(rg.answer->u.entry.a.block_size, MIB);
	ck_assert_uint_ne(rg.answer->u.entry.lease, 0);
	b = rig_mkdir(&rg, a, "b");
	ck_assert_uint_eq(rg.answer->u.entry.a.ns, number);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_MKDIR, a, "b")), -EEXIST);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_MKDIR, 999, "b")), -ENOENT);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_MKDIR, MSG_ROOT_DIR, ".fluxkv")), -EEXIST);
	ck_assert_int_eq(ns(MSG_NS_LIST, ""), 0);
	ck_assert_uint_eq(rg.answer->n_namespaces, 1);
	ck_assert_str_eq(rg.answer->namespaces[0].name, "a");
	ck_assert_uint_eq(rg.answer->namespaces[0].root_dir, a);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_RMDIR, MSG_ROOT_DIR, "a")), -ENOTEMPTY);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_RMDIR, a, "b")), 0);
	ck_assert(rg.after_commit);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_RMDIR, MSG_ROOT_DIR, "a")), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_RMDIR, MSG_ROOT_DIR, "a")), -ENOENT);
	ck_assert_int_eq(rig_lookup(&rg, 1, b, "x"), -ENOENT);
	ck_assert_uint_eq(rig_counts(&rg).namespaces, 0);
	ck_assert_uint_eq(rig_counts(&rg).directories, 1);
}
END_TEST

START_TEST(without_auto_namespace_mkdir_below_the_root_is_refused)
{
	const struct core_config cfg = {0};
	struct rig_ticket t;

	rig_stop(&rg);
	rig_start(&rg, &cfg);
	rig_join(&rg, 1, 64 * MIB, false);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_MKDIR, MSG_ROOT_DIR, "a")), -EPERM);
	ck_assert_int_eq(rig_put_start(&rg, 1, MSG_ROOT_DIR, "f", 1, 0, &t), -EPERM);
	ck_assert_int_eq(ns(MSG_NS_CREATE, "kv/v1"), 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, MSG_ROOT_DIR, "kv"), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.ns, 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_MKDIR, rg.answer->u.entry.a.id, "v2")), -EPERM);
}
END_TEST

START_TEST(namespaces_of_several_components)
{
	uint64_t kv, v1;
	struct rig_ticket t;

	ck_assert_int_eq(ns(MSG_NS_CREATE, "kv/cache/v1"), 0);
	v1 = rg.answer->u.ns.root_dir;
	ck_assert_uint_eq(rg.answer->u.ns.block_size, MIB);
	ck_assert_uint_eq(rg.answer->u.ns.persist, 1);
	ck_assert_int_eq(rig_lookup(&rg, 1, MSG_ROOT_DIR, "kv"), 0);
	kv = rg.answer->u.entry.a.id;
	ck_assert_uint_eq(rg.answer->u.entry.a.ns, 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.nlink, 3);
	ck_assert_int_eq(rig_put_start(&rg, 1, kv, "f", 1, 0, &t), -EPERM);
	ck_assert_int_eq(ns(MSG_NS_CREATE, "kv/cache/v1"), -EEXIST);
	ck_assert_int_eq(ns(MSG_NS_CREATE, "kv/cache/v1/inner"), -EINVAL);
	ck_assert_int_eq(ns(MSG_NS_CREATE, "kv/cache"), -ENOTEMPTY);
	ck_assert_int_eq(ns(MSG_NS_CREATE, "kv/other"), 0);
	rig_put(&rg, 1, v1, "f", 100);
	ck_assert_int_eq(ns(MSG_NS_CREATE, "kv/cache/v1/f"), -EINVAL);
	ck_assert_int_eq(ns(MSG_NS_REMOVE, "kv/cache/v1"), -ENOTEMPTY);
	ck_assert_int_eq(rig_delete(&rg, 1, v1, "f"), 0);
	ck_assert_int_eq(ns(MSG_NS_REMOVE, "kv/cache"), -ENOENT);
	ck_assert_int_eq(ns(MSG_NS_REMOVE, "kv/cache/v1"), 0);
	/* kv/cache went with it, kv has another one below */
	ck_assert_int_eq(rig_lookup(&rg, 1, kv, "cache"), -ENOENT);
	ck_assert_int_eq(rig_lookup(&rg, 1, kv, "other"), 0);
	ck_assert_int_eq(ns(MSG_NS_REMOVE, "kv/other"), 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, MSG_ROOT_DIR, "kv"), -ENOENT);
}
END_TEST

START_TEST(namespace_names_and_attributes_are_checked)
{
	static char deep[MSG_NS_NAME_MAX + 1];
	const char *bad[] = {"", "/", "/a", "a/", "a//b", ".", "a/..", ".fluxkv", ".fluxkv/x"};
	struct msg *m;

	for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++)
		ck_assert_int_eq(ns(MSG_NS_CREATE, bad[k]), -EINVAL);
	for (size_t k = 0; k < 17; k++)
		strcat(deep, k ? "/d" : "d");
	ck_assert_int_eq(ns(MSG_NS_CREATE, deep), -ENAMETOOLONG);
	m = ns_msg(MSG_NS_CREATE, "x");
	memset(m->u.ns.name, 'x', sizeof(m->u.ns.name));
	ck_assert_int_eq(rig_send(&rg, 1, m), -ENAMETOOLONG);
	for (int k = 0; k < 5; k++) {
		const uint64_t sizes[] = {0, 1, 2048, 12288, 1ull << 50};

		m = ns_msg(MSG_NS_CREATE, "x");
		m->u.ns.mask = MSG_NS_BLOCK_SIZE;
		m->u.ns.block_size = sizes[k];
		ck_assert_int_eq(rig_send(&rg, 1, m), -EINVAL);
	}
	ck_assert_uint_eq(rig_counts(&rg).directories, 1);
	m = ns_msg(MSG_NS_CREATE, "x");
	m->u.ns.mask = MSG_NS_BLOCK_SIZE | MSG_NS_TTL | MSG_NS_PERSIST;
	m->u.ns.block_size = 4096;
	m->u.ns.ttl_seconds = 7;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(rg.answer->u.ns.persist, 0);
	m = ns_msg(MSG_NS_SET, "x");
	m->u.ns.mask = MSG_NS_TTL;
	m->u.ns.ttl_seconds = 9;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(rg.answer->u.ns.ttl_seconds, 9);
	ck_assert_uint_eq(rg.answer->u.ns.block_size, 4096);
	ck_assert_int_eq(ns(MSG_NS_SET, "y"), -ENOENT);
}
END_TEST

/* d1/{f, g, sub/}, d2/{full/x, file}, n2/ in another namespace */
static uint64_t d1, d2, sub, full, n2, ids[3];

static void tree(void)
{
	uint64_t a = rig_mkdir(&rg, MSG_ROOT_DIR, "a");

	d1 = rig_mkdir(&rg, a, "d1");
	d2 = rig_mkdir(&rg, a, "d2");
	sub = rig_mkdir(&rg, d1, "sub");
	full = rig_mkdir(&rg, d2, "full");
	n2 = rig_mkdir(&rg, MSG_ROOT_DIR, "n2");
	ids[0] = rig_put(&rg, 1, d1, "f", 100);
	ids[1] = rig_put(&rg, 1, d1, "g", 100);
	rig_put(&rg, 1, full, "x", 100);
	ids[2] = rig_put(&rg, 1, d2, "file", 100);
}

START_TEST(rename_says_what_rename_says)
{
	const struct {
		uint64_t *from;
		const char *name;
		uint64_t *to;
		const char *as;
		bool noreplace;
		int err;
	} t[] = {
	    {&d1, "none", &d2, "x", false, -ENOENT},	{&d1, "f", &n2, "f", false, -EXDEV},
	    {&d1, "f", &d2, "full", false, -EISDIR},	{&d1, "f", &d2, "file", true, -EEXIST},
	    {&d1, "f", &d1, "f", true, -EEXIST},	{&d1, "f", &d1, "f", false, 0},
	    {&d1, "sub", &d2, "file", false, -ENOTDIR}, {&d1, "sub", &d2, "full", false, -ENOTEMPTY},
	    {&d2, "full", &full, "y", false, -EINVAL},	{&d2, "full", &d1, "sub", true, -EEXIST},
	    {&d2, "full", &d1, "sub", false, 0},	{&d1, "f", &d2, "new", false, 0},
	    {&d2, "new", &d2, "file", false, 0},	{&d2, "file", &d1, "g", false, 0},
	    {&d2, "..", &d1, "g", false, -EINVAL},	{&d2, "x", &d1, "g/h", false, -EINVAL},
	};

	tree();
	for (size_t k = 0; k < sizeof(t) / sizeof(t[0]); k++) {
		int r = rig_rename(&rg, 1, *t[k].from, t[k].name, *t[k].to, t[k].as, t[k].noreplace);

		ck_assert_msg(r == t[k].err, "row %zu: %d", k, r);
		ck_assert(rg.after_commit == !r);
	}
	/* f went over file, then over g */
	ck_assert_int_eq(rig_lookup(&rg, 1, d1, "g"), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.id, ids[0]);
	ck_assert_int_eq(rig_lookup(&rg, 1, d1, "f"), -ENOENT);
	ck_assert_int_eq(rig_lookup(&rg, 1, d2, "file"), -ENOENT);
	ck_assert_uint_eq(rig_counts(&rg).orphans, 2);
	/* full took the place of sub and still has x */
	ck_assert_int_eq(rig_lookup(&rg, 1, d1, "sub"), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.id, full);
	ck_assert_int_eq(rig_lookup(&rg, 1, full, "x"), 0);
	ck_assert_int_eq(rig_rename(&rg, 1, MSG_ROOT_DIR, "n2", MSG_ROOT_DIR, "n3", false), -EPERM);
}
END_TEST

START_TEST(rename_replaces_as_an_overwrite_does)
{
	tree();
	rig_forget(&rg);
	ck_assert_int_eq(rig_rename(&rg, 1, d1, "f", d1, "g", false), 0);
	ck_assert_uint_eq(rg.answer->u.rename.replaced_id, ids[1]);
	ck_assert_uint_ne(rg.answer->u.rename.lease, 0);
	ck_assert_ptr_nonnull(rig_notice(&rg, MSG_DROP, 1, 0));
	ck_assert_uint_eq(rig_notice(&rg, MSG_DROP, 1, 0)->items[0].put_id, ids[1]);
	ck_assert_uint_eq(rig_notice(&rg, MSG_DROP, 1, 0)->items[0].block, 1);
	ck_assert_uint_eq(rg.before, 0); /* behind the answer */
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 4 * 4096);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_DELETE_ACK, ids[1], 0, 0), 0);
	ck_assert_uint_eq(rig_ledger(&rg, 1).used, 3 * 4096);
}
END_TEST

START_TEST(directories_tell_their_links_and_times)
{
	struct msg *m;
	int64_t before;

	tree();
	m = msg_new(MSG_GETATTR);
	m->u.attr.a.id = d1;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.nlink, 3);
	before = rg.answer->u.entry.a.mtime_ns;
	ck_assert_int_eq(rig_rename(&rg, 1, d1, "sub", d2, "sub", false), 0);
	m = msg_new(MSG_GETATTR);
	m->u.attr.a.id = d1;
	rig_send(&rg, 1, m);
	ck_assert_uint_eq(rg.answer->u.entry.a.nlink, 2);
	ck_assert_int_gt(rg.answer->u.entry.a.mtime_ns, before);
	m = msg_new(MSG_GETATTR);
	m->u.attr.a.id = d2;
	rig_send(&rg, 1, m);
	ck_assert_uint_eq(rg.answer->u.entry.a.nlink, 4);
}
END_TEST

static int set_attr(uint64_t id, uint32_t mask, const struct msg_attr *a)
{
	struct msg *m = msg_new(MSG_SETATTR);

	m->u.attr.a = *a;
	m->u.attr.a.id = id;
	m->u.attr.mask = mask;
	return rig_send(&rg, 1, m);
}

START_TEST(attributes_are_set_as_masked)
{
	const struct msg_attr a = {.mode = S_IFDIR | 04711,
				   .uid = 7,
				   .gid = 8,
				   .mtime_ns = 11,
				   .atime_ns = 12,
				   .flags = MSG_ATTR_PIN,
				   .expires_ns = INT64_MAX};

	tree();
	ck_assert_int_eq(set_attr(ids[0], MSG_SET_MODE | MSG_SET_UID, &a), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.mode, S_IFREG | 04711);
	ck_assert_uint_eq(rg.answer->u.entry.a.uid, 7);
	ck_assert_uint_eq(rg.answer->u.entry.a.gid, 0);
	ck_assert_int_eq(rg.answer->u.entry.a.ctime_ns, rg.real);
	ck_assert_int_eq(set_attr(ids[0], MSG_SET_MTIME | MSG_SET_ATIME | MSG_SET_GID | MSG_SET_PIN | MSG_SET_TTL, &a),
			 0);
	ck_assert_int_eq(rg.answer->u.entry.a.mtime_ns, 11);
	ck_assert_int_eq(rg.answer->u.entry.a.atime_ns, 12);
	ck_assert_uint_eq(rg.answer->u.entry.a.flags, MSG_ATTR_PIN);
	ck_assert_int_eq(rg.answer->u.entry.a.expires_ns, INT64_MAX);
	ck_assert_int_eq(set_attr(d1, MSG_SET_PIN, &a), -EOPNOTSUPP);
	ck_assert_int_eq(set_attr(99999, MSG_SET_MODE, &a), -ENOENT);
	ck_assert_int_eq(set_attr(MSG_ROOT_DIR, MSG_SET_MODE, &a), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.mode, S_IFDIR | 04711);
}
END_TEST

static int set_xattrs(uint64_t id, const uint8_t *blob, size_t len)
{
	struct msg *m = msg_new(MSG_SETXATTRS);

	m->u.attr.a.id = id;
	if (len) {
		m->blob = malloc(len);
		memcpy(m->blob, blob, len);
	}
	m->blob_len = len;
	return rig_send(&rg, 1, m);
}

static int get_xattrs(uint64_t id)
{
	struct msg *m = msg_new(MSG_GETXATTRS);

	m->u.attr.a.id = id;
	return rig_send(&rg, 1, m);
}

START_TEST(xattrs_are_kept_and_checked)
{
	uint8_t *blob;
	size_t len;

	tree();
	ck_assert_int_eq(xattr_set(NULL, 0, "user.a", "val", 3, 0, &blob, &len), 0);
	ck_assert_int_eq(set_xattrs(ids[0], blob, len), 0);
	ck_assert_int_eq(set_xattrs(d1, blob, len), 0);
	ck_assert_int_eq(set_xattrs(d2, blob, len - 1), -EINVAL);
	ck_assert_int_eq(set_xattrs(4711, blob, len), -ENOENT);
	ck_assert_int_eq(rig_rename(&rg, 1, d1, "f", d2, "f2", false), 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, d2, "f2"), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.has_xattrs, 1);
	ck_assert_int_eq(get_xattrs(ids[0]), 0);
	ck_assert_uint_eq(rg.answer->blob_len, len);
	ck_assert_mem_eq(rg.answer->blob, blob, len);
	ck_assert_int_eq(set_xattrs(ids[0], NULL, 0), 0);
	ck_assert_int_eq(get_xattrs(ids[0]), 0);
	ck_assert_uint_eq(rg.answer->blob_len, 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, d2, "f2"), 0);
	ck_assert_uint_eq(rg.answer->u.entry.a.has_xattrs, 0);
	ck_assert_int_eq(get_xattrs(d2), 0);
	ck_assert_uint_eq(rg.answer->blob_len, 0);
	free(blob);
}
END_TEST

START_TEST(limits_are_kept)
{
	const struct core_config cfg = {
	    .auto_namespace = true, .max_inodes = 4, .max_namespaces = 2, .max_xattr_bytes = 40};
	uint8_t *blob;
	size_t len;
	struct rig_ticket t;
	uint64_t a, b;

	rig_stop(&rg);
	rig_start(&rg, &cfg);
	rig_join(&rg, 1, 64 * MIB, false);
	a = rig_mkdir(&rg, MSG_ROOT_DIR, "a");
	b = rig_mkdir(&rg, MSG_ROOT_DIR, "b");
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_MKDIR, MSG_ROOT_DIR, "c")), -ENOSPC);
	rig_put(&rg, 1, a, "f", 1);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_MKDIR, a, "d")), -ENOSPC);
	ck_assert_int_eq(rig_put_start(&rg, 1, a, "g", 1, 0, &t), 0);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, a, "g", 1)), -ENOSPC);
	ck_assert_int_eq(rig_send(&rg, 1, rig_done_msg(&t, a, "f", 1)), -ENOSPC); /* the old version is one more */
	ck_assert_int_eq(xattr_set(NULL, 0, "user.a", "0123456789", 10, 0, &blob, &len), 0);
	ck_assert_int_eq(set_xattrs(a, blob, len), 0);
	ck_assert_int_eq(set_xattrs(b, blob, len), -ENOSPC);
	ck_assert_int_eq(set_xattrs(a, blob, len), 0);
	free(blob);
}
END_TEST

START_TEST(unlink_and_rmdir_know_the_difference)
{
	tree();
	ck_assert_int_eq(rig_delete(&rg, 1, d1, "sub"), -EISDIR);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_RMDIR, d1, "f")), -ENOTDIR);
	ck_assert_int_eq(rig_delete(&rg, 1, d1, "none"), -ENOENT);
	ck_assert_int_eq(rig_delete(&rg, 1, ids[0], "none"), -ENOTDIR);
	ck_assert_int_eq(rig_delete(&rg, 1, d1, "f"), 0);
	ck_assert(rg.after_commit);
	ck_assert_uint_eq(rg.answer->u.entry.replaced_id, ids[0]);
	ck_assert_uint_eq(rg.answer->u.entry.a.size, 100);
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_RMDIR, d1, "sub")), 0);
}
END_TEST

/* One page; returns how many. */
static size_t read_dir(uint64_t dir, uint64_t cookie, uint32_t max)
{
	struct msg *m = msg_new(MSG_READDIR);

	m->u.readdir.dir = dir;
	m->u.readdir.cookie = cookie;
	m->u.readdir.max = max;
	ck_assert_int_eq(rig_send(&rg, 1, m), 0);
	ck_assert_uint_le(rg.answer->n_ents, max);
	return rg.answer->n_ents;
}

START_TEST(readdir_ends)
{
	uint64_t a = rig_mkdir(&rg, MSG_ROOT_DIR, "a");

	ck_assert_uint_eq(read_dir(a, 0, 10), 0);
	ck_assert(rg.answer->u.readdir.end);
	rig_put(&rg, 1, a, "x", 1);
	rig_mkdir(&rg, a, "y");
	ck_assert_uint_eq(read_dir(a, 0, 2), 2);
	ck_assert(rg.answer->u.readdir.end);
	ck_assert_str_eq(rg.answer->ents[0].name, "x");
	ck_assert_uint_eq(rg.answer->ents[0].attr.kind, MSG_KIND_FILE);
	ck_assert_uint_eq(rg.answer->ents[1].attr.kind, MSG_KIND_DIR);
	ck_assert_uint_eq(read_dir(a, 0, 1), 1);
	ck_assert(!rg.answer->u.readdir.end);
	/* only dead slots behind the last one */
	ck_assert_int_eq(rig_send(&rg, 1, rig_named(MSG_RMDIR, a, "y")), 0);
	ck_assert_uint_eq(read_dir(a, 0, 1), 1);
	ck_assert(rg.answer->u.readdir.end);
	ck_assert_int_eq(rig_delete(&rg, 1, a, "x"), 0);
	ck_assert_uint_eq(read_dir(a, 0, 1), 0);
	ck_assert(rg.answer->u.readdir.end);
	ck_assert_uint_eq(read_dir(a, UINT64_MAX, 1), 0);
	ck_assert(rg.answer->u.readdir.end);
}
END_TEST

#define SCAN_NAMES 400

/*
 * A scan in small pages while others come, go, are overwritten and renamed over: what is there from its beginning to
 * its end is given exactly once.
 */
START_TEST(a_scan_gives_what_stays_exactly_once)
{
	uint64_t a = rig_mkdir(&rg, MSG_ROOT_DIR, "a"), cookie = 0, last = 0;
	bool there[SCAN_NAMES], stays[SCAN_NAMES];
	unsigned seen[SCAN_NAMES] = {0}, rnd = 12345;
	char name[32], other[32];

	for (int k = 0; k < SCAN_NAMES; k++) {
		snprintf(name, sizeof(name), "n%d", k);
		there[k] = stays[k] = k % 3 != 0;
		if (there[k])
			rig_put(&rg, 1, a, name, 10);
	}
	do {
		size_t n = read_dir(a, cookie, 7);

		for (size_t e = 0; e < n; e++) {
			ck_assert_uint_gt(rg.answer->ents[e].cookie, last);
			last = rg.answer->ents[e].cookie;
			seen[atoi(rg.answer->ents[e].name + 1)]++;
		}
		cookie = rg.answer->u.readdir.next_cookie;
		if (rg.answer->u.readdir.end)
			break;
		for (int op = 0; op < 9; op++) {
			int k = (int)((rnd = rnd * 1103515245 + 12345) >> 8) % SCAN_NAMES, j = (k + 3) % SCAN_NAMES;

			snprintf(name, sizeof(name), "n%d", k);
			snprintf(other, sizeof(other), "n%d", j);
			if (op % 3 == 0) {
				rig_put(&rg, 1, a, name, 10); /* made, or overwritten and so still there */
				there[k] = true;
			} else if (op % 3 == 1 && there[k]) {
				ck_assert_int_eq(rig_delete(&rg, 1, a, name), 0);
				there[k] = stays[k] = false;
			} else if (op % 3 == 2 && there[k] && there[j]) {
				ck_assert_int_eq(rig_rename(&rg, 1, a, name, a, other, false), 0);
				there[k] = stays[k] = false; /* other was there and still is */
			}
			rig_forget(&rg);
		}
	} while (true);
	for (int k = 0; k < SCAN_NAMES; k++) {
		ck_assert_msg(!stays[k] || seen[k] == 1, "n%d stayed and was seen %u times", k, seen[k]);
		ck_assert_msg(seen[k] <= 2, "n%d", k);
	}
}
END_TEST

START_TEST(a_directory_that_empties_gives_its_memory_back)
{
	uint64_t a = rig_mkdir(&rg, MSG_ROOT_DIR, "a"), before;
	char name[32];

	for (int k = 0; k < 3000; k++) {
		snprintf(name, sizeof(name), "%d", k);
		rig_put(&rg, 1, a, name, 0);
		rig_forget(&rg);
	}
	before = rig_counts(&rg).memory;
	for (int k = 0; k < 3000; k++) {
		snprintf(name, sizeof(name), "%d", k);
		ck_assert_int_eq(rig_delete(&rg, 1, a, name), 0);
	}
	ck_assert_uint_lt(rig_counts(&rg).memory, before - 20000);
}
END_TEST

START_TEST(misses_tell_why)
{
	uint64_t a = rig_mkdir(&rg, MSG_ROOT_DIR, "a"), id;
	struct msg_attr attr = {0};

	ck_assert_int_eq(rig_lookup(&rg, 1, a, "x"), -ENOENT);
	ck_assert_uint_eq(rg.answer->u.entry.miss, MSG_MISS_NEVER);
	id = rig_put(&rg, 1, a, "x", 10);
	ck_assert_int_eq(rig_item(&rg, 1, MSG_MEM_EVICT, id, 0, 0), 0);
	ck_assert_uint_eq(rg.answer->items[0].flags, MSG_ITEM_GONE);
	ck_assert_int_eq(rig_lookup(&rg, 1, a, "x"), -ENOENT);
	ck_assert_uint_eq(rg.answer->u.entry.miss, MSG_MISS_EVICTED);
	id = rig_put(&rg, 1, a, "x", 10);
	ck_assert_int_eq(rig_delete(&rg, 1, a, "x"), 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, a, "x"), -ENOENT);
	ck_assert_uint_eq(rg.answer->u.entry.miss, MSG_MISS_NEVER);
	id = rig_put(&rg, 1, a, "x", 10);
	attr.expires_ns = rg.real + 5000;
	ck_assert_int_eq(set_attr(id, MSG_SET_TTL, &attr), 0);
	rg.real += 10000;
	ck_assert_int_eq(rig_lookup(&rg, 1, a, "x"), -ENOENT); /* expired, though no tick has come */
	ck_assert_uint_eq(rg.answer->u.entry.miss, MSG_MISS_EXPIRED);
	rig_put(&rg, 1, a, "x", 10);
	ck_assert_int_eq(rig_simple(&rg, 1, MSG_LEAVE), 0);
	ck_assert_int_eq(rig_join(&rg, 1, MIB, false), 0);
	ck_assert_int_eq(rig_lookup(&rg, 1, a, "x"), -ENOENT);
	ck_assert_uint_eq(rg.answer->u.entry.miss, MSG_MISS_LOST);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("master/names");
	TCase *tc = tcase_create("names");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, names_are_checked);
	tcase_add_test(tc, mkdir_makes_namespaces_and_directories);
	tcase_add_test(tc, without_auto_namespace_mkdir_below_the_root_is_refused);
	tcase_add_test(tc, namespaces_of_several_components);
	tcase_add_test(tc, namespace_names_and_attributes_are_checked);
	tcase_add_test(tc, rename_says_what_rename_says);
	tcase_add_test(tc, rename_replaces_as_an_overwrite_does);
	tcase_add_test(tc, directories_tell_their_links_and_times);
	tcase_add_test(tc, attributes_are_set_as_masked);
	tcase_add_test(tc, xattrs_are_kept_and_checked);
	tcase_add_test(tc, limits_are_kept);
	tcase_add_test(tc, unlink_and_rmdir_know_the_difference);
	tcase_add_test(tc, readdir_ends);
	tcase_add_test(tc, a_scan_gives_what_stays_exactly_once);
	tcase_add_test(tc, a_directory_that_empties_gives_its_memory_back);
	tcase_add_test(tc, misses_tell_why);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
