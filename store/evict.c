/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evictor: one thread that finds victims when room is short, asks the master, and takes away what may go; it also
 * unlinks and unmaps all memory that lost its block, so that no other thread spends time on that. And the waiting of
 * those who need room.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/size.h"
#include "store/impl.h"

/* One round: so much, in so many blocks. Small blocks reach the one, large ones the other. */
#define ROUND_BYTES (16ull << 20)
#define VICTIMS_MAX 4096
/* While somebody waits and nothing could be evicted, look again this often. */
#define RETRY_NS (2 * NS_PER_MS)
#define BELIEVE_NS (20 * NS_PER_MS)
#define HOUSEKEEPING_NS NS_PER_SEC
/* While blocks wait to be persisted after all. */
#define AGAIN_NS (100 * NS_PER_MS)

/* ---- reclaiming --------------------------------------------------------------------------------------------- */

/* A failed malloc of a few bytes that free megabytes: they come sooner or later. */
static void wait_memory(void)
{
	nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
}

struct reclaim *reclaim_new(void)
{
	struct reclaim *r;

	while (!(r = malloc(sizeof(*r))))
		wait_memory();
	return r;
}

/*
 * Unlinks, unmaps, and adds what the master must hear to the two messages. Frees the record. True: a program may map
 * the file still.
 */
static bool reclaim_one(struct node *n, struct reclaim *r, struct msg *freed, struct msg *acks)
{
	bool shared = r->shared;

	if (r->alloc) {
		if (r->map)
			segment_unmap(r->map, r->map_len);
		segment_unlink(n->seg, r->alloc);
		count_sub(n, dram_used, r->bytes);
		if (r->freed_notice)
			freed->items[freed->n_items++].alloc = r->alloc;
		if (r->drop)
			drop_part_done(n, r->drop);
		free(r);
	} else {
		acks->items[acks->n_items++].put_id = r->drop->put_id;
		free(r->drop);
	}
	return shared;
}

static void room_answer(void *arg, const struct msg *answer)
{
	space_freed(arg);
	node_told(arg);
}

static struct msg *items_msg(enum msg_type type, size_t max)
{
	struct msg *m = msg_new(type);

	if (m && msg_alloc_items(m, max) < 0)
		return msg_free(m);
	if (m)
		m->n_items = 0;
	return m;
}

static void send_or_free(struct node *n, struct msg *m)
{
	if (m && m->n_items)
		node_tell(n, m, room_answer);
	else
		msg_free(m);
}

/* The segment has as much now: more than at the start once nobody maps what an earlier daemon left there. */
static void take_capacity(struct node *n, uint64_t capacity)
{
	if (atomic_exchange(&n->capacity, capacity) == capacity)
		return;
	pthread_mutex_lock(&n->policy_lock);
	policy_resize(n->policy, capacity);
	pthread_mutex_unlock(&n->policy_lock);
}

/*
 * What the segment has, and what of it is occupied that the master knows nothing of: files without a name that somebody
 * maps, and what an incarnation that is over has left to open handles.
 */
static int heartbeat(struct node *n, const struct segment_usage *u, channel_done_fn done)
{
	struct msg *m;

	take_capacity(n, u->capacity);
	atomic_store(&n->count.dram_zombie, u->orphaned + count_get(n, dram_old));
	m = msg_new(MSG_HEARTBEAT);
	if (!m)
		return -ENOMEM;
	m->u.heartbeat.capacity = u->capacity;
	m->u.heartbeat.zombie = count_get(n, dram_zombie);
	/* Less while a device is out. */
	node_ssd_room(n, &m->u.heartbeat.ssd_capacity, &m->u.heartbeat.ssd_used);
	/* Those who wait for room may have it now. */
	node_tell(n, m, done);
	return 0;
}

int evict_heartbeat(struct node *n, channel_done_fn done)
{
	struct segment_usage u;
	int r = segment_usage(n->seg, &u);

	return r < 0 ? r : heartbeat(n, &u, done);
}

#define RECLAIM_BATCH 1024

/* Works on a list that reclaim_push() made. */
static void reclaim_list(struct node *n, struct reclaim *r)
{
	while (r) {
		struct msg *freed = items_msg(MSG_ALLOC_FREED, RECLAIM_BATCH);
		struct msg *acks = items_msg(MSG_DELETE_ACK, RECLAIM_BATCH);
		struct segment_usage u;
		bool shared = false;

		if (!freed || !acks) {
			/* Nothing can be said for want of memory. */
			msg_free(freed);
			msg_free(acks);
			wait_memory();
			continue;
		}
		for (int i = 0; r && i < RECLAIM_BATCH; i++) {
			struct reclaim *next = r->next;

			shared |= reclaim_one(n, r, freed, acks);
			r = next;
		}
		/* The master must not grant again what is not free, so it hears of that first. */
		if (shared && segment_usage(n->seg, &u) == 0 &&
		    u.orphaned + count_get(n, dram_old) != count_get(n, dram_zombie))
			heartbeat(n, &u, room_answer);
		send_or_free(n, freed);
		send_or_free(n, acks);
	}
}

void reclaim_push(struct node *n, struct reclaim *r)
{
	struct reclaimer *q = &n->reclaimer;

	r->next = NULL;
	pthread_mutex_lock(&q->lock);
	*q->tail = r;
	q->tail = &r->next;
	q->pushed++;
	if (!q->busy)
		pthread_cond_signal(&q->wake);
	pthread_mutex_unlock(&q->lock);
}

void reclaim_flush(struct node *n)
{
	struct reclaimer *q = &n->reclaimer;
	uint64_t mine;

	pthread_mutex_lock(&q->lock);
	mine = q->pushed;
	while (q->done < mine)
		pthread_cond_wait(&q->progress, &q->lock);
	pthread_mutex_unlock(&q->lock);
}

/* ---- victims ------------------------------------------------------------------------------------------------ */

struct victims {
	struct node *n;
	struct block **b; /* first those that are no replicas, which nobody is asked about */
	size_t n_temp, count, max;
	bool spare; /* only what is on the SSD tier too */
	uint64_t refused;
};

/* Call with the shard locked. */
static bool evictable(const struct block *b)
{
	if (!(b->flags & BLOCK_MEM) || b->pins)
		return false;
	if (b->flags & (BLOCK_DUE | BLOCK_PERSIST | BLOCK_EVICT | BLOCK_REFILL))
		return false;
	/* An open handle keeps the last copy, and all that is kept of a version that is gone is for open handles. */
	return (b->flags & BLOCK_SSD) || !(b->holders || (b->flags & (BLOCK_DROP | BLOCK_TEMP)));
}

/* What programs were found to map stays so for a while. */
#define SHARED_NS NS_PER_SEC

/*
 * A file that programs map is not free when it is unlinked, so its block is no victim: it stays a replica for others.
 * Call with the shard locked, for what is evictable.
 */
static bool mapped_by_programs(struct node *n, struct block *b)
{
	uint64_t now;

	if (!(b->flags & BLOCK_SHARED))
		return false;
	now = clock_ns();
	if (b->shared_until > now)
		return true;
	block_unmap(n, b);
	if (segment_is_shared(n->seg, b->alloc)) {
		b->shared_until = now + SHARED_NS;
		return true;
	}
	b->flags &= ~(uint32_t)BLOCK_SHARED;
	return false;
}

/*
 * Whether the SSD has it at this moment: what a device that failed had is marked until the tier has told us, and memory
 * may have the only copy then. Call with the shard locked.
 */
static bool is_on_ssd(struct node *n, const struct block *b)
{
	return (b->flags & BLOCK_SSD) && ssd_has(n->ssd, block_key(b));
}

/* A pin keeps it too: the SSD copy is held before the other is asked for. Call with the shard locked. */
static bool pin_allows(struct node *n, struct block *b)
{
	return !(b->flags & BLOCK_PIN) || block_hold_ssd(n, b);
}

/* Call with the shard locked, for what is evictable and not in the policy any more when the walk is over. */
static void take(struct victims *v, struct block *b)
{
	b->flags |= BLOCK_EVICT;
	v->b[v->count++] = b;
	if (b->flags & BLOCK_TEMP) {
		v->b[v->count - 1] = v->b[v->n_temp];
		v->b[v->n_temp++] = b;
	}
}

static enum policy_verdict visit(void *arg, struct policy_node *node)
{
	struct block *b = container_of(node, struct block, policy);
	struct victims *v = arg;
	/* A block in the policy has memory, so it stays; its key never changes. */
	struct block_shard *s = block_shard(v->n, b->put_id, b->index);
	enum policy_verdict verdict = POLICY_SKIP;

	if (v->count == v->max || pthread_mutex_trylock(&s->lock))
		return POLICY_SKIP;
	if (evictable(b) && (!v->spare || is_on_ssd(v->n, b)) && pin_allows(v->n, b) && !mapped_by_programs(v->n, b)) {
		take(v, b);
		verdict = POLICY_TAKE;
	}
	pthread_mutex_unlock(&s->lock);
	return verdict;
}

static struct msg *evict_msg(const struct victims *v, uint32_t flags)
{
	struct msg *m = items_msg(MSG_MEM_EVICT, v->count - v->n_temp);

	if (!m)
		return NULL;
	for (size_t i = v->n_temp; i < v->count; i++) {
		const struct block *b = v->b[i];

		m->items[m->n_items++] =
		    (struct msg_item){.put_id = b->put_id, .block = b->index, .alloc = b->alloc, .flags = flags};
	}
	return m;
}

static bool pinned_on_ssd(const struct block *b)
{
	return (b->flags & BLOCK_PIN) && (b->flags & BLOCK_SSD);
}

/* The master's verdict on one block. Returns the bytes that will be free. */
static uint64_t evict_block(struct node *n, struct block *b, int status)
{
	struct block_shard *s = block_lock(n, b->put_id, b->index);
	uint64_t bytes = 0;
	bool stays;

	b->flags &= ~(uint32_t)BLOCK_EVICT;
	/* Somebody came meanwhile: the bytes stay for them, but are no replica any more. */
	stays = b->pins || ((b->holders || pinned_on_ssd(b)) && !block_hold_ssd(n, b));
	if (status == 0 && stays)
		b->flags |= BLOCK_TEMP | ((b->flags & BLOCK_SSD) ? 0 : BLOCK_DROP);
	if (status < 0 || stays) {
		pthread_mutex_lock(&n->policy_lock);
		policy_insert(n->policy, &b->policy, b->policy.pn_hash, segment_charge(b->len));
		pthread_mutex_unlock(&n->policy_lock);
	} else {
		bytes = segment_charge(b->len);
		count_add(n, evictions_dram, 1);
		block_drop_memory(n, b, true);
	}
	block_settle(n, s, b);
	pthread_mutex_unlock(&s->lock);
	return bytes;
}

/* Asks the master about the victims and acts on its answer. Returns the bytes that will be free. */
static uint64_t evict_victims(struct node *n, struct victims *v, uint32_t flags, int *ret_status)
{
	struct msg *answer = NULL, *m = NULL;
	uint64_t bytes = 0;
	int r = 0;

	for (size_t i = 0; i < v->n_temp; i++)
		bytes += evict_block(n, v->b[i], 0);
	if (v->count == v->n_temp)
		return bytes;
	m = evict_msg(v, flags);
	r = m ? node_call_wait(n, m, &answer) : -ENOMEM;
	if (r == 0 && answer->n_items != v->count - v->n_temp)
		r = -EBADMSG;
	for (size_t i = v->n_temp; i < v->count; i++) {
		const struct msg_item *it = r ? NULL : &answer->items[i - v->n_temp];
		uint64_t put_id = v->b[i]->put_id;
		int status = it ? it->status : r;

		if (status < 0) {
			v->refused += segment_charge(v->b[i]->len);
			if (ret_status)
				*ret_status = status;
		}
		bytes += evict_block(n, v->b[i], status);
		if (status == 0 && (it->flags & MSG_ITEM_GONE))
			node_tell_gone(n, put_id, 0, NULL);
	}
	msg_free(answer);
	return bytes;
}

/* One round. Returns the bytes that will be free. */
static uint64_t evict_round(struct node *n, struct victims *v, uint64_t bytes)
{
	uint64_t got;

	v->n_temp = v->count = 0;
	v->refused = 0;
	pthread_mutex_lock(&n->policy_lock);
	policy_victims(n->policy, bytes < ROUND_BYTES ? bytes : ROUND_BYTES, visit, v);
	pthread_mutex_unlock(&n->policy_lock);
	if (!v->count)
		return 0;
	got = evict_victims(n, v, 0, NULL);
	pthread_mutex_lock(&n->space.lock);
	n->space.refused = got ? 0 : n->space.refused + v->refused;
	pthread_mutex_unlock(&n->space.lock);
	return got;
}

/* ---- room --------------------------------------------------------------------------------------------------- */

/* Below so much free memory the evictor starts by itself, and stops a quarter above: what is free serves nobody. */
static uint64_t low_water(const struct node *n)
{
	uint64_t low = n->capacity / 128;

	return low < (256ull << 20) ? low : 256ull << 20;
}

static uint64_t bytes_free(struct node *n)
{
	/* Zombie bytes have those of dram_old among them, which are used ones here. */
	uint64_t taken =
	    count_get(n, dram_used) + count_get(n, dram_reserved) + count_get(n, dram_zombie) - count_get(n, dram_old);

	return taken < n->capacity ? n->capacity - taken : 0;
}

/* How much the evictor should free now. *waiting: somebody waits for room. */
static uint64_t bytes_short(struct node *n, bool *waiting)
{
	uint64_t low = low_water(n), free_now = bytes_free(n), wanted, since, target;

	pthread_mutex_lock(&n->space.lock);
	wanted = n->space.wanted;
	since = n->space.wanted_since;
	pthread_mutex_unlock(&n->space.lock);
	*waiting = wanted > 0;
	/* Ahead of need only what the SSD tier has too may go: a value that nobody is in the way of is not lost. */
	target = wanted ? wanted + low : n->has_ssd && free_now < low ? low + low / 4 : 0;
	if (free_now < target)
		return target - free_now;
	/* Enough by our own sum, which the master may be about to learn; if it does not, its sum counts. */
	return wanted && clock_ns() - since > BELIEVE_NS ? wanted : 0;
}

void space_freed(struct node *n)
{
	pthread_mutex_lock(&n->space.lock);
	n->space.gen++;
	pthread_cond_broadcast(&n->space.freed);
	pthread_mutex_unlock(&n->space.lock);
}

static void evict_kick(struct node *n)
{
	pthread_mutex_lock(&n->reclaimer.lock);
	n->reclaimer.kick = true;
	pthread_cond_signal(&n->reclaimer.wake);
	pthread_mutex_unlock(&n->reclaimer.lock);
}

void evict_check(struct node *n)
{
	bool waiting;

	if (bytes_short(n, &waiting))
		evict_kick(n);
}

/* Waits until the ledger may have fallen since gen. False: the deadline is over. */
static bool space_wait(struct node *n, uint64_t gen, uint64_t bytes, uint64_t deadline)
{
	struct space *sp = &n->space;
	struct timespec ts = clock_timespec(deadline);
	int r = 0;

	pthread_mutex_lock(&sp->lock);
	if (!sp->wanted)
		sp->wanted_since = clock_ns();
	sp->wanted += bytes;
	pthread_mutex_unlock(&sp->lock);
	evict_kick(n);
	pthread_mutex_lock(&sp->lock);
	while (sp->gen == gen && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&sp->freed, &sp->lock, &ts);
	sp->wanted -= bytes;
	pthread_mutex_unlock(&sp->lock);
	return r != ETIMEDOUT;
}

/* Sums up why nothing can go: each block once, by what keeps it longest. */
struct blockers {
	uint64_t open, mapped, persisting, dropped, pinned;
};

static void sum_block(const struct block *b, struct blockers *sum)
{
	uint64_t bytes = (b->flags & BLOCK_MEM) ? segment_charge(b->len) : 0;

	if ((b->flags & (BLOCK_DROP | BLOCK_TEMP)) && !(b->flags & BLOCK_SSD))
		sum->dropped += bytes;
	else if (b->flags & (BLOCK_PERSIST | BLOCK_DUE))
		sum->persisting += bytes;
	else if ((b->flags & BLOCK_PIN) && !(b->flags & BLOCK_SSD))
		sum->pinned += bytes;
	else if (b->holders || b->pins)
		sum->open += bytes;
	else if (b->flags & BLOCK_SHARED)
		sum->mapped += bytes;
}

static void sum_blockers(struct node *n, struct blockers *ret)
{
	*ret = (struct blockers){0};
	for (size_t i = 0; i < BLOCK_SHARDS; i++) {
		struct block_shard *s = &n->shards[i];

		pthread_mutex_lock(&s->lock);
		for (size_t k = 0; k < s->n_slots; k++)
			for (struct block *b = s->slots[k]; b; b = b->next)
				sum_block(b, ret);
		pthread_mutex_unlock(&s->lock);
	}
}

#define NOSPACE_LOG_NS (5 * NS_PER_SEC)

void space_refused(struct node *n, uint64_t bytes)
{
	char want[24], cap[24], priv[24], open[24], mapped[24], dropped[24], persisting[24], pinned[24], kept[24];
	char zombie[24];
	uint64_t now = clock_ns(), refused;
	struct blockers b;
	bool quiet;

	count_add(n, put_nospace, 1);
	pthread_mutex_lock(&n->space.lock);
	quiet = n->space.last_log_ns && now - n->space.last_log_ns < NOSPACE_LOG_NS;
	if (!quiet)
		n->space.last_log_ns = now;
	refused = n->space.refused;
	pthread_mutex_unlock(&n->space.lock);
	if (quiet)
		return;
	sum_blockers(n, &b);
	log_warn(
	    "no room for %s in %s of memory and nothing can be evicted: %s being written, %s open, %s mapped, "
	    "%s deleted but still open, %s of deleted values still mapped, %s on its way to SSD, %s pinned, %s refused "
	    "by the master",
	    size_format(bytes, want, sizeof(want)), size_format(n->capacity, cap, sizeof(cap)),
	    size_format(count_get(n, dram_reserved), priv, sizeof(priv)), size_format(b.open, open, sizeof(open)),
	    size_format(b.mapped, mapped, sizeof(mapped)), size_format(b.dropped, dropped, sizeof(dropped)),
	    size_format(count_get(n, dram_zombie), zombie, sizeof(zombie)),
	    size_format(b.persisting, persisting, sizeof(persisting)), size_format(b.pinned, pinned, sizeof(pinned)),
	    size_format(refused, kept, sizeof(kept)));
}

int space_call(struct node *n, struct msg *(*make)(void *arg), void *arg, uint64_t bytes, struct msg **ret_answer)
{
	uint64_t deadline = clock_ns() + SPACE_WAIT_NS, gen;
	bool last = bytes > n->capacity;
	struct msg *m;
	int r;

	for (;;) {
		pthread_mutex_lock(&n->space.lock);
		gen = n->space.gen;
		pthread_mutex_unlock(&n->space.lock);
		m = make(arg);
		if (!m)
			return -ENOMEM;
		r = node_call_wait(n, m, ret_answer);
		if (r != -ENOSPC)
			return r;
		if (ret_answer)
			*ret_answer = msg_free(*ret_answer);
		if (last)
			break;
		/* Not every room that comes is told of: asked for once more at the end. */
		last = !space_wait(n, gen, bytes, deadline);
	}
	space_refused(n, bytes);
	return -ENOSPC;
}

/* ---- on request --------------------------------------------------------------------------------------------- */

/* Takes one block out of the policy for an eviction that somebody asked for. */
static int claim(struct node *n, struct victims *v, uint64_t put_id, uint32_t index, bool force)
{
	struct block_shard *s = block_lock(n, put_id, index);
	struct block *b = block_find(s, put_id, index);
	int r = 0;

	if (!b || !(b->flags & BLOCK_MEM)) {
		r = -ENODATA;
	} else if (!evictable(b) || !pin_allows(n, b) || (!force && !is_on_ssd(n, b))) {
		r = -EBUSY;
	} else {
		pthread_mutex_lock(&n->policy_lock);
		policy_remove(n->policy, &b->policy);
		pthread_mutex_unlock(&n->policy_lock);
		take(v, b);
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* The kernel tells us of a close(2) only when that has returned: who closed and then asks should not be refused. */
#define CLOSED_NS (100 * NS_PER_MS)

static int claim_soon(struct node *n, struct victims *v, uint64_t put_id, uint32_t index, bool force, uint64_t until)
{
	const struct timespec pause = {.tv_nsec = 2 * NS_PER_MS};
	int r;

	while ((r = claim(n, v, put_id, index, force)) == -EBUSY && clock_ns() < until)
		nanosleep(&pause, NULL);
	return r;
}

static int evict_dram_wait(struct node *n, const struct msg_attr *a, uint64_t blocks, bool force)
{
	struct victims v = {.n = n, .max = blocks};
	uint64_t until = clock_ns() + CLOSED_NS;
	int r = 0, busy = 0;

	v.b = calloc(blocks ? blocks : 1, sizeof(*v.b));
	if (!v.b)
		return -ENOMEM;
	for (uint64_t i = 0; i < blocks; i++)
		if (claim_soon(n, &v, a->id, (uint32_t)i, force, until) == -EBUSY)
			busy = -EBUSY;
	if (v.count)
		evict_victims(n, &v, force ? MSG_ITEM_FORCE : MSG_ITEM_KEEP, &r);
	else if (!busy)
		r = -ENODATA;
	free(v.b);
	reclaim_flush(n);
	return r ? r : busy;
}

/* The SSD copy may go: memory has a replica that stays, or by force, while nobody needs it. Call with the shard locked.
 */
static bool ssd_spare(const struct block *b, bool force)
{
	/* What the master has let go, or may be letting go at this moment, is no replica. */
	if ((b->flags & BLOCK_MEM) && !(b->flags & (BLOCK_TEMP | BLOCK_EVICT)))
		return true;
	return force && !b->holders && !(b->flags & (BLOCK_REFILL | BLOCK_PIN));
}

static int evict_ssd_wait(struct node *n, const struct msg_attr *a, uint64_t blocks, bool force)
{
	struct msg *m = items_msg(MSG_SSD_EVICT, blocks), *answer = NULL;
	int r = m ? 0 : -ENOMEM, busy = 0;

	for (uint64_t i = 0; m && i < blocks; i++) {
		struct block_shard *s = block_lock(n, a->id, (uint32_t)i);
		struct block *b = block_find(s, a->id, (uint32_t)i);

		if (b && (b->flags & BLOCK_SSD)) {
			if (!ssd_spare(b, force)) {
				busy = -EBUSY;
			} else {
				block_drop_ssd(n, b);
				m->items[m->n_items++] = (struct msg_item){.put_id = a->id, .block = (uint32_t)i};
				block_settle(n, s, b);
			}
		}
		pthread_mutex_unlock(&s->lock);
	}
	if (!m || !m->n_items) {
		msg_free(m);
		return r ? r : busy ? busy : -ENODATA;
	}
	r = node_call_wait(n, m, &answer);
	for (size_t i = 0; r == 0 && i < answer->n_items; i++)
		if (answer->items[i].flags & MSG_ITEM_GONE)
			node_tell_gone(n, a->id, 0, NULL);
	msg_free(answer);
	return r ? r : busy;
}

int evict_version_wait(struct node *n, const struct msg_attr *a, enum node_tier tier, bool force)
{
	uint64_t blocks = a->block_size ? block_count(a->size, a->block_size) : 0;

	if (blocks > MSG_MAX_ITEMS)
		return -E2BIG;
	return tier == NODE_TIER_SSD ? evict_ssd_wait(n, a, blocks, force) : evict_dram_wait(n, a, blocks, force);
}

/* ---- the thread --------------------------------------------------------------------------------------------- */

/* Waits for work. Returns the list to reclaim; *stop when there will be no more. */
static struct reclaim *wait_work(struct node *n, uint64_t until, bool *stop)
{
	struct reclaimer *q = &n->reclaimer;
	struct reclaim *list;
	struct timespec ts = clock_timespec(until);
	int r = 0;

	pthread_mutex_lock(&q->lock);
	q->busy = false;
	q->done = q->taken;
	pthread_cond_broadcast(&q->progress);
	while (!q->head && !q->kick && !q->stop && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&q->wake, &q->lock, &ts);
	list = q->head;
	q->head = NULL;
	q->tail = &q->head;
	q->taken = q->pushed;
	q->kick = false;
	q->busy = true;
	*stop = q->stop && !list;
	pthread_mutex_unlock(&q->lock);
	return list;
}

static void *evictor_thread(void *arg)
{
	struct node *n = arg;
	struct victims v = {.n = n, .max = VICTIMS_MAX};
	uint64_t beat = clock_ns() + HOUSEKEEPING_NS, until = beat, again = beat;
	uint64_t renew = clock_ns() + n->renew_ns;
	bool stop, waiting;

	v.b = calloc(VICTIMS_MAX, sizeof(*v.b));
	for (;;) {
		uint64_t want, now;

		reclaim_list(n, wait_work(n, until, &stop));
		if (stop)
			break;
		want = bytes_short(n, &waiting);
		now = clock_ns();
		if (now >= beat) {
			/* A member's heart must beat while this thread waits for the master. */
			if (!n->member)
				evict_heartbeat(n, room_answer);
			if (now >= renew) {
				put_renew_all(n);
				renew = now + n->renew_ns;
			}
			beat = now + HOUSEKEEPING_NS;
		}
		if (now >= again)
			again = now + (persist_again(n) ? AGAIN_NS : HOUSEKEEPING_NS);
		until = again < beat ? again : beat;
		v.spare = !waiting;
		if (want && v.b && evict_round(n, &v, want))
			continue;
		/* Without anybody waiting, whatever makes a victim of a block wakes us. */
		if (waiting && now + RETRY_NS < until)
			until = now + RETRY_NS;
	}
	free(v.b);
	return NULL;
}

void evict_init(struct node *n)
{
	pthread_mutex_init(&n->space.lock, NULL);
	clock_cond_init(&n->space.freed);
	pthread_mutex_init(&n->reclaimer.lock, NULL);
	clock_cond_init(&n->reclaimer.wake);
	pthread_cond_init(&n->reclaimer.progress, NULL);
	n->reclaimer.tail = &n->reclaimer.head;
}

int evict_start(struct node *n)
{
	int r = pthread_create(&n->evictor, NULL, evictor_thread, n);

	n->evictor_runs = !r;
	return -r;
}

void evict_stop(struct node *n)
{
	if (!n->evictor_runs)
		return;
	pthread_mutex_lock(&n->reclaimer.lock);
	n->reclaimer.stop = true;
	pthread_cond_signal(&n->reclaimer.wake);
	pthread_mutex_unlock(&n->reclaimer.lock);
	pthread_join(n->evictor, NULL);
	n->evictor_runs = false;
}

void evict_drain(struct node *n)
{
	struct reclaimer *q = &n->reclaimer;

	while (q->head) {
		struct reclaim *list = q->head;

		q->head = NULL;
		q->tail = &q->head;
		reclaim_list(n, list);
	}
}

void evict_fini(struct node *n)
{
	pthread_cond_destroy(&n->reclaimer.progress);
	pthread_cond_destroy(&n->reclaimer.wake);
	pthread_mutex_destroy(&n->reclaimer.lock);
	pthread_cond_destroy(&n->space.freed);
	pthread_mutex_destroy(&n->space.lock);
}
