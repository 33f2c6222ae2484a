/* SPDX-License-Identifier: Apache-2.0 */
#include "master/namespaces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/inode.h"
#include "master/names.h"
#include "master/space.h"
#include "master/step.h"

#define COMPONENTS_MAX 16u

/* The way from the root to a namespace, as far as it is there. */
struct walk {
	const char *rest; /* the first component that stands for nothing; "" if all do */
	uint32_t at;	  /* the last inode that is there */
	uint32_t missing; /* components of rest */
};

static size_t component(const char *p)
{
	const char *slash = strchr(p, '/');

	return slash ? (size_t)(slash - p) : strlen(p);
}

static const char *behind(const char *p, size_t len)
{
	return p[len] ? p + len + 1 : p + len;
}

static int copy_component(const char *p, size_t len, char name[MSG_NAME_MAX + 1])
{
	size_t checked;

	if (len > MSG_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(name, p, len);
	name[len] = '\0';
	return name_check(name, &checked);
}

/* Components separated by single slashes, none at an end. */
static int path_check(const char path[MSG_NS_NAME_MAX + 1])
{
	size_t len = strnlen(path, MSG_NS_NAME_MAX + 1), n = 0, k;
	char name[MSG_NAME_MAX + 1];
	int r;

	if (len > MSG_NS_NAME_MAX)
		return -ENAMETOOLONG;
	if (!len || path[len - 1] == '/')
		return -EINVAL;
	for (const char *p = path; *p; p = behind(p, k), n++) {
		k = component(p);
		r = copy_component(p, k, name);
		if (r < 0)
			return r;
		if (!n && !strcmp(name, RESERVED_NAME))
			return -EINVAL;
	}
	return n > COMPONENTS_MAX ? -ENAMETOOLONG : 0;
}

static void name_arg_at(const struct core *c, uint32_t dir, const char *p, size_t len, struct name_arg *ret)
{
	ret->dir = dir;
	ret->len = len;
	memcpy(ret->name, p, len);
	ret->name[len] = '\0';
	ret->hash = name_hash(c, dir, ret->name, len);
}

/* After path_check(). -ENOTDIR when a component is an object. */
static int walk_path(const struct core *c, const char *path, struct walk *ret)
{
	struct walk w = {.rest = path, .at = c->root};
	struct name_arg n;

	for (; *w.rest; w.rest = behind(w.rest, n.len)) {
		uint32_t h;

		if (inode_get(c, w.at)->kind != MSG_KIND_DIR)
			return -ENOTDIR;
		name_arg_at(c, w.at, w.rest, component(w.rest), &n);
		h = name_find(c, n.dir, n.name, n.len, n.hash);
		if (!h)
			break;
		w.at = h;
	}
	for (const char *p = w.rest; *p; p = behind(p, component(p)))
		w.missing++;
	*ret = w;
	return 0;
}

static struct space *space_at(const struct core *c, const struct walk *w)
{
	const struct inode *i = inode_get(c, w->at);

	return !w->missing && i->kind == MSG_KIND_DIR ? i->dir->space : NULL;
}

static int find_space(const struct core *c, const struct msg *m, struct space **ret)
{
	struct walk w;
	int r = path_check(m->u.ns.name);

	if (!r)
		r = walk_path(c, m->u.ns.name, &w);
	if (r < 0)
		return r == -ENOTDIR ? -ENOENT : r;
	if (!space_at(c, &w))
		return -ENOENT;
	*ret = space_at(c, &w);
	return 0;
}

static void fill(const struct core *c, const struct space *s, struct msg_namespace *ret)
{
	const struct inode *root = inode_get(c, s->root);

	memset(ret, 0, sizeof(*ret));
	space_name(c, s->root, ret->name);
	ret->kind = s->kind;
	ret->block_size = 1ull << s->block_shift;
	ret->ttl_seconds = s->ttl_seconds;
	ret->persist = s->persist;
	ret->mode = root->mode;
	ret->uid = root->uid;
	ret->gid = root->gid;
	ret->root_dir = root->id;
	ret->objects = s->objects;
	ret->bytes = s->bytes;
}

/* Takes back directories that were made in this step and are empty, from h up to, not including, top. */
static void unmake(struct core *c, uint32_t h, uint32_t top)
{
	while (h != top) {
		uint32_t parent = inode_get(c, h)->parent;

		name_unlink(c, h);
		inode_free(c, h);
		h = parent;
	}
}

static int make_missing(struct core *c, const struct walk *w, const struct msg_namespace *ns, uint32_t *ret)
{
	const struct dir_want want = {ns->mode ? ns->mode : 0755, ns->uid, ns->gid};
	uint32_t h = w->at, made;
	struct name_arg n;
	int r;

	for (const char *p = w->rest; *p; p = behind(p, n.len), h = made) {
		name_arg_at(c, h, p, component(p), &n);
		r = dir_make(c, &n, &want, &made);
		if (r < 0) {
			unmake(c, h, w->at);
			return r;
		}
	}
	*ret = h;
	return 0;
}

static int create_check(const struct core *c, const struct walk *w)
{
	const struct inode *i = inode_get(c, w->at);

	if (space_at(c, w))
		return -EEXIST;
	if (i->ns)
		return -EINVAL; /* inside another namespace */
	return w->missing || !i->dir->live ? 0 : -ENOTEMPTY;
}

int op_ns_create(struct core *c, struct msg *m)
{
	struct walk w;
	uint32_t h, up;
	int r = path_check(m->u.ns.name);

	if (!r)
		r = space_check(&m->u.ns);
	if (!r)
		r = walk_path(c, m->u.ns.name, &w);
	if (!r)
		r = create_check(c, &w);
	if (!r)
		r = step_room(c, 2 + COMPONENTS_MAX, 2 * MSG_NS_NAME_MAX);
	if (!r)
		r = make_missing(c, &w, &m->u.ns, &h);
	if (r < 0)
		return r;
	r = space_make(c, h, &m->u.ns);
	if (r < 0) {
		unmake(c, h, w.at);
		return r;
	}
	for (up = h; up != c->root; up = inode_get(c, up)->parent)
		step_write_inode(c, inode_get(c, up));
	fill(c, inode_get(c, h)->dir->space, &m->u.ns);
	c->answer_after_commit = true;
	return 0;
}

int op_ns_set(struct core *c, struct msg *m)
{
	const struct msg_namespace *want = &m->u.ns;
	char name[MSG_NS_NAME_MAX + 1];
	struct write_rec rec;
	struct space *s;
	int r = space_check(want);

	if (!r)
		r = find_space(c, m, &s);
	if (!r)
		r = step_room(c, 1, MSG_NS_NAME_MAX);
	if (r < 0)
		return r;
	if (want->mask & MSG_NS_BLOCK_SIZE)
		s->block_shift = shift_of(want->block_size);
	if (want->mask & MSG_NS_TTL)
		s->ttl_seconds = want->ttl_seconds;
	if (want->mask & MSG_NS_PERSIST)
		s->persist = want->persist;
	space_record(c, s, &rec, name);
	step_write(c, &rec);
	fill(c, s, &m->u.ns);
	c->answer_after_commit = true;
	return 0;
}

int op_ns_list(struct core *c, struct msg *m)
{
	free(m->namespaces);
	m->n_namespaces = 0;
	m->namespaces = calloc(c->n_spaces ? c->n_spaces : 1, sizeof(*m->namespaces));
	if (!m->namespaces)
		return -ENOMEM;
	for (uint32_t k = 0; k < c->n_spaces; k++)
		fill(c, c->spaces[k], &m->namespaces[k]);
	m->n_namespaces = c->n_spaces;
	return 0;
}

int op_ns_remove(struct core *c, struct msg *m)
{
	struct space *s;
	uint32_t h;
	int r = find_space(c, m, &s);

	if (r < 0)
		return r;
	h = s->root;
	if (inode_get(c, h)->dir->live)
		return -ENOTEMPTY;
	r = step_room(c, 2 + COMPONENTS_MAX, 0);
	if (r < 0)
		return r;
	do {
		uint32_t parent = inode_get(c, h)->parent;

		dir_end(c, h, m->node);
		h = parent;
	} while (h != c->root && !inode_get(c, h)->dir->live);
	c->answer_after_commit = true;
	return 0;
}
