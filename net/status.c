/* SPDX-License-Identifier: Apache-2.0 */
#include "net/status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "net/json.h"

struct size_word {
	char s[24];
};

static struct size_word size_word(uint64_t bytes)
{
	struct size_word w;

	size_format(bytes, w.s, sizeof(w.s));
	return w;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void put_uptime(FILE *f, uint64_t s)
{
	if (s >= 86400)
		fprintf(f, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
	else if (s >= 3600)
		fprintf(f, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	else if (s >= 60)
		fprintf(f, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else
		fprintf(f, "%" PRIu64 " s", s);
}

static void put_head(FILE *f, const json_t *j)
{
	fprintf(f, "FluxKV %s: instance %s of cluster %s (%s), pid %" PRIu64 ", up ", json_str(j, "version"),
		json_str(j, "instance"), json_str(j, "cluster"), json_str(j, "source"), json_u64(j, "pid"));
	put_uptime(f, (uint64_t)json_num(j, "uptime_seconds"));
	/* Not "kill PID": the reader may be in another pid namespace than the daemon. */
	if (json_is_false(json_at(j, "mounted")))
		fprintf(f,
			"\nunmounted from %s, and still in use by open files, or by a mount namespace that has a copy "
			"of the "
			"mount; SIGTERM ends it\n\n",
			json_str(j, "mountpoint"));
	else
		fprintf(f, "\nmounted on %s\n\n", json_str(j, "mountpoint"));
}

static void put_tier(FILE *f, const char *name, const json_t *t)
{
	uint64_t capacity = json_u64(t, "capacity"), used = json_u64(t, "used");

	fprintf(f, "%-5s %10s %10s %5.1f%% %10s %10" PRIu64 "\n", name, size_word(capacity).s, size_word(used).s,
		percent(used, capacity), size_word(json_u64(t, "reserved")).s, json_u64(t, "objects"));
}

static void put_devices(FILE *f, const json_t *devices)
{
	size_t i;
	json_t *d;

	json_array_foreach (devices, i, d) {
		fprintf(f, "  %s: %s of %s used", json_str(d, "path"), size_word(json_u64(d, "used")).s,
			size_word(json_u64(d, "capacity")).s);
		fputs(json_is_true(json_at(d, "failed")) ? ", FAILED, taken out\n" : "\n", f);
	}
}

static void put_tiers(FILE *f, const json_t *j)
{
	uint64_t zombie = json_u64(j, "dram.zombie");
	const json_t *ssd = json_at(j, "ssd");

	fprintf(f, "%-5s %10s %10s %6s %10s %10s\n", "TIER", "CAPACITY", "USED", "", "RESERVED", "BLOCKS");
	put_tier(f, "dram", json_at(j, "dram"));
	if (zombie)
		fprintf(f, "  %s more are held by readers of values that are gone\n", size_word(zombie).s);
	if (json_is_object(ssd)) {
		put_tier(f, "ssd", ssd);
		put_devices(f, json_at(ssd, "devices"));
	} else {
		fputs("ssd   none\n", f);
	}
}

/* Named numbers; the words are the keys, with spaces for underscores. */
static void put_numbers(FILE *f, const json_t *numbers)
{
	json_t *obj = (json_t *)numbers, *v;
	bool first = true;
	const char *key;

	json_object_foreach (obj, key, v) {
		fputs(first ? "" : ", ", f);
		first = false;
		/* The loop needs key itself to find the next. */
		for (const char *p = key; *p; p++)
			fputc(*p == '_' ? ' ' : *p, f);
		fprintf(f, " %" PRIu64, json_u64(v, ""));
	}
	fputc('\n', f);
}

static void put_counts(FILE *f, const char *title, const json_t *counts)
{
	json_t *obj = (json_t *)counts, *v;
	const char *key;
	uint64_t sum = 0;

	json_object_foreach (obj, key, v)
		sum += json_u64(v, "");
	fprintf(f, "%-8s %10" PRIu64 ": ", title, sum);
	put_numbers(f, counts);
}

static void put_work(FILE *f, const json_t *j)
{
	put_counts(f, "hits", json_at(j, "hits"));
	put_counts(f, "misses", json_at(j, "misses"));
	fprintf(f, "%-8s %10" PRIu64 ": %s written; given up %" PRIu64 ", no space %" PRIu64 "\n", "puts",
		json_u64(j, "puts.done"), size_word(json_u64(j, "puts.bytes")).s, json_u64(j, "puts.revoked"),
		json_u64(j, "puts.no_space"));
	fprintf(f, "%-8s %10" PRIu64 ": %s read from the SSD; failed %" PRIu64 "\n", "refills",
		json_u64(j, "refills.done"), size_word(json_u64(j, "refills.bytes")).s, json_u64(j, "refills.failed"));
	fprintf(f, "%-8s %10" PRIu64 ": %s written to the SSD, %s to go; dropped %" PRIu64 ", failed %" PRIu64 "\n",
		"persists", json_u64(j, "persists.done"), size_word(json_u64(j, "persists.bytes")).s,
		size_word(json_u64(j, "persists.backlog_bytes")).s, json_u64(j, "persists.dropped"),
		json_u64(j, "persists.failed"));
	put_counts(f, "evicted", json_at(j, "evictions"));
	fprintf(f, "%-20s ", "now");
	put_numbers(f, json_at(j, "now"));
}

/* Nothing where the daemon says nothing: an older one, or one that does not serve yet. */
static void put_reads(FILE *f, const json_t *j)
{
	const json_t *p = json_at(j, "fs.passthrough");

	if (json_is_true(json_at(p, "on")))
		fprintf(f, "%-20s by the kernel from memory (passthrough); %s open\n", "reads",
			size_word(json_u64(p, "held")).s);
	else if (p)
		fprintf(f, "%-20s copied by the daemon; no passthrough: %s\n", "reads", json_str(p, "why_not"));
}

static void put_troubles(FILE *f, const json_t *j)
{
	uint64_t sums = json_u64(j, "checksum_errors"), stale = json_u64(j, "stale_routes");

	if (sums || stale)
		fprintf(f, "%-8s checksum errors %" PRIu64 ", stale routes %" PRIu64 "\n", "troubles", sums, stale);
}

char *status_text(const json_t *status)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	put_head(f, status);
	put_tiers(f, status);
	fputc('\n', f);
	put_work(f, status);
	put_reads(f, status);
	put_troubles(f, status);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}
