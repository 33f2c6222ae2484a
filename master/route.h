/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The route of a version: which node has which of its blocks on which tier. The usual one, one block on one node,
 * lives in the inode; others are an array. Changes are said to the catalogue (after step_room() for one record each).
 *
 * The replica in the inode is that of the home node, the one that put the version. An empty version has no blocks; it
 * goes with its home.
 */
#ifndef MASTER_ROUTE_H
#define MASTER_ROUTE_H

#include "master/state.h"

/* The next replica behind *pos (start with 0). */
bool route_next(const struct inode *i, uint32_t *pos, struct replica *ret);
/* Where to start for the replicas of that block: they come in a row. */
uint32_t route_block(const struct inode *i, uint32_t block);
/* The tiers that the node has the block on; 0: none. */
uint8_t route_tiers(const struct inode *i, uint32_t block, uint32_t node);
uint64_t route_alloc(const struct inode *i, uint32_t block, uint32_t node);
/* Some other replica of the block than this node's on this tier: its tiers, and its node if ret_node. 0: none. */
uint8_t route_other(const struct inode *i, uint32_t block, uint32_t node, uint8_t tier, uint32_t *ret_node);
/* Whether any node has the block. */
bool route_has_block(const struct inode *i, uint32_t block);
bool route_has_node(const struct inode *i, uint32_t node);
static inline bool route_empty(const struct inode *i)
{
	return i->flags & INODE_MULTI ? !i->route->n : !i->tiers;
}

/* Adds a tier to what a node has of a block; alloc counts with TIER_MEM. 0, -ENOMEM with nothing changed. Needs room
 * for three records. say: write it to the catalogue. */
int route_add(struct core *c, struct inode *i, uint32_t block, uint32_t node, uint8_t tier, uint64_t alloc, bool say);
/* Takes tiers away; those that are not there do not matter. */
void route_take(struct core *c, struct inode *i, uint32_t block, uint32_t node, uint8_t tiers, bool say);

/* Takes all that the node has of the version, off its ledger too if it has one. With say it needs room for as many
 * records as route_count() tells. */
void route_take_node(struct core *c, struct inode *i, uint32_t node, struct member *ledger, bool say);
uint32_t route_count(const struct inode *i); /* replicas in all */

/* Turns the replica in the inode into an array; the catalogue is not told. 0, -ENOMEM. */
int route_make_array(struct core *c, struct inode *i);
/* The array of a new version of several blocks, room for n. NULL: no memory. */
struct route *route_new(uint32_t n);

#endif
