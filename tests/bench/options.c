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

static const char *const target_words[] = {"fluxkv", "memcached", "redis", "files", NULL}; /* as in backend_list */
static const char *const tiers_words[] = {"both", "dram", "ssd", NULL};
static const char *const output_words[] = {"holder", "bytes", "both", NULL};
static const char *const on_miss_words[] = {"leave", "put", "both", NULL};

#define FIELD(f) offsetof(struct bench_options, f)
#define VALUES (CMD_READ | CMD_MMAP | CMD_PUT | CMD_REFILL)
#define COMPARED (CMD_READ | CMD_MMAP | CMD_PUT | CMD_OPEN | CMD_TRACE)

const struct argv_option options_table[] = {
    {"start", 0, ARGV_FLAG, FIELD(start), 0, 0, NULL, CMD_PRESSURE | CMD_GROWTH | CMD_SUITE, NULL,
     "start all that is measured, in private directories, instead of taking DIR"},
    {"target", 0, ARGV_SET, FIELD(pressure.targets), 0, 0, target_words, CMD_PRESSURE, "fluxkv|memcached|redis|files",
     "what to measure; may be repeated [with --start all]"},
    {"payload", 0, ARGV_SIZES, FIELD(pressure.payloads), 4 * KIB, GIB, NULL, CMD_PRESSURE, "SIZE",
     "values of SIZE less 128 bytes; may be repeated [1, 4, 8, 16 MiB]"},
    {"clients", 0, ARGV_UINTS, FIELD(pressure.clients), 1, CREW_MAX, NULL, CMD_PRESSURE, "N",
     "threads in all, four a process; may be repeated [2, 4, 8, 16]"},
    {"output", 0, ARGV_CHOICE, FIELD(pressure.output), 0, 0, output_words, CMD_PRESSURE, "holder|bytes|both",
     "a reference, or a copy of all bytes [both]"},
    {"on-miss", 0, ARGV_CHOICE, FIELD(pressure.on_miss), 0, 0, on_miss_words, CMD_PRESSURE, "leave|put|both",
     "only read, or put again what was missed [leave]"},
    {"tiers", 0, ARGV_CHOICE, FIELD(pressure.tiers), 0, 0, tiers_words, CMD_PRESSURE, "both|dram|ssd",
     "without an SSD tier, with one, or both [both]"},
    {"dataset", 0, ARGV_SIZE, FIELD(pressure.dataset), MIB, 1024 * GIB, NULL, CMD_PRESSURE, "SIZE",
     "bytes of all values [2.5GiB]"},
    {"dram", 0, ARGV_SIZE, FIELD(pressure.dram), MIB, 1024 * GIB, NULL, CMD_PRESSURE, "SIZE",
     "DRAM of what is started [4/5 of --dataset]"},
    {"ssd", 0, ARGV_SIZE, FIELD(pressure.ssd), MIB, 1024 * GIB, NULL, CMD_PRESSURE, "SIZE",
     "SSD of what is started [32/5 of --dataset]"},
    {"pace", 0, ARGV_SIZE, FIELD(pressure.pace), 0, 1024 * GIB, NULL, CMD_PRESSURE, "SIZE",
     "the bootstrap puts at most SIZE a second; 0: any [160MiB]"},
    {"warmup", 0, ARGV_UINT, FIELD(pressure.warmup), 0, 3600, NULL, CMD_PRESSURE, "SECONDS",
     "reads before the window [5]"},
    {"window", 0, ARGV_UINT, FIELD(pressure.window), 1, 86400, NULL, CMD_PRESSURE, "SECONDS", "reads that count [30]"},
    {"fluxkvd", 0, ARGV_STRING, FIELD(fluxkvd), 0, 0, NULL, CMD_PRESSURE | CMD_GROWTH | CMD_SUITE, "PROGRAM",
     "the daemon that --start starts [fluxkvd]"},
    {"save", 0, ARGV_STRING, FIELD(pressure.save), 0, 0, NULL, CMD_PRESSURE, "FILE",
     "write the JSON there too, after each cell; cells that are there are not measured again"},
    {"cells", 0, ARGV_UINT, FIELD(pressure.cells), 1, UINT32_MAX, NULL, CMD_PRESSURE, "N",
     "measure N cells at most, and leave the others for the next time [all]"},
    {"size", 's', ARGV_SIZES, FIELD(sizes), 1, GIB, NULL, VALUES, "SIZE", "bytes of a value; may be repeated"},
    {"piece", 'p', ARGV_SIZE, FIELD(piece), 512, GIB, NULL, VALUES & ~CMD_MMAP, "SIZE",
     "bytes of one read or write [1MiB]"},
    {"total", 't', ARGV_SIZE, FIELD(total), 4 * KIB, 1024 * GIB, NULL, VALUES, "SIZE",
     "bytes of all values of one run [256MiB; refill: 512MiB]"},
    {"passes", 0, ARGV_UINT, FIELD(passes), 1, 1000000, NULL, CMD_READ, "N",
     "read each value to its end N times for each open [1]"},
    {"objects", 'n', ARGV_UINTS, FIELD(growth.objects), 1, 100000000, NULL, CMD_GROWTH | CMD_MASTER, "N",
     "how many there are meanwhile; may be repeated, ascending [10000, 100000, 1000000]"},
    {"ops", 0, ARGV_UINT, FIELD(growth.ops), 1, 1000000, NULL, CMD_GROWTH | CMD_MASTER, "N",
     "operations of one kind in one run, at most; --objects also limits them [500; master: 10000]"},
    {"empty", 0, ARGV_FLAG, FIELD(growth.empty), 0, 0, NULL, CMD_GROWTH, NULL, "files of no bytes, not of 4 KiB"},
    {"quick", 0, ARGV_FLAG, FIELD(quick), 0, 0, NULL, CMD_SUITE, NULL, "a first look: fewer bytes, files and runs"},
    {"total", 't', ARGV_SIZE, FIELD(total), 16 * MIB, 1024 * GIB, NULL, CMD_SUITE, "SIZE",
     "bytes of all values of one run, twice that for refills [256MiB; quick: 64MiB]"},
    {"files", 'n', ARGV_UINT, FIELD(files), 1, 1000000, NULL, CMD_SUITE, "N",
     "small files in the directory [4000; quick: 1000]"},
    {"master-objects", 0, ARGV_UINT, FIELD(master_objects), 1000, 100000000, NULL, CMD_SUITE, "N",
     "objects of the master and its catalogue [10000000; quick: 50000]"},
    {"grown-files", 0, ARGV_UINT, FIELD(grown_files), 1000, 100000000, NULL, CMD_SUITE, "N",
     "files in the rows of how costs grow [1000000; quick: 20000]"},
    {"files", 'n', ARGV_UINT, FIELD(files), 1, 1000000, NULL, CMD_OPEN, "N", "files in the directory [4000]"},
    {"block-bytes", 'b', ARGV_SIZE, FIELD(block_bytes), 1, GIB, NULL, CMD_TRACE, "SIZE", "bytes of a block [64KiB]"},
    {"requests", 'q', ARGV_UINT, FIELD(requests), 1, 100000000, NULL, CMD_TRACE, "N",
     "stop after so many requests [all]"},
    {"partitions", 'd', ARGV_UINT, FIELD(digits), 0, 3, NULL, CMD_TRACE | CMD_GROWTH, "DIGITS",
     "spread the files over 16^DIGITS directories, by hash [2]"},
    {"store", 0, ARGV_CHOICE, FIELD(store), 0, 0, store_words, CMD_TRACE, "rename|in-place",
     "a temporary name and rename, or the final name [rename]"},
    {"touch", 0, ARGV_CHOICE, FIELD(touch), 0, 0, touch_words, CMD_MMAP, "page|all",
     "load one word of every page, or all words [page]"},
    {"by", 0, ARGV_CHOICE, FIELD(by), 0, 0, by_words, CMD_PUT, "all|write|direct|cp|dd", "how to write [all]"},
    {"against", 'a', ARGV_STRING, FIELD(against), 0, 0, NULL, COMPARED, "DIR",
     "compare with DIR too, on whatever file system"},
    {"against", 'a', ARGV_STRING, FIELD(against), 0, 0, NULL, CMD_SUITE, "DIR",
     "where the bare FUSE example is mounted, for the rows of small files"},
    {"before", 0, ARGV_STRING, FIELD(before), 0, 0, NULL, CMD_SUITE, "PROGRAM",
     "an earlier fluxkvd: whether anything was lost without passthrough"},
    {"ssd-compare", 0, ARGV_STRING, FIELD(ssd_compare), 0, 0, NULL, CMD_PUT | CMD_PRESSURE | CMD_SUITE, "DIR",
     "compare with DIR, on a mount without an SSD tier"},
    {"ssd-dir", 0, ARGV_STRING, FIELD(ssd_dir), 0, 0, NULL, CMD_REFILL | CMD_PRESSURE | CMD_SUITE, "DIR",
     "on the SSD tier's device: where fio reads; where --start puts the tier [TMPDIR or /var/tmp]"},
    {"fluxkv", 0, ARGV_STRING, FIELD(fluxkv), 0, 0, NULL, CMD_REFILL | CMD_SUITE, "PROGRAM",
     "the fluxkv tool, to evict values from memory [fluxkv]"},
    {"socket", 0, ARGV_STRING, FIELD(socket), 0, 0, NULL, CMD_REFILL | CMD_GROWTH | CMD_SUITE, "PATH",
     "the daemon's control socket [refill: what the tool finds; growth: none, nothing is evicted]"},
    {"evict-cmd", 0, ARGV_STRING, FIELD(evict_cmd), 0, 0, NULL, CMD_REFILL, "COMMAND",
     "a shell command that evicts the files \"$@\" from memory, instead of the tool"},
    {"timeout", 0, ARGV_UINT, FIELD(timeout), 1, 86400, NULL, CMD_REFILL | CMD_GROWTH | CMD_SUITE, "SECONDS",
     "how long to wait until values can be evicted [60]"},
    {"baseline", 0, ARGV_CHOICE, FIELD(baseline), 0, 0, baseline_words, COMPARED, "both|tmpfs|huge|none",
     "compare with tmpfs of 4 KiB pages, of huge pages [both; open: tmpfs; trace: none]"},
    {"threads", 'j', ARGV_UINT, FIELD(threads), 1, CREW_MAX, NULL, CMD_TIMED | CMD_GROWTH, "N",
     "threads [1; refill: 4; growth: 4, which make the files that are there meanwhile]"},
    {"verify", 'v', ARGV_FLAG, FIELD(verify), 0, 0, NULL, VALUES | CMD_PRESSURE | CMD_SUITE, NULL,
     "compare every byte, not only some of each piece"},
    {"runs", 'r', ARGV_UINT, FIELD(runs), 1, 1000, NULL, CMD_MEASURE, "N",
     "runs that count [5; trace, pressure: 1; quick: 3]"},
    {"warmup", 0, ARGV_UINT, FIELD(warmup), 0, 100, NULL,
     (CMD_TIMED & ~CMD_TRACE) | CMD_GROWTH | CMD_MASTER | CMD_SUITE, "N", "runs before, which do not [1]"},
    {"seed", 0, ARGV_UINT, FIELD(seed), 0, UINT32_MAX, NULL, CMD_MEASURE, "N", "what the values consist of [1]"},
    {"json", 0, ARGV_FLAG, FIELD(json), 0, 0, NULL, CMD_MEASURE, NULL, "print JSON instead of the table"},
    {"out-dir", 0, ARGV_STRING, FIELD(out_dir), 0, 0, NULL, CMD_REPORT, "DIR", "where the pictures go [.]"},
    {"help", 'h', ARGV_FLAG, FIELD(help), 0, 0, NULL, CMD_ALL, NULL, "show this"},
};
const size_t options_count = sizeof(options_table) / sizeof(options_table[0]);

/* What was not given depends on --quick, wherever on the line that stands. */
static void default_suite(struct bench_options *o)
{
	o->total = 0;
	o->files = 0;
	o->runs = 0;
	o->master_objects = 0;
	o->grown_files = 0;
}

void options_default(struct bench_options *o, unsigned command)
{
	*o = (struct bench_options){
	    .sizes = {.v = {16 * MIB, 4 * MIB, 1 * MIB}, .n = command & (CMD_READ | CMD_MMAP) ? 3 : 2},
	    .piece = MIB,
	    .total = command == CMD_REFILL ? 512 * MIB : 256 * MIB,
	    .block_bytes = 64 * KIB,
	    .runs = command & (CMD_TRACE | CMD_PRESSURE) ? 1 : 5,
	    .warmup = command == CMD_TRACE ? 0 : 1,
	    .seed = 1,
	    .threads = command & (CMD_REFILL | CMD_GROWTH) ? 4 : 1,
	    .files = 4000,
	    .requests = UINT32_MAX,
	    .digits = 2,
	    .timeout = 60,
	    .passes = 1,
	    /* A file of 4 KiB takes 2 MiB of a tmpfs with huge pages: nothing to compare many of them with. */
	    .baseline = command == CMD_TRACE  ? BASELINE_NONE
			: command == CMD_OPEN ? BASELINE_TMPFS
					      : BASELINE_BOTH,
	    .fluxkv = "fluxkv",
	    .fluxkvd = "fluxkvd",
	    .out_dir = ".",
	    .pressure = {.payloads = {.v = {MIB, 4 * MIB, 8 * MIB, 16 * MIB}, .n = 4},
			 .clients = {.v = {2, 4, 8, 16}, .n = 4},
			 .dataset = 5 * GIB / 2,
			 .pace = 160 * MIB,
			 .warmup = 5,
			 .window = 30,
			 .cells = UINT32_MAX,
			 .output = EITHER_BOTH},
	    .growth = {.objects = {.v = {10000, 100000, 1000000}, .n = 3}, .ops = command == CMD_MASTER ? 10000 : 500},
	};
	if (command == CMD_SUITE)
		default_suite(o);
}

void options_settle(struct bench_options *o)
{
	o->total = o->total ? o->total : o->quick ? 64 * MIB : 256 * MIB;
	o->files = o->files ? o->files : o->quick ? 1000 : 4000;
	o->runs = o->runs ? o->runs : o->quick ? 3 : 5;
	o->master_objects = o->master_objects ? o->master_objects : o->quick ? 50000 : 10000000;
	o->grown_files = o->grown_files ? o->grown_files : o->quick ? 20000 : 1000000;
}

static int check_suite(const struct bench_options *o, struct errmsg *e)
{
	struct bench_options settled = *o;

	options_settle(&settled);
	if (settled.grown_files / 100 < 2 * ((uint64_t)o->warmup + settled.runs))
		return errmsg_set(e, -EINVAL, "--grown-files: a hundredth of %u is too few for so many runs",
				  settled.grown_files);
	if (o->start && o->ssd_compare)
		return errmsg_set(e, -EINVAL, "--start and --ssd-compare exclude each other: it starts both");
	if (o->start && o->socket)
		return errmsg_set(e, -EINVAL, "--start and --socket exclude each other: it starts its own");
	return 0;
}

static int check_pressure(const struct bench_options *o, struct errmsg *e)
{
	const struct pressure_options *p = &o->pressure;

	for (unsigned i = 0; i < p->clients.n; i++)
		if (p->clients.v[i] > 4 && p->clients.v[i] % 4)
			return errmsg_set(e, -EINVAL,
					  "--clients: up to 4, or a multiple of 4 (four threads a process)");
	for (unsigned i = 0; i < p->payloads.n; i++)
		if (p->payloads.v[i] > p->dataset)
			return errmsg_set(e, -EINVAL, "--dataset is less than --payload: it has not one value");
	if (o->start && o->ssd_compare)
		return errmsg_set(e, -EINVAL, "--start and --ssd-compare exclude each other; see --tiers");
	if (p->cells != UINT32_MAX && !p->save)
		return errmsg_set(e, -EINVAL, "--cells needs --save, where the next run finds what this one measured");
	return 0;
}

/* At least the first and each of the others beyond the one before it by so many. */
static int check_objects(const struct bench_options *o, uint64_t least, struct errmsg *e)
{
	const struct argv_sizes *n = &o->growth.objects;
	uint64_t before = 0;

	for (unsigned i = 0; i < n->n; before = n->v[i++])
		if (n->v[i] < before + least)
			return errmsg_set(e, -EINVAL,
					  "--objects: %llu are too few for so many runs, or not ascending by enough",
					  (unsigned long long)n->v[i]);
	return 0;
}

/* Each run looks up two files for each operation, and no file twice. */
static int check_growth(const struct bench_options *o, struct errmsg *e)
{
	int r = check_objects(o, 2 * ((uint64_t)o->warmup + o->runs), e);

	if (r < 0)
		return r;
	if (o->start && o->socket)
		return errmsg_set(e, -EINVAL, "--start and --socket exclude each other");
	return 0;
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
	if (command == CMD_MASTER)
		return check_objects(o, 1, e);
	if (command == CMD_GROWTH)
		return check_growth(o, e);
	if (command == CMD_SUITE)
		return check_suite(o, e);
	return command == CMD_PRESSURE ? check_pressure(o, e) : 0;
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
