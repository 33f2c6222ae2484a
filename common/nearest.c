/* SPDX-License-Identifier: Apache-2.0 */
#include "common/nearest.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

#define WORD_MAX 32

static int min3(int a, int b, int c)
{
	int ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* Letters added, left out, changed or swapped with their neighbour (optimal string alignment). */
static int distance(const char *a, const char *b)
{
	int d[WORD_MAX + 1][WORD_MAX + 1];
	size_t n = strlen(a), m = strlen(b);

	if (n > WORD_MAX || m > WORD_MAX)
		return INT_MAX;
	for (size_t i = 0; i <= n; i++)
		d[i][0] = (int)i;
	for (size_t j = 0; j <= m; j++)
		d[0][j] = (int)j;
	for (size_t i = 1; i <= n; i++)
		for (size_t j = 1; j <= m; j++) {
			int cost = a[i - 1] != b[j - 1];

			d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d[i][j] = min3(d[i][j], d[i - 2][j - 2] + 1, INT_MAX);
		}
	return d[n][m];
}

const char *nearest_word(const char *word, const char *const *list)
{
	const char *best = NULL;
	int least = INT_MAX;

	for (; *list; list++) {
		int d = distance(word, *list);

		if (d < least) {
			least = d;
			best = *list;
		}
	}
	/* One error in a short word, two in a longer one; more is another word. */
	return least <= (strlen(word) < 4 ? 1 : 2) ? best : NULL;
}
