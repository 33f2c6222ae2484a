/* SPDX-License-Identifier: Apache-2.0 */
#include "master/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/inode.h"
#include "master/lease.h"
#include "master/misses.h"
#include "master/puts.h"
#include "master/step.h"
#include "master/version.h"
#include "master/waits.h"

struct rename {
	struct name_arg from, to;
	uint32_t h, target; /* what the names stand for; target 0: nothing */
	uint32_t node;
	bool noreplace;
};

static bool is_dir(const struct core *c, uint32_t h)
{
	return inode_get(c, h)->kind == MSG_KIND_DIR;
}

/* Whether h is dir itself or above it. */
static bool is_above(const struct core *c, uint32_t h, uint32_t dir)
{
	while (dir && dir != h)
		dir = inode_get(c, dir)->parent;
	return dir == h;
}

static int check_places(const struct core *c, const struct rename *rn)
{
	uint32_t from_ns = inode_get(c, rn->from.dir)->ns, to_ns = inode_get(c, rn->to.dir)->ns;

	/* Namespaces and what is above them are named by the operator, not moved about. */
	if (!from_ns && !to_ns)
		return -EPERM;
	return from_ns == to_ns ? 0 : -EXDEV;
}

static int check_target(const struct core *c, const struct rename *rn)
{
	bool dir = is_dir(c, rn->h);

	if (dir && is_above(c, rn->h, rn->to.dir))
		return -EINVAL;
	if ((dir || rn->noreplace) && ticket_reserving(c, &rn->to))
		return -EEXIST;
	if (!rn->target)
		return 0;
	if (rn->noreplace)
		return -EEXIST;
	if (!dir)
		return is_dir(c, rn->target) ? -EISDIR : 0;
	if (!is_dir(c, rn->target))
		return -ENOTDIR;
	return inode_get(c, rn->target)->dir->live ? -ENOTEMPTY : 0;
}

/* The target makes way: an object is dropped as by an overwrite, and rename's cookie becomes that of its name. */
static uint64_t end_target(struct core *c, const struct rename *rn)
{
	uint64_t id = inode_get(c, rn->target)->id;

	name_unlink(c, rn->h);
	if (is_dir(c, rn->target)) {
		lease_revoke(c, inode_get(c, rn->target), rn->node, MSG_REVOKE_MOVED);
		step_write_gone(c, inode_get(c, rn->target));
		name_move(c, rn->target, rn->h);
		inode_free(c, rn->target);
	} else {
		version_replace(c, rn->target, rn->h, rn->node);
	}
	return id;
}

static int apply(struct core *c, const struct rename *rn, uint64_t *ret_replaced)
{
	struct inode *i = inode_get(c, rn->h);
	char *copy = NULL;

	if (step_room(c, 2, MSG_NAME_MAX) < 0)
		return -ENOMEM;
	if (!rn->target && name_room(c, rn->to.dir, rn->to.name, rn->to.len, &copy) < 0)
		return -ENOMEM;
	/* Both names change for the others at once: what they lease of either is revoked before the answer. */
	lease_revoke(c, i, rn->node, MSG_REVOKE_MOVED);
	if (rn->target) {
		*ret_replaced = end_target(c, rn);
	} else {
		name_unlink(c, rn->h);
		name_link(c, rn->h, rn->to.dir, copy, rn->to.len, rn->to.hash, step_id(c));
	}
	miss_set(c, rn->to.hash, MSG_MISS_NEVER);
	miss_set(c, rn->from.hash, MSG_MISS_NEVER);
	i->ctime_ns = c->real_ns;
	dir_touch(c, rn->from.dir);
	dir_touch(c, rn->to.dir);
	step_write_inode(c, i);
	return 0;
}

int op_rename(struct core *c, struct msg *m)
{
	struct rename rn = {.node = m->node, .noreplace = m->u.rename.noreplace};
	uint64_t replaced = 0;
	int r = name_arg(c, m->u.rename.from_dir, m->u.rename.from, &rn.from);

	if (!r)
		r = name_arg(c, m->u.rename.to_dir, m->u.rename.to, &rn.to);
	if (r < 0)
		return r;
	/* Expiry may take both away, so each is found after the other has had its chance. */
	version_find(c, rn.to.dir, rn.to.name, rn.to.len, rn.to.hash);
	rn.h = version_find(c, rn.from.dir, rn.from.name, rn.from.len, rn.from.hash);
	rn.target = name_find(c, rn.to.dir, rn.to.name, rn.to.len, rn.to.hash);
	if (!rn.h)
		return -ENOENT;
	r = check_places(c, &rn);
	if (!r)
		r = rn.target == rn.h ? (rn.noreplace ? -EEXIST : 0) : check_target(c, &rn);
	if (!r && rn.target != rn.h)
		r = apply(c, &rn, &replaced);
	if (r < 0)
		return r;
	m->u.rename.replaced_id = replaced;
	m->u.rename.lease = lease_grant(c, inode_get(c, rn.h), m->node);
	c->answer_after_commit = true;
	wait_for_name(c, rn.from.hash);
	wait_for_name(c, rn.to.hash);
	return 0;
}
