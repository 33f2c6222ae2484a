/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

static size_t size_of(unsigned n_keys, unsigned n_workers)
{
	return sizeof(struct arena) + n_workers * sizeof(struct arena_tally) + n_keys * sizeof(struct arena_key);
}

struct arena *arena_new(unsigned n_keys, unsigned n_workers)
{
	size_t size = size_of(n_keys, n_workers);
	struct arena *a = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (a == MAP_FAILED)
		return NULL;
	a->n_keys = n_keys;
	a->n_workers = n_workers;
	a->tallies = (struct arena_tally *)(a + 1);
	a->keys = (struct arena_key *)(a->tallies + n_workers);
	atomic_flag_clear(&a->told);
	for (unsigned i = 0; i < n_keys; i++)
		atomic_flag_clear(&a->keys[i].busy);
	return a;
}

struct arena *arena_free(struct arena *a)
{
	if (a)
		munmap(a, size_of(a->n_keys, a->n_workers));
	return NULL;
}

void arena_tell(struct arena *a, const char *fmt, ...)
{
	va_list ap;

	if (atomic_flag_test_and_set(&a->told))
		return;
	va_start(ap, fmt);
	vsnprintf(a->text, sizeof(a->text), fmt, ap);
	va_end(ap);
}
