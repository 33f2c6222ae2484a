/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spilling: a private version that does not fit memory beside everything else keeps its older blocks on the SSD tier
 * while later ones are written. They are keyed by the put's ticket, before any route exists, and held, so that the ring
 * keeps them. A spilled block that is read or written again comes back into memory first. At publish it is an SSD
 * replica as it is, still under the ticket's key: the aliases tell the ring's notices which version that is.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/impl.h"

/* ---- aliases ------------------------------------------------------------------------------------------------ */

struct alias {
	struct list link;
	uint64_t ssd_id, put_id;
	uint64_t left; /* blocks that use it */
};

uint64_t alias_resolve(struct node *n, uint64_t ssd_id)
{
	struct list *l, *tmp;

	if (!atomic_load_explicit(&n->n_aliases, memory_order_relaxed))
		return ssd_id;
	pthread_mutex_lock(&n->alias_lock);
	list_for_each(l, tmp, &n->aliases)
	{
		struct alias *a = container_of(l, struct alias, link);

		if (a->ssd_id == ssd_id) {
			ssd_id = a->put_id;
			break;
		}
	}
	pthread_mutex_unlock(&n->alias_lock);
	return ssd_id;
}

int alias_add(struct node *n, uint64_t ssd_id, uint64_t put_id, uint64_t blocks)
{
	struct alias *a = malloc(sizeof(*a));

	if (!a)
		return -ENOMEM;
	*a = (struct alias){.ssd_id = ssd_id, .put_id = put_id, .left = blocks};
	pthread_mutex_lock(&n->alias_lock);
	list_add_tail(&a->link, &n->aliases);
	atomic_fetch_add_explicit(&n->n_aliases, 1, memory_order_relaxed);
	pthread_mutex_unlock(&n->alias_lock);
	return 0;
}

void alias_put(struct node *n, uint64_t ssd_id)
{
	struct list *l, *tmp;

	pthread_mutex_lock(&n->alias_lock);
	list_for_each(l, tmp, &n->aliases)
	{
		struct alias *a = container_of(l, struct alias, link);

		if (a->ssd_id != ssd_id)
			continue;
		if (!--a->left) {
			list_del(&a->link);
			free(a);
			atomic_fetch_sub_explicit(&n->n_aliases, 1, memory_order_relaxed);
		}
		break;
	}
	pthread_mutex_unlock(&n->alias_lock);
}

/* ---- out and back ------------------------------------------------------------------------------------------- */

/*
 * What the device reads or writes for a private version. The last of the two frees it: who waits, or, when that one has
 * given up, the device, which may use the mapping until it has answered.
 */
struct spill_io {
	struct node *n;
	struct ssd_key key;
	struct list link; /* late_lock: in node.late, once a read is */
	void *map;
	uint64_t len;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over; /* lock */
	bool late; /* lock: nobody waits any more */
	int err;   /* lock */
};

static void spill_io_free(struct spill_io *io)
{
	segment_unmap(io->map, io->len);
	pthread_cond_destroy(&io->cond);
	pthread_mutex_destroy(&io->lock);
	free(io);
}

static int spill_io_new(struct node *n, struct ssd_key key, int fd, uint64_t len, int prot, struct spill_io **ret)
{
	struct spill_io *io = calloc(1, sizeof(*io));
	int r = io ? segment_map(n->seg, fd, len, prot, &io->map) : -ENOMEM;

	if (r < 0) {
		free(io);
		return r;
	}
	io->n = n;
	io->key = key;
	list_init(&io->link);
	io->len = len;
	pthread_mutex_init(&io->lock, NULL);
	clock_cond_init(&io->cond);
	*ret = io;
	return 0;
}

static void late_add(struct spill_io *io)
{
	pthread_mutex_lock(&io->n->late_lock);
	list_add_tail(&io->link, &io->n->late);
	pthread_mutex_unlock(&io->n->late_lock);
}

static void late_remove(struct spill_io *io)
{
	pthread_mutex_lock(&io->n->late_lock);
	list_del(&io->link);
	pthread_mutex_unlock(&io->n->late_lock);
}

bool spill_is_late(struct node *n, struct ssd_key key)
{
	struct list *l, *tmp;
	bool late = false;

	pthread_mutex_lock(&n->late_lock);
	list_for_each(l, tmp, &n->late)
	{
		const struct spill_io *io = container_of(l, struct spill_io, link);

		late |= io->key.id == key.id && io->key.block == key.block;
	}
	pthread_mutex_unlock(&n->late_lock);
	return late;
}

static void spill_over(void *arg, int err, uint64_t sum)
{
	struct spill_io *io = arg;
	bool late;

	pthread_mutex_lock(&io->lock);
	io->err = err;
	io->over = true;
	late = io->late;
	pthread_cond_signal(&io->cond);
	pthread_mutex_unlock(&io->lock);
	if (late) {
		late_remove(io);
		spill_io_free(io);
	}
}

/* Waits for the device and lets go of io. -EIO: it is silent. */
static int spill_wait(struct node *n, int device, struct spill_io *io, bool write)
{
	bool silent;
	int r;

	pthread_mutex_lock(&io->lock);
	tier_wait(n, device, &io->lock, &io->cond, &io->over);
	io->late = !io->over;
	r = io->over ? io->err : -EIO;
	silent = io->late;
	if (silent && !write)
		late_add(io);
	pthread_mutex_unlock(&io->lock);
	if (silent)
		count_add(n, miss_timeout, !write);
	else
		spill_io_free(io);
	return r;
}

static struct ssd_key spill_key(const struct put *p, uint32_t i)
{
	return (struct ssd_key){.id = p->ticket, .block = i};
}

void spill_drop(struct node *n, uint64_t ticket, uint32_t i)
{
	struct ssd_key key = {.id = ticket, .block = i};

	ssd_unhold(n->ssd, key);
	ssd_drop(n->ssd, key);
}

/* Gives the block's grant back to the master. */
static void give_back(struct put *p, uint32_t i)
{
	struct msg *m = msg_new(MSG_PUT_EXTEND);

	count_sub(p->n, dram_reserved, p->blocks[i].granted);
	p->blocks[i].granted = 0;
	p->blocks[i].alloc = 0;
	if (m && msg_alloc_items(m, 1) == 0) {
		m->u.put.ticket = p->ticket;
		m->items[0] = (struct msg_item){.block = i, .bytes = 0};
		node_call_wait(p->n, m, NULL);
	} else {
		msg_free(m);
	}
	space_freed(p->n);
}

/* Copies a full block to the SSD tier, waiting for the ring, and frees its memory. */
static int spill_block(struct put *p, uint32_t i)
{
	struct put_block *b = &p->blocks[i];
	struct spill_io *io;
	int r = spill_io_new(p->n, spill_key(p, i), b->fd, b->filled, PROT_READ, &io);

	if (r < 0)
		return r;
	r = ssd_write(p->n->ssd, spill_key(p, i), io->map, b->filled, NULL, SSD_WAIT, spill_over, io);
	if (r < 0) {
		spill_io_free(io);
		return r;
	}
	r = spill_wait(p->n, ssd_device_of(p->n->ssd, spill_key(p, i)), io, true);
	if (r < 0) {
		/* Still on its way, perhaps: not as this block, which may change from here on. */
		ssd_drop(p->n->ssd, spill_key(p, i));
		return r;
	}
	/* Held before the commit pin goes, so that there is no moment at which the ring may take it. */
	r = ssd_hold(p->n->ssd, spill_key(p, i));
	ssd_commit_done(p->n->ssd, spill_key(p, i));
	if (r < 0) {
		ssd_drop(p->n->ssd, spill_key(p, i));
		return r;
	}
	close(b->fd);
	segment_unlink(p->n->seg, b->alloc);
	b->fd = -1;
	b->spilled = true;
	give_back(p, i);
	return 0;
}

/*
 * The full blocks of what is being written take at most three eighths of the memory, all private versions together:
 * several large ones would fill it, and nothing of them can be evicted. Half may be open past us (fuse/passthrough.c),
 * and refills need the rest.
 */
int spill_make_room(struct put *p, uint64_t need, uint64_t full, uint32_t keep)
{
	struct node *n = p->n;
	int r = 0;

	if (!n->ssd)
		return 0;
	for (uint32_t i = 0; i < p->n_blocks && count_get(n, dram_reserved) + need > n->capacity / 8 * 3 && r == 0;
	     i++) {
		const struct put_block *b = &p->blocks[i];

		if (i == keep || b->fd < 0 || b->filled != p->block_size || (i + 1) * p->block_size > full)
			continue;
		r = spill_block(p, i);
	}
	/* A tier that cannot take it now is no error: memory may still do. */
	return r == -ENOMEM ? r : 0;
}

int spill_load(struct node *n, struct ssd_key key, int fd, uint64_t len)
{
	int device = ssd_device_of(n->ssd, key);
	struct spill_io *io;
	void *map;
	int r = spill_io_new(n, key, fd, len, PROT_READ | PROT_WRITE, &io);

	if (r < 0)
		return r;
	r = ssd_read(n->ssd, key, io->map, segment_charge(len), len, spill_over, io);
	if (r < 0)
		spill_io_free(io);
	else
		r = spill_wait(n, device, io, false);
	if (r < 0 || len == segment_charge(len))
		return r;
	r = segment_map(n->seg, fd, len, PROT_READ | PROT_WRITE, &map);
	if (r < 0)
		return r;
	segment_zero_tail(map, len);
	segment_unmap(map, len);
	return 0;
}

static int read_back(struct put *p, uint32_t i, int fd)
{
	int r = segment_reserve(p->n->seg, fd, p->block_size);

	if (r == 0)
		r = spill_load(p->n, spill_key(p, i), fd, p->block_size);
	return r < 0 && r != -ENOMEM ? -EIO : r;
}

int spill_restore(struct put *p, uint64_t full, uint32_t i)
{
	int fd, r;

	if (i >= p->n_blocks || !p->blocks[i].spilled)
		return 0;
	if (spill_is_late(p->n, spill_key(p, i)))
		return -EIO;
	r = spill_make_room(p, p->block_size, full, i);
	if (r == 0)
		r = put_grant(p, i, p->block_size, p->block_size);
	if (r == 0)
		r = segment_create(p->n->seg, p->blocks[i].alloc, &fd);
	if (r < 0)
		return r;
	r = read_back(p, i, fd);
	if (r < 0) {
		close(fd);
		segment_unlink(p->n->seg, p->blocks[i].alloc);
		give_back(p, i);
		return r;
	}
	spill_drop(p->n, p->ticket, i);
	pthread_mutex_lock(&p->lock);
	p->blocks[i].fd = fd;
	p->blocks[i].spilled = false;
	pthread_mutex_unlock(&p->lock);
	return 0;
}
