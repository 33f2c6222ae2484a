/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of private versions. A write whose range is granted and allocated is one pwrite() on the caller's thread;
 * whatever must first get a ticket, room or a copy of an older version is a job, one at a time for a put (put.work).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "store/impl.h"

#define COPY_CHUNK (1u << 20)
#define WRITE_SEGMENTS 4

/* ---- quiet -------------------------------------------------------------------------------------------------- */

void put_freeze(struct put *p)
{
	pthread_mutex_lock(&p->lock);
	p->frozen++;
	while (p->users || p->state == PUT_PUBLISHING || p->state == PUT_STARTING)
		pthread_cond_wait(&p->settled, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

void put_thaw(struct put *p)
{
	pthread_mutex_lock(&p->lock);
	p->frozen--;
	pthread_cond_broadcast(&p->settled);
	pthread_mutex_unlock(&p->lock);
}

/* Call with p->lock held. */
static void user_done(struct put *p)
{
	if (!--p->users)
		pthread_cond_broadcast(&p->settled);
}

/* ---- files -------------------------------------------------------------------------------------------------- */

/* Block i of the ticket, which nobody else sees any more. Freeing its pages takes long: not with a lock held. */
static void drop_block(struct node *n, uint64_t ticket, uint32_t i, const struct put_block *b)
{
	if (b->spilled)
		spill_drop(n, ticket, i);
	if (b->fd >= 0) {
		close(b->fd);
		segment_unlink(n->seg, b->alloc);
	}
}

void put_forget_files(struct put *p)
{
	for (size_t i = 0; i < p->n_blocks; i++) {
		if (p->blocks[i].fd >= 0)
			close(p->blocks[i].fd);
		count_sub(p->n, dram_reserved, p->blocks[i].granted);
	}
	free(p->blocks);
	p->blocks = NULL;
	p->n_blocks = 0;
	p->ticket = 0;
	p->state = PUT_CLEAN;
	p->lost = 0;
}

static void revoke_answer(void *arg, const struct msg *m)
{
	space_freed(arg);
	node_told(arg);
}

void put_discard_files(struct put *p)
{
	struct put_block *blocks;
	uint64_t ticket;
	struct msg *m;
	size_t n;

	pthread_mutex_lock(&p->lock);
	blocks = p->blocks;
	n = p->n_blocks;
	ticket = p->ticket;
	p->blocks = NULL;
	p->n_blocks = 0;
	put_forget_files(p);
	pthread_mutex_unlock(&p->lock);
	for (size_t i = 0; i < n; i++) {
		drop_block(p->n, ticket, (uint32_t)i, &blocks[i]);
		count_sub(p->n, dram_reserved, blocks[i].granted);
	}
	free(blocks);
	m = ticket ? msg_new(MSG_PUT_REVOKE) : NULL;
	if (!m)
		return;
	m->u.put.ticket = ticket;
	count_add(p->n, puts_revoked, 1);
	node_tell(p->n, m, revoke_answer);
}

void put_discard(struct put *p)
{
	put_discard_files(p);
	p->base = version_close(p->base);
}

/* ---- room --------------------------------------------------------------------------------------------------- */

struct extend {
	struct put *p;
	uint32_t block;
	uint64_t bytes;
};

static struct msg *make_extend(void *arg)
{
	struct extend *x = arg;
	struct msg *m = msg_new(MSG_PUT_EXTEND);

	if (!m || msg_alloc_items(m, 1) < 0)
		return msg_free(m);
	m->u.put.ticket = x->p->ticket;
	m->items[0] = (struct msg_item){.block = x->block, .bytes = x->bytes};
	return m;
}

int put_grant(struct put *p, uint32_t block, uint64_t need, uint64_t want)
{
	struct extend x = {.p = p, .block = block, .bytes = want};
	struct msg *answer = NULL, *m = make_extend(&x);
	struct put_block *b;
	int r = m ? node_call_wait(p->n, m, &answer) : -ENOMEM;

	if (r == -ENOSPC) {
		answer = msg_free(answer);
		if (p->blocks[block].granted >= need)
			return 0;
		x.bytes = need;
		r = space_call(p->n, make_extend, &x, need - p->blocks[block].granted, &answer);
	}
	if (r == 0 && answer->n_items != 1)
		r = -EPROTO;
	if (r == 0) {
		pthread_mutex_lock(&p->lock);
		b = &p->blocks[block];
		b->alloc = answer->items[0].alloc;
		count_add(p->n, dram_reserved, answer->items[0].bytes - b->granted);
		b->granted = answer->items[0].bytes;
		pthread_mutex_unlock(&p->lock);
		if (answer->items[0].bytes < need)
			r = -ENOSPC;
	}
	msg_free(answer);
	evict_check(p->n);
	return r;
}

/* Makes the block's file at least len long, all of it allocated. */
static int fill_block(struct put *p, uint32_t block, uint64_t len, uint64_t full, uint64_t guess)
{
	struct put_block *b = &p->blocks[block];
	uint64_t hint = segment_reserve_hint(b->filled, len, guess < p->block_size ? guess : p->block_size);
	int fd = b->fd, r = 0;

	if (hint > p->block_size)
		hint = p->block_size;
	if (b->granted < segment_charge(hint)) {
		r = spill_make_room(p, segment_charge(hint) - b->granted, full, block);
		if (r < 0)
			return r;
		r = put_grant(p, block, segment_charge(len), segment_charge(hint));
	}
	if (r < 0)
		return r;
	if (b->granted < segment_charge(hint))
		hint = len;
	if (fd < 0)
		r = segment_create(p->n->seg, b->alloc, &fd);
	if (r < 0)
		return r;
	r = segment_reserve(p->n->seg, fd, hint);
	pthread_mutex_lock(&p->lock);
	b->fd = fd;
	if (r == 0)
		b->filled = hint;
	pthread_mutex_unlock(&p->lock);
	return r;
}

static int grow_blocks(struct put *p, size_t want)
{
	struct put_block *blocks;

	if (want <= p->n_blocks)
		return 0;
	blocks = calloc(want, sizeof(*blocks));
	if (!blocks)
		return -ENOMEM;
	pthread_mutex_lock(&p->lock);
	if (p->n_blocks)
		memcpy(blocks, p->blocks, p->n_blocks * sizeof(*blocks));
	for (size_t i = p->n_blocks; i < want; i++)
		blocks[i].fd = -1;
	free(p->blocks);
	p->blocks = blocks;
	p->n_blocks = want;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/* Whether that many bytes could ever be had here, with all else gone: nothing is evicted for what cannot be. */
static bool could_fit(struct node *n, uint64_t bytes)
{
	uint64_t ssd = 0;

	if (bytes > n->capacity)
		node_ssd_room(n, &ssd, NULL);
	return bytes <= n->capacity || bytes - n->capacity <= ssd;
}

/* Everything below full is there; makes all below end so, granted and allocated. The put is PUT_OPEN. */
static int fill_to(struct put *p, uint64_t full, uint64_t end, uint64_t guess)
{
	uint64_t blocks = block_count(end, p->block_size), i;
	int r;

	if (end > INT64_MAX || blocks > MSG_MAX_ITEMS)
		return -EFBIG;
	if (!could_fit(p->n, end)) {
		space_refused(p->n, end);
		return -ENOSPC;
	}
	r = grow_blocks(p, blocks);
	for (i = full ? (full - 1) / p->block_size : 0; r == 0 && i < blocks; i++) {
		uint64_t len = block_len(end, p->block_size, i);
		uint64_t part = guess > i * p->block_size ? guess - i * p->block_size : 0;

		if (p->blocks[i].filled < len)
			r = fill_block(p, (uint32_t)i, len, full > i * p->block_size ? full : i * p->block_size, part);
	}
	return r;
}

/* ---- a copy of its own -------------------------------------------------------------------------------------- */

/* The block of the base that off lies in. */
struct base_block {
	uint64_t from, len;
	struct ssd_key key;
};

/* Whether the SSD tier alone has it. */
static bool can_load(const struct put *p, struct version *base, uint64_t off, struct base_block *ret)
{
	ret->from = off - off % p->block_size;
	ret->len = base->size - ret->from < p->block_size ? base->size - ret->from : p->block_size;
	return version_block_on_ssd(base, (uint32_t)(off / p->block_size), &ret->key);
}

/*
 * The block that off lies in, if only the SSD tier has it, straight into our file. Brought into memory first it would
 * need its room a second time, while we have ours: many who copy would wait for each other. What was copied of it
 * before it was evicted is read again. *off moves behind it; where it does not, it must be copied.
 */
static int load_block(struct put *p, struct version *base, uint64_t keep, uint64_t *off)
{
	struct base_block b;
	int r;

	if (!can_load(p, base, *off, &b))
		return 0;
	if (spill_is_late(p->n, b.key))
		return -EIO;
	r = fill_to(p, b.from, b.from + b.len, b.from + b.len);
	if (r == 0)
		r = spill_load(p->n, b.key, p->blocks[*off / p->block_size].fd, b.len);
	if (r == 0)
		*off = b.from + b.len;
	/* Of the last block a part may be all that is kept. */
	if (r == 0 && *off > keep) {
		*off = keep;
		r = put_trim(p, keep);
	}
	/* Not what was written: none of it may stay, and that copy is gone from here on. */
	if (r == -EBADMSG) {
		*off = b.from;
		put_trim(p, *off);
	}
	/* That copy is no good, or cannot be had now: who waits for it in the usual way finds out, and says so. */
	return r == -ENOENT || r == -EBADMSG || r == -EAGAIN ? 0 : r;
}

/* At most a chunk of the base, that an object larger than memory can spill behind it. */
static int copy_chunk(struct put *p, struct version *base, uint64_t keep, char *buf, uint64_t *off)
{
	uint64_t in = *off % p->block_size, len = p->block_size - in, before = *off;
	struct base_block b;
	int r;

	if (len > keep - *off)
		len = keep - *off;
	if (len > COPY_CHUNK)
		len = COPY_CHUNK;
	r = fill_to(p, *off, *off + len, keep);
	/* Our room may have been made by evicting what is to be copied. */
	if (r == 0 && can_load(p, base, *off, &b)) {
		r = load_block(p, base, keep, off);
		if (r || *off != before)
			return r;
		/* A block that turned out to be damaged has taken our file with it. */
		r = fill_to(p, *off, *off + len, keep);
	}
	if (r == 0)
		r = version_read_wait(base, *off, buf, len);
	if (r == 0 && pwrite(p->blocks[*off / p->block_size].fd, buf, len, (off_t)in) != (ssize_t)len)
		r = -EIO;
	*off += len;
	return r;
}

static int copy_base(struct put *p, struct version *base, uint64_t keep)
{
	char *buf = malloc(COPY_CHUNK);
	uint64_t off = 0, before;
	int r = buf ? 0 : -ENOMEM;

	while (r == 0 && off < keep) {
		before = off;
		r = load_block(p, base, keep, &off);
		if (r == 0 && off == before)
			r = copy_chunk(p, base, keep, buf, &off);
	}
	free(buf);
	return r;
}

/* It has bytes of its own now: the name, if there is one, stands for it here. */
static void expose(struct put *p)
{
	pthread_mutex_lock(&p->n->overlay.lock);
	pthread_mutex_lock(&p->lock);
	p->exposed = p->named;
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&p->n->overlay.lock);
}

int put_unshare(struct put *p, uint64_t keep)
{
	struct version *base = p->base;
	int r;

	if (p->state == PUT_OPEN)
		return 0;
	if (!base || keep > base->size)
		keep = base ? base->size : 0;
	/* Blocks as large as the old version's, so that what the SSD tier alone has can come straight into ours. */
	r = put_start_wait(p, keep ? keep : SEGMENT_PAGE, keep ? base->block_size : 0);
	if (r == 0)
		r = copy_base(p, base, keep);
	if (r < 0) {
		put_discard_files(p);
		return r;
	}
	pthread_mutex_lock(&p->lock);
	if (p->size > keep)
		p->size = keep;
	p->base = NULL;
	pthread_mutex_unlock(&p->lock);
	version_close(base);
	expose(p);
	return 0;
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

struct segment_io {
	int fd;
	uint64_t off;
	size_t len;
};

/* Whether a write that is answered already is still to reach the files there. Call with p->lock held. */
static bool is_behind(const struct put *p, uint64_t off, size_t len)
{
	for (int i = 0; i < PUT_BEHIND_MAX; i++)
		if (p->behind[i].off < off + len && off < p->behind[i].end)
			return true;
	return false;
}

/*
 * The files that [off, off + len) lies in, and the right to use them until user_done(). Returns their number; 0 when
 * the range is not there yet, or is spread over too many, or the put is frozen by somebody else than the caller, or
 * an earlier write is still on its way there. Call with p->lock held.
 */
static int take_range(struct put *p, uint64_t off, size_t len, bool froze_it, struct segment_io io[WRITE_SEGMENTS])
{
	int n = 0;

	if (p->state != PUT_OPEN || (p->frozen && !froze_it) || !len || off > (uint64_t)INT64_MAX - len)
		return 0;
	if (is_behind(p, off, len))
		return 0;
	while (len) {
		uint64_t i = off / p->block_size, in = off % p->block_size;
		size_t part = len < p->block_size - in ? len : (size_t)(p->block_size - in);

		if (n == WRITE_SEGMENTS || i >= p->n_blocks || p->blocks[i].fd < 0 || p->blocks[i].filled < in + part)
			return 0;
		io[n++] = (struct segment_io){p->blocks[i].fd, in, part};
		off += part;
		len -= part;
	}
	p->users++;
	return n;
}

static int write_range(const struct segment_io *io, int n, const char *buf)
{
	for (int i = 0; i < n; i++) {
		size_t done = 0;

		while (done < io[i].len) {
			ssize_t w = pwrite(io[i].fd, buf + done, io[i].len - done, (off_t)(io[i].off + done));

			if (w < 0 && errno == EINTR)
				continue;
			if (w <= 0)
				return w < 0 ? -errno : -EIO;
			done += (size_t)w;
		}
		buf += io[i].len;
	}
	return 0;
}

/* The bytes up to end are, or are about to be, in the files. Call with p->lock held. */
static void grown(struct put *p, uint64_t end)
{
	if (p->size < end)
		p->size = end;
	p->dirty = true;
	p->attr.mtime_ns = p->attr.ctime_ns = clock_real_ns();
}

/* 1: written. 0: a job must make way first. */
static int write_now(struct put *p, uint64_t off, const void *buf, size_t len, bool froze_it)
{
	struct segment_io io[WRITE_SEGMENTS];
	int n, r;

	pthread_mutex_lock(&p->lock);
	r = p->lost;
	n = r ? 0 : take_range(p, off, len, froze_it, io);
	pthread_mutex_unlock(&p->lock);
	if (!n)
		return r;
	r = write_range(io, n, buf);
	pthread_mutex_lock(&p->lock);
	if (r == 0)
		grown(p, off + len);
	user_done(p);
	pthread_mutex_unlock(&p->lock);
	return r < 0 ? r : 1;
}

/* ---- answered before it is copied ---------------------------------------------------------------------------- */

struct behind {
	struct put_behind *slot;
	struct segment_io io[WRITE_SEGMENTS];
	int n;
};

/*
 * The room of [off, off + len) is there: makes the range this write's own and the file as long, so that it can be
 * answered; behind_copy() then has no reason to fail, and if it does, nothing of the put is ever published. The writer
 * makes its next request meanwhile, and nobody else gets at the range. False: it must go another way.
 */
static bool behind_begin(struct put *p, uint64_t off, size_t len, bool froze_it, struct behind *ret)
{
	ret->n = 0;
	pthread_mutex_lock(&p->lock);
	for (ret->slot = p->behind; ret->slot < p->behind + PUT_BEHIND_MAX; ret->slot++)
		if (!ret->slot->end)
			break;
	if (ret->slot < p->behind + PUT_BEHIND_MAX && !p->lost)
		ret->n = take_range(p, off, len, froze_it, ret->io);
	if (ret->n) {
		*ret->slot = (struct put_behind){off, off + len};
		grown(p, off + len);
	}
	pthread_mutex_unlock(&p->lock);
	return ret->n;
}

static void behind_copy(struct put *p, const struct behind *b, const void *buf)
{
	int r = write_range(b->io, b->n, buf);

	pthread_mutex_lock(&p->lock);
	*b->slot = (struct put_behind){0};
	if (r < 0)
		p->lost = r;
	user_done(p);
	pthread_mutex_unlock(&p->lock);
	if (r < 0)
		log_error("copying what was written into its memory file failed, it is not published: %s",
			  strerror(-r));
}

enum io_kind {
	IO_WRITE,
	IO_TRUNCATE,
	IO_EMPTY,
	IO_ALLOCATE,
	IO_READ,
};

struct io_op {
	struct work work;
	struct put *p; /* a reference */
	enum io_kind kind;
	uint64_t off;
	size_t len;
	const void *buf;
	void *into;
	bool keep_size;
	node_done_fn fn;
	void (*copied)(void *arg);
	put_read_fn read_fn;
	void *arg;
};

/*
 * One block's part after the other, so that any number of blocks will do, spilled ones too. A range in one block may be
 * left for behind_copy().
 */
static int write_parts(struct put *p, uint64_t off, const char *buf, size_t len, uint64_t guess, struct behind *behind)
{
	bool alone = off % p->block_size + len <= p->block_size;

	while (len) {
		uint64_t in = off % p->block_size, end;
		size_t part = len < p->block_size - in ? len : (size_t)(p->block_size - in);
		int r;

		end = off + part;
		r = end > p->size ? fill_to(p, p->size, end, guess) : 0;
		if (r == 0)
			r = spill_restore(p, p->size, (uint32_t)(off / p->block_size));
		if (r < 0)
			return r;
		if (alone && behind_begin(p, off, len, true, behind))
			return 0;
		r = write_now(p, off, buf, part, true);
		if (r <= 0)
			return r ? r : -EIO;
		off = end;
		buf += part;
		len -= part;
	}
	return 0;
}

static uint64_t size_guess(struct put *p)
{
	return atomic_load_explicit(&p->n->guess[p->dir % GUESS_SLOTS], memory_order_relaxed);
}

static int write_slow(struct put *p, uint64_t off, const void *buf, size_t len, struct behind *behind)
{
	int r;

	if (off > (uint64_t)INT64_MAX - len)
		return -EFBIG;
	r = put_unshare(p, UINT64_MAX);
	if (r == 0)
		r = write_parts(p, off, buf, len, size_guess(p), behind);
	return r;
}

int put_trim(struct put *p, uint64_t size)
{
	uint64_t keep = block_count(size, p->block_size ? p->block_size : 1);
	int r = 0;

	for (size_t i = 0; i < p->n_blocks; i++) {
		struct put_block *b = &p->blocks[i], was = *b;
		uint64_t len = i < keep ? block_len(size, p->block_size, i) : 0;

		if (len && b->filled <= len)
			continue;
		if (len)
			r = segment_trim(p->n->seg, b->fd, len, NULL);
		if (r < 0)
			break;
		pthread_mutex_lock(&p->lock);
		b->filled = len;
		b->fd = len ? b->fd : -1;
		b->spilled = b->spilled && len;
		pthread_mutex_unlock(&p->lock);
		if (!len)
			drop_block(p->n, p->ticket, (uint32_t)i, &was);
	}
	return r;
}

static int truncate_slow(struct put *p, uint64_t size, bool by_open)
{
	bool written = size != p->size && !by_open; /* put_unshare() cuts too */
	int r = 0;

	if (size > INT64_MAX)
		return -EFBIG;
	if (size == p->size && !p->born && !by_open)
		return 0;
	if (p->state == PUT_CLEAN && size == 0) {
		/* Nothing of the old version is wanted: no copy. */
		p->base = version_close(p->base);
	} else {
		r = put_unshare(p, size);
		if (r == 0 && size > p->size)
			r = fill_to(p, p->size, size, size);
		else if (r == 0 && size % p->block_size)
			r = spill_restore(p, p->size, (uint32_t)(size / p->block_size));
		if (r == 0 && size < p->size)
			r = put_trim(p, size);
	}
	if (r == 0) {
		pthread_mutex_lock(&p->lock);
		p->dirty = p->dirty || written;
		p->born = p->born || size == 0;
		p->size = size;
		/* Emptied, it has nothing that could be lost. */
		p->lost = size ? p->lost : 0;
		p->attr.mtime_ns = p->attr.ctime_ns = clock_real_ns();
		pthread_mutex_unlock(&p->lock);
		if (p->state == PUT_CLEAN)
			expose(p);
	}
	return r;
}

static int allocate_slow(struct put *p, uint64_t off, uint64_t len, bool keep_size)
{
	uint64_t end;
	int r;

	if (!len || off > (uint64_t)INT64_MAX - len)
		return len ? -EFBIG : -EINVAL;
	end = off + len;
	r = put_unshare(p, UINT64_MAX);
	if (r == 0)
		r = fill_to(p, p->size, end, end);
	if (r < 0 || keep_size)
		return r;
	pthread_mutex_lock(&p->lock);
	if (p->size < end) {
		p->size = end;
		p->dirty = true;
		p->attr.mtime_ns = p->attr.ctime_ns = clock_real_ns();
	}
	pthread_mutex_unlock(&p->lock);
	return 0;
}

static void io_job(struct work *w)
{
	struct io_op *op = container_of(w, struct io_op, work);
	struct put *p = op->p;
	struct behind behind = {.n = 0};
	int r;

	pthread_mutex_lock(&p->work);
	/* A publish on its way ends first; it needs no job to do so. */
	put_freeze(p);
	switch (op->kind) {
	case IO_WRITE:
		r = write_slow(p, op->off, op->buf, op->len, &behind);
		break;
	case IO_TRUNCATE:
	case IO_EMPTY:
		r = truncate_slow(p, op->off, op->kind == IO_EMPTY);
		break;
	default:
		r = allocate_slow(p, op->off, op->len, op->keep_size);
		break;
	}
	put_thaw(p);
	pthread_mutex_unlock(&p->work);
	count_sub(p->n, parked, 1);
	op->fn(op->arg, r);
	if (behind.n)
		behind_copy(p, &behind, op->buf);
	if (op->copied)
		op->copied(op->arg);
	put_unref(p);
	free(op);
}

static void io_submit(struct put *p, const struct io_op *what)
{
	struct io_op *op = malloc(sizeof(*op));

	if (!op) {
		what->fn(what->arg, -ENOMEM);
		if (what->copied)
			what->copied(what->arg);
		return;
	}
	*op = *what;
	op->p = put_ref(p);
	count_add(p->n, parked, 1);
	workq_submit(p->n->wq, &op->work, io_job);
}

void put_write(struct put *p, uint64_t off, const void *buf, size_t len, node_done_fn fn, void (*copied)(void *arg),
	       void *arg)
{
	struct io_op op = {
	    .kind = IO_WRITE, .off = off, .buf = buf, .len = len, .fn = fn, .copied = copied, .arg = arg};
	struct behind behind;
	int r;

	if (behind_begin(p, off, len, false, &behind)) {
		fn(arg, 0);
		behind_copy(p, &behind, buf);
		copied(arg);
		return;
	}
	r = len ? write_now(p, off, buf, len, false) : 1;
	if (!r) {
		io_submit(p, &op);
		return;
	}
	fn(arg, r < 0 ? r : 0);
	copied(arg);
}

void put_empty(struct put *p, node_done_fn fn, void *arg)
{
	struct io_op op = {.kind = IO_EMPTY, .fn = fn, .arg = arg};

	io_submit(p, &op);
}

void put_truncate(struct put *p, uint64_t size, node_done_fn fn, void *arg)
{
	struct io_op op = {.kind = IO_TRUNCATE, .off = size, .fn = fn, .arg = arg};

	io_submit(p, &op);
}

void put_allocate(struct put *p, uint64_t off, uint64_t len, bool keep_size, node_done_fn fn, void *arg)
{
	struct io_op op = {.kind = IO_ALLOCATE, .off = off, .len = len, .keep_size = keep_size, .fn = fn, .arg = arg};

	io_submit(p, &op);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static ssize_t read_range(const struct segment_io *io, int n, char *buf)
{
	ssize_t sum = 0;

	for (int i = 0; i < n; i++) {
		size_t done = 0;

		while (done < io[i].len) {
			ssize_t r = pread(io[i].fd, buf + done, io[i].len - done, (off_t)(io[i].off + done));

			if (r < 0 && errno == EINTR)
				continue;
			if (r <= 0)
				return r < 0 ? -errno : -EIO;
			done += (size_t)r;
		}
		buf += done;
		sum += (ssize_t)done;
	}
	return sum;
}

/*
 * Reads what is there now: n >= 0. -EAGAIN: the put is not quiet, ask again from a job. With *ret_base: the bytes are
 * those of that version, a reference.
 */
static ssize_t read_now(struct put *p, uint64_t off, void *buf, size_t len, struct version **ret_base)
{
	struct segment_io io[WRITE_SEGMENTS];
	ssize_t r;
	int n = 0;

	pthread_mutex_lock(&p->lock);
	if (p->lost) {
		r = p->lost;
		pthread_mutex_unlock(&p->lock);
		return r;
	}
	if (off >= p->size)
		len = 0;
	else if (len > p->size - off)
		len = (size_t)(p->size - off);
	if (len && p->state == PUT_CLEAN && !p->frozen) {
		*ret_base = version_ref(p->base);
	} else if (len && p->state == PUT_OPEN) {
		/* Four blocks at once at most; the caller comes back for the rest. */
		if (len > p->block_size * (WRITE_SEGMENTS - 1))
			len = (size_t)(p->block_size * (WRITE_SEGMENTS - 1));
		n = take_range(p, off, len, false, io);
	}
	pthread_mutex_unlock(&p->lock);
	if (*ret_base || !len)
		return (ssize_t)len;
	if (!n)
		return -EAGAIN;
	r = read_range(io, n, buf);
	pthread_mutex_lock(&p->lock);
	user_done(p);
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* What lies in one block, with everybody else kept out: it may have to come back from the SSD tier. */
static ssize_t read_frozen(struct put *p, uint64_t off, char *buf, size_t len, struct version **ret_base)
{
	struct segment_io io[WRITE_SEGMENTS];
	ssize_t r = 0;
	int n = 0;

	pthread_mutex_lock(&p->work);
	put_freeze(p);
	if (off >= p->size)
		len = 0;
	else if (len > p->size - off)
		len = (size_t)(p->size - off);
	if (p->lost) {
		r = p->lost;
	} else if (len && p->state == PUT_CLEAN) {
		*ret_base = version_ref(p->base);
		r = (ssize_t)len;
	} else if (len) {
		uint64_t in = off % p->block_size;

		if (len > p->block_size - in)
			len = (size_t)(p->block_size - in);
		r = spill_restore(p, p->size, (uint32_t)(off / p->block_size));
		pthread_mutex_lock(&p->lock);
		if (r == 0)
			n = take_range(p, off, len, true, io);
		pthread_mutex_unlock(&p->lock);
		if (r == 0)
			r = n ? read_range(io, n, buf) : -EIO;
		pthread_mutex_lock(&p->lock);
		if (n)
			user_done(p);
		pthread_mutex_unlock(&p->lock);
	}
	put_thaw(p);
	pthread_mutex_unlock(&p->work);
	return r;
}

/* All of it, in a job. */
static ssize_t read_slow(struct put *p, uint64_t off, char *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		struct version *base = NULL;
		ssize_t r = read_now(p, off + done, buf + done, len - done, &base);

		if (r == -EAGAIN)
			r = read_frozen(p, off + done, buf + done, len - done, &base);
		if (base && r > 0) {
			int e = version_read_wait(base, off + done, buf + done, (size_t)r);

			r = e < 0 ? e : r;
		}
		version_close(base);
		if (r < 0)
			return r;
		if (!r)
			break;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

static void read_job(struct work *w)
{
	struct io_op *op = container_of(w, struct io_op, work);
	ssize_t r = read_slow(op->p, op->off, op->into, op->len);

	count_sub(op->p->n, parked, 1);
	op->read_fn(op->arg, r < 0 ? (int)r : 0, r < 0 ? 0 : (size_t)r);
	put_unref(op->p);
	free(op);
}

void put_read(struct put *p, uint64_t off, void *buf, size_t len, put_read_fn fn, void *arg)
{
	struct version *base = NULL;
	ssize_t r = read_now(p, off, buf, len, &base);
	struct io_op *op;

	/* Short only at the end of file: anything else goes the slow way, from the start. */
	if (!base && r >= 0) {
		struct msg_attr a;

		put_getattr(p, &a);
		if ((size_t)r == len || off + (uint64_t)r >= a.size) {
			fn(arg, 0, (size_t)r);
			return;
		}
	}
	version_close(base);
	op = malloc(sizeof(*op));
	if (!op) {
		fn(arg, -ENOMEM, 0);
		return;
	}
	*op = (struct io_op){
	    .p = put_ref(p), .kind = IO_READ, .off = off, .into = buf, .len = len, .read_fn = fn, .arg = arg};
	count_add(p->n, parked, 1);
	workq_submit(p->n->wq, &op->work, read_job);
}
