/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/options.h"

#include <errno.h>
#include <stdio.h>

#include "tests/bench/crew.h"

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static const char *const baseline_words[] = {"both", "tmpfs", "huge", "none", NULL};
static const char *const by_words[] = {"all", "write", "direct", "cp", "dd", NULL};
static const char *const touch_words[] = {"page", "all", NULL};
static const char *const store_words[] = {"rename", "in-place", NULL};

#define FIELD(f) offsetof(struct bench_options, f)
#define VALUES (CMD_READ | CMD_MMAP | CMD_PUT | CMD_REFILL)
#define COMPARED (CMD_READ | CMD_MMAP | CMD_PUT | CMD_OPEN | CMD_TRACE)

const struct argv_option options_table[] = {
    {"size", 's', ARGV_SIZES, FIELD(sizes), 1, GIB, NULL, VALUES, "SIZE", "bytes of a value; may be repeated"},
    {"piece", 'p', ARGV_SIZE, FIELD(piece), 512, GIB, NULL, VALUES & ~CMD_MMAP, "SIZE",
     "bytes of one read or write [1MiB]"},
    {"total", 't', ARGV_SIZE, FIELD(total), 4 * KIB, 1024 * GIB, NULL, VALUES, "SIZE",
     "bytes of all values of one run [256MiB; refill: 512MiB]"},
    {"files", 'n', ARGV_UINT, FIELD(files), 1, 1000000, NULL, CMD_OPEN, "N", "files in the directory [4000]"},
    {"block-bytes", 'b', ARGV_SIZE, FIELD(block_bytes), 1, GIB, NULL, CMD_TRACE, "SIZE", "bytes of a block [64KiB]"},
    {"requests", 'q', ARGV_UINT, FIELD(requests), 1, 100000000, NULL, CMD_TRACE, "N",
     "stop after so many requests [all]"},
    {"partitions", 'd', ARGV_UINT, FIELD(digits), 0, 3, NULL, CMD_TRACE, "DIGITS",
     "spread the blocks over 16^DIGITS directories, by hash [2]"},
    {"store", 0, ARGV_CHOICE, FIELD(store), 0, 0, store_words, CMD_TRACE, "rename|in-place",
     "a temporary name and rename, or the final name [rename]"},
    {"touch", 0, ARGV_CHOICE, FIELD(touch), 0, 0, touch_words, CMD_MMAP, "page|all",
     "load one word of every page, or all words [page]"},
    {"by", 0, ARGV_CHOICE, FIELD(by), 0, 0, by_words, CMD_PUT, "all|write|direct|cp|dd", "how to write [all]"},
    {"against", 'a', ARGV_STRING, FIELD(against), 0, 0, NULL, COMPARED, "DIR",
     "compare with DIR too, on whatever file system"},
    {"ssd-compare", 0, ARGV_STRING, FIELD(ssd_compare), 0, 0, NULL, CMD_PUT, "DIR",
     "compare with DIR, on a mount without an SSD tier, instead of tmpfs"},
    {"ssd-dir", 0, ARGV_STRING, FIELD(ssd_dir), 0, 0, NULL, CMD_REFILL, "DIR",
     "where fio reads: a directory on the SSD tier's device"},
    {"fluxkv", 0, ARGV_STRING, FIELD(fluxkv), 0, 0, NULL, CMD_REFILL, "PROGRAM",
     "the fluxkv tool, to evict values from memory [fluxkv]"},
    {"socket", 0, ARGV_STRING, FIELD(socket), 0, 0, NULL, CMD_REFILL, "PATH",
     "the control socket that the tool is told to use [its default]"},
    {"evict-cmd", 0, ARGV_STRING, FIELD(evict_cmd), 0, 0, NULL, CMD_REFILL, "COMMAND",
     "a shell command that evicts the files \"$@\" from memory, instead of the tool"},
    {"timeout", 0, ARGV_UINT, FIELD(timeout), 1, 86400, NULL, CMD_REFILL, "SECONDS",
     "how long to wait until values can be evicted [60]"},
    {"baseline", 0, ARGV_CHOICE, FIELD(baseline), 0, 0, baseline_words, COMPARED, "both|tmpfs|huge|none",
     "compare with tmpfs of 4 KiB pages, of huge pages [both; open: tmpfs; trace: none]"},
    {"threads", 'j', ARGV_UINT, FIELD(threads), 1, CREW_MAX, NULL, CMD_ALL, "N", "threads [1; refill: 4]"},
    {"verify", 'v', ARGV_FLAG, FIELD(verify), 0, 0, NULL, VALUES, NULL,
     "compare every byte, not only some of each piece"},
    {"runs", 'r', ARGV_UINT, FIELD(runs), 1, 1000, NULL, CMD_ALL, "N", "runs that count [5; trace: 1]"},
    {"warmup", 0, ARGV_UINT, FIELD(warmup), 0, 100, NULL, CMD_ALL & ~CMD_TRACE, "N", "runs before, which do not [1]"},
    {"seed", 0, ARGV_UINT, FIELD(seed), 0, UINT32_MAX, NULL, CMD_ALL, "N", "what the values consist of [1]"},
    {"json", 0, ARGV_FLAG, FIELD(json), 0, 0, NULL, CMD_ALL, NULL, "print JSON instead of the table"},
    {"help", 'h', ARGV_FLAG, FIELD(help), 0, 0, NULL, CMD_ALL, NULL, "show this"},
};
const size_t options_count = sizeof(options_table) / sizeof(options_table[0]);

void options_default(struct bench_options *o, unsigned command)
{
	*o = (struct bench_options){
	    .sizes = {.v = {16 * MIB, 4 * MIB, 1 * MIB}, .n = command & (CMD_READ | CMD_MMAP) ? 3 : 2},
	    .piece = MIB,
	    .total = command == CMD_REFILL ? 512 * MIB : 256 * MIB,
	    .block_bytes = 64 * KIB,
	    .runs = command == CMD_TRACE ? 1 : 5,
	    .warmup = command == CMD_TRACE ? 0 : 1,
	    .seed = 1,
	    .threads = command == CMD_REFILL ? 4 : 1,
	    .files = 4000,
	    .requests = UINT32_MAX,
	    .digits = 2,
	    .timeout = 60,
	    /* A file of 4 KiB takes 2 MiB of a tmpfs with huge pages: nothing to compare many of them with. */
	    .baseline = command == CMD_TRACE  ? BASELINE_NONE
			: command == CMD_OPEN ? BASELINE_TMPFS
					      : BASELINE_BOTH,
	    .fluxkv = "fluxkv",
	};
}

int options_check(const struct bench_options *o, unsigned command, struct errmsg *e)
{
	for (unsigned i = 0; i < o->sizes.n && command & VALUES; i++)
		if (o->sizes.v[i] > o->total)
			return errmsg_set(e, -EINVAL, "--total is less than --size: not one value fits into a run");
	if (command == CMD_PUT && (o->by == PUT_DIRECT || o->by == PUT_ALL) && o->piece % 4096)
		return errmsg_set(e, -EINVAL, "--piece must be a multiple of 4096 for O_DIRECT (or say --by=write)");
	if (command == CMD_TRACE && o->store == STORE_IN_PLACE && o->threads > 1)
		return errmsg_set(e, -EINVAL,
				  "--store=in-place shows unfinished blocks to other threads: "
				  "it needs --threads=1");
	if (command == CMD_REFILL && !o->ssd_dir)
		return errmsg_set(e, -EINVAL, "refill needs --ssd-dir, a directory on the SSD tier's device");
	if (command == CMD_REFILL && o->evict_cmd && o->socket)
		return errmsg_set(e, -EINVAL, "--evict-cmd and --socket exclude each other");
	return 0;
}

void options_print(unsigned command)
{
	const struct argv_option *o;
	char left[64];

	for (size_t i = 0; i < options_count; i++) {
		o = &options_table[i];
		if (!(o->commands & command))
			continue;
		snprintf(left, sizeof(left), "--%s%s%s", o->name, o->metavar ? "=" : "", o->metavar ? o->metavar : "");
		if (o->letter)
			printf("  -%c, %-32s %s\n", o->letter, left, o->help);
		else
			printf("      %-32s %s\n", left, o->help);
	}
}
