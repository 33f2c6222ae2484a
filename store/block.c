/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/impl.h"

#define SHARD_SLOTS_MIN 64
/* The kernel allows a process 65,530 mappings; others of ours, and threads' stacks, need a few. */
#define MAPS_MAX 32768

int block_index_init(struct node *n)
{
	_Static_assert(BLOCK_SHARDS == 64, "block_shard() takes six bits");

	for (size_t i = 0; i < BLOCK_SHARDS; i++) {
		struct block_shard *s = &n->shards[i];

		pthread_mutex_init(&s->lock, NULL);
		s->slots = calloc(SHARD_SLOTS_MIN, sizeof(struct block *));
		if (!s->slots)
			return -ENOMEM;
		s->n_slots = SHARD_SLOTS_MIN;
	}
	return 0;
}

void block_index_fini(struct node *n)
{
	for (size_t i = 0; i < BLOCK_SHARDS; i++) {
		struct block_shard *s = &n->shards[i];

		for (size_t k = 0; s->slots && k < s->n_slots; k++)
			for (struct block *b = s->slots[k], *next; b; b = next) {
				next = b->next;
				if (b->map)
					segment_unmap(b->map, b->len);
				free(b->reclaim);
				free(b);
			}
		free(s->slots);
		s->slots = NULL;
	}
}

struct block_shard *block_lock(struct node *n, uint64_t put_id, uint32_t index)
{
	struct block_shard *s = block_shard(n, put_id, index);

	pthread_mutex_lock(&s->lock);
	return s;
}

static struct block **slot_of(struct block_shard *s, uint64_t put_id, uint32_t index)
{
	return &s->slots[block_hash(put_id, index) & (s->n_slots - 1)];
}

struct block *block_find(struct block_shard *s, uint64_t put_id, uint32_t index)
{
	struct block *b = *slot_of(s, put_id, index);

	while (b && (b->put_id != put_id || b->index != index))
		b = b->next;
	return b;
}

/* Doubles the table when chains get long. Without memory they just get longer. */
static void shard_grow(struct block_shard *s)
{
	size_t n_slots = s->n_slots * 2, old = s->n_slots;
	struct block **slots, **was = s->slots;

	if (s->n_blocks <= s->n_slots)
		return;
	slots = calloc(n_slots, sizeof(*slots));
	if (!slots)
		return;
	s->slots = slots;
	s->n_slots = n_slots;
	for (size_t k = 0; k < old; k++)
		for (struct block *b = was[k], *next; b; b = next) {
			struct block **slot = slot_of(s, b->put_id, b->index);

			next = b->next;
			b->next = *slot;
			*slot = b;
		}
	free(was);
}

struct block *block_get(struct node *n, struct block_shard *s, uint64_t put_id, uint32_t index, uint64_t len)
{
	struct block *b = block_find(s, put_id, index), **slot;

	if (b)
		return b;
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	/* Giving memory back must not need any. */
	b->reclaim = malloc(sizeof(*b->reclaim));
	if (!b->reclaim) {
		free(b);
		return NULL;
	}
	b->put_id = b->ssd_id = put_id;
	b->index = index;
	b->len = len;
	policy_rekey(&b->policy, block_hash(put_id, index));
	shard_grow(s);
	slot = slot_of(s, put_id, index);
	b->next = *slot;
	*slot = b;
	s->n_blocks++;
	count_add(n, blocks, 1);
	return b;
}

static void block_free(struct node *n, struct block_shard *s, struct block *b)
{
	struct block **slot = slot_of(s, b->put_id, b->index);

	while (*slot != b)
		slot = &(*slot)->next;
	*slot = b->next;
	s->n_blocks--;
	count_sub(n, blocks, 1);
	if (b->ssd_id != b->put_id)
		alias_put(n, b->ssd_id);
	if (b->drop)
		drop_part_done(n, b->drop);
	free(b->reclaim);
	free(b);
}

void block_unmap(struct node *n, struct block *b)
{
	if (!b->map)
		return;
	segment_unmap(b->map, b->len);
	b->map = NULL;
	count_sub(n, maps, 1);
}

int block_map(struct node *n, struct block *b)
{
	int fd, r;

	if (b->map)
		return 0;
	r = segment_open_file(n->seg, b->alloc, &fd);
	if (r < 0)
		return r;
	r = segment_map(n->seg, fd, b->len, PROT_READ, &b->map);
	close(fd);
	if (r < 0)
		return r;
	count_add(n, maps, 1);
	return 0;
}

void block_has_memory(struct node *n, struct block *b, uint64_t alloc)
{
	b->alloc = alloc;
	b->flags |= BLOCK_MEM;
	count_add(n, mem_blocks, 1);
	count_add(n, dram_used, segment_charge(b->len));
	if (b->flags & BLOCK_OLD)
		count_add(n, dram_old, segment_charge(b->len));
	if (!b->reclaim)
		b->reclaim = malloc(sizeof(*b->reclaim));
	pthread_mutex_lock(&n->policy_lock);
	policy_insert(n->policy, &b->policy, b->policy.pn_hash, segment_charge(b->len));
	pthread_mutex_unlock(&n->policy_lock);
}

void block_drop_memory(struct node *n, struct block *b, bool freed_notice)
{
	struct reclaim *r = b->reclaim ? b->reclaim : reclaim_new();

	*r = (struct reclaim){
	    .alloc = b->alloc,
	    .bytes = segment_charge(b->len),
	    .map = b->map,
	    .map_len = b->len,
	    .drop = b->drop,
	    .freed_notice = freed_notice,
	    .shared = b->flags & BLOCK_SHARED,
	};
	b->reclaim = NULL;
	pthread_mutex_lock(&n->policy_lock);
	policy_remove(n->policy, &b->policy);
	pthread_mutex_unlock(&n->policy_lock);
	if (b->map)
		count_sub(n, maps, 1);
	b->map = NULL;
	b->alloc = 0;
	if (b->flags & BLOCK_OLD)
		count_sub(n, dram_old, segment_charge(b->len));
	b->flags &= ~(uint32_t)(BLOCK_MEM | BLOCK_TEMP | BLOCK_SHARED | BLOCK_OLD);
	count_sub(n, mem_blocks, 1);
	/* The drop is over only when the file is gone too. */
	if (b->drop)
		atomic_fetch_add(&b->drop->left, 1);
	reclaim_push(n, r);
}

void block_set_ssd(struct node *n, struct block *b, bool on)
{
	if (!!(b->flags & BLOCK_SSD) == on)
		return;
	b->flags ^= BLOCK_SSD;
	if (on)
		count_add(n, ssd_blocks, 1);
	else
		count_sub(n, ssd_blocks, 1);
}

bool block_hold_ssd(struct node *n, struct block *b)
{
	if (b->flags & BLOCK_HELD)
		return true;
	if (!(b->flags & BLOCK_SSD) || ssd_hold(n->ssd, block_key(b)) < 0)
		return false;
	b->flags |= BLOCK_HELD;
	return true;
}

void block_drop_ssd(struct node *n, struct block *b)
{
	if (b->flags & BLOCK_HELD) {
		ssd_unhold(n->ssd, block_key(b));
		b->flags &= ~(uint32_t)BLOCK_HELD;
	}
	if (b->flags & BLOCK_SSD) {
		ssd_drop(n->ssd, block_key(b));
		block_set_ssd(n, b, false);
	}
}

void block_settle(struct node *n, struct block_shard *s, struct block *b)
{
	const uint32_t moving = BLOCK_PERSIST | BLOCK_EVICT | BLOCK_REFILL;

	if (b->pins == 0 && b->map && count_get(n, maps) > MAPS_MAX)
		block_unmap(n, b);
	if (b->pins || b->waiters || (b->flags & moving))
		return;
	/*
	 * A copy that is no replica must not lie in memory for those who can have the bytes from the SSD. Not so once
	 * the version is gone: the master makes no replica of it any more, and each read would bring the block in anew.
	 */
	if (b->holders && (b->flags & (BLOCK_TEMP | BLOCK_DROP)) == BLOCK_TEMP && block_hold_ssd(n, b))
		block_drop_memory(n, b, true);
	if (b->holders)
		return;
	if ((b->flags & BLOCK_HELD) && !(b->flags & BLOCK_PIN)) {
		ssd_unhold(n->ssd, block_key(b));
		b->flags &= ~(uint32_t)BLOCK_HELD;
	}
	if (b->flags & BLOCK_DROP)
		block_drop_ssd(n, b);
	if ((b->flags & BLOCK_MEM) && (b->flags & (BLOCK_DROP | BLOCK_TEMP)))
		block_drop_memory(n, b, (b->flags & BLOCK_TEMP) || !b->drop);
	if (!(b->flags & (BLOCK_MEM | BLOCK_SSD)))
		block_free(n, s, b);
}

void block_rekey(struct node *n, const struct msg_attr *a, uint64_t dir, const char *name)
{
	uint64_t blocks = a->block_size ? block_count(a->size, a->block_size) : 0, hash = node_name_hash(dir, name);

	for (uint64_t i = 0; i < blocks; i++) {
		struct block_shard *s = block_lock(n, a->id, (uint32_t)i);
		struct block *b = block_find(s, a->id, (uint32_t)i);

		if (b) {
			pthread_mutex_lock(&n->policy_lock);
			policy_rekey(&b->policy, block_hash(hash, (uint32_t)i));
			pthread_mutex_unlock(&n->policy_lock);
		}
		pthread_mutex_unlock(&s->lock);
	}
}

void block_set_pin(struct node *n, const struct msg_attr *a, bool on)
{
	uint64_t blocks = a->block_size ? block_count(a->size, a->block_size) : 0;

	for (uint64_t i = 0; i < blocks; i++) {
		struct block_shard *s = block_lock(n, a->id, (uint32_t)i);
		struct block *b = block_find(s, a->id, (uint32_t)i);

		if (b && on) {
			b->flags |= BLOCK_PIN;
			if (!(b->flags & BLOCK_MEM))
				block_hold_ssd(n, b);
		} else if (b) {
			b->flags &= ~(uint32_t)BLOCK_PIN;
			block_settle(n, s, b);
		}
		pthread_mutex_unlock(&s->lock);
	}
}

bool block_all_present(struct node *n, const struct msg_attr *a)
{
	uint64_t blocks = a->block_size ? block_count(a->size, a->block_size) : 0;

	for (uint64_t i = 0; i < blocks; i++) {
		struct block_shard *s = block_lock(n, a->id, (uint32_t)i);
		struct block *b = block_find(s, a->id, (uint32_t)i);
		bool there = b && (b->flags & (BLOCK_MEM | BLOCK_SSD)) && !(b->flags & BLOCK_DROP);

		pthread_mutex_unlock(&s->lock);
		if (!there)
			return false;
	}
	return true;
}

void drop_part_done(struct node *n, struct drop *d)
{
	if (atomic_fetch_sub(&d->left, 1) == 1)
		reclaim_push(n, &d->over);
}

/* The drop that a block of the version has already, with a part more; NULL: none has. */
static struct drop *find_drop(struct node *n, uint64_t put_id, uint64_t n_blocks)
{
	struct drop *d = NULL;

	for (uint64_t i = 0; i < n_blocks && !d; i++) {
		struct block_shard *s = block_lock(n, put_id, (uint32_t)i);
		const struct block *b = block_find(s, put_id, (uint32_t)i);

		d = b ? b->drop : NULL;
		if (d)
			atomic_fetch_add(&d->left, 1);
		pthread_mutex_unlock(&s->lock);
	}
	return d;
}

static struct drop *drop_new(uint64_t put_id)
{
	struct drop *d = malloc(sizeof(*d));

	if (!d)
		return NULL;
	d->put_id = put_id;
	atomic_init(&d->left, 1);
	d->over = (struct reclaim){.drop = d};
	return d;
}

/*
 * Another node may delete a version before this one, which made it, has the answer to its MSG_PUT_DONE: that waits for
 * the acknowledgements of others. Then it is not known here yet, and the master asks again.
 */
static bool may_be_ours(struct node *n, uint64_t put_id, uint64_t n_blocks)
{
	bool known = false;

	if (!n->member || !atomic_load(&n->publishing))
		return false;
	for (uint64_t i = 0; i < n_blocks && !known; i++) {
		struct block_shard *s = block_lock(n, put_id, (uint32_t)i);
		const struct block *b = block_find(s, put_id, (uint32_t)i);

		known = b && (b->flags & (BLOCK_MEM | BLOCK_SSD));
		pthread_mutex_unlock(&s->lock);
	}
	return !known;
}

void block_drop_version(struct node *n, uint64_t put_id, uint64_t n_blocks)
{
	/* The master says it again until it is acknowledged, which must not be before the last block has gone. */
	struct drop *d;

	if (may_be_ours(n, put_id, n_blocks))
		return;
	d = find_drop(n, put_id, n_blocks);
	/* Without memory for the record its bytes stay charged until the node leaves: a leak in the ledger, never a
	 * wrong grant. */
	if (!d)
		d = drop_new(put_id);
	for (uint64_t i = 0; i < n_blocks; i++) {
		struct block_shard *s = block_lock(n, put_id, (uint32_t)i);
		struct block *b = block_find(s, put_id, (uint32_t)i);

		if (b) {
			b->flags |= BLOCK_DROP;
			if (d && !b->drop) {
				b->drop = d;
				atomic_fetch_add(&d->left, 1);
			}
			/* Not worth its place in the queue of the device any more. */
			if (b->flags & BLOCK_PERSIST)
				ssd_drop(n->ssd, block_key(b));
			block_settle(n, s, b);
		}
		pthread_mutex_unlock(&s->lock);
	}
	if (d)
		drop_part_done(n, d);
}

/* Call with the shard locked; b may be gone afterwards. */
static void forget_block(struct node *n, struct block_shard *s, struct block *b)
{
	if (b->flags & BLOCK_PERSIST)
		ssd_drop(n->ssd, block_key(b));
	if ((b->flags & BLOCK_MEM) && !(b->flags & BLOCK_OLD)) {
		b->flags |= BLOCK_OLD | BLOCK_TEMP;
		count_add(n, dram_old, segment_charge(b->len));
	}
	b->flags &= ~(uint32_t)(BLOCK_PIN | BLOCK_DUE | BLOCK_TIERED);
	block_drop_ssd(n, b);
	block_settle(n, s, b);
}

void block_forget(struct node *n, uint64_t put_id, uint32_t index)
{
	struct block_shard *s = block_lock(n, put_id, index);
	struct block *b = block_find(s, put_id, index);

	if (b)
		forget_block(n, s, b);
	pthread_mutex_unlock(&s->lock);
}

void block_forget_all(struct node *n)
{
	for (size_t i = 0; i < BLOCK_SHARDS; i++) {
		struct block_shard *s = &n->shards[i];

		pthread_mutex_lock(&s->lock);
		for (size_t k = 0; k < s->n_slots; k++)
			for (struct block *b = s->slots[k], *next; b; b = next) {
				next = b->next;
				forget_block(n, s, b);
			}
		pthread_mutex_unlock(&s->lock);
	}
}
