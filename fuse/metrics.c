/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "fuse/fs.h"
#include "fuse/report.h"
#include "master/local.h"
#include "ssd/ssd.h"
#include "store/node.h"

/* One line of the exposition: a member of a struct. Lines of one name stand together. */
struct metric {
	const char *name, *label, *help; /* help only with the first line of a name */
	size_t at;			 /* of a uint64_t */
};

#define NODE(member) offsetof(struct node_stats, member)
#define FS(member) offsetof(struct fs_stats, member)
#define MASTER(member) offsetof(struct local_master_stats, member)

static const struct metric node_metrics[] = {
    {"kvcache_segment_capacity_bytes", NULL, "DRAM that this node contributes", NODE(dram_capacity)},
    {"kvcache_segment_used_bytes", NULL, "DRAM in use, in whole pages", NODE(dram_used)},
    {"kv_ssd_capacity_bytes", NULL, "SSD that this node contributes", NODE(ssd_capacity)},
    {"kv_ssd_used_bytes", NULL, "SSD in use", NODE(ssd_used)},
    {"fluxkv_reserved_bytes", "tier=\"dram\"", "granted and not yet published", NODE(dram_reserved)},
    {"fluxkv_zombie_bytes", NULL, "DRAM that readers of values that are gone still hold", NODE(dram_zombie)},
    {"fluxkv_entries", "tier=\"dram\"", "blocks on the tier", NODE(dram_objects)},
    {"fluxkv_entries", "tier=\"ssd\"", NULL, NODE(ssd_objects)},
    {"fluxkv_hits_total", "source=\"memory-local\"", "opens for reading, by source", NODE(hits_mem_local)},
    {"fluxkv_hits_total", "source=\"memory-remote\"", NULL, NODE(hits_mem_remote)},
    {"fluxkv_hits_total", "source=\"ssd-local\"", NULL, NODE(hits_ssd_local)},
    {"fluxkv_hits_total", "source=\"ssd-remote\"", NULL, NODE(hits_ssd_remote)},
    {"fluxkv_hits_total", "source=\"unknown\"", NULL, NODE(hits_unknown)},
    {"fluxkv_misses_total", "reason=\"never stored\"",
     "lookups and opens that found nothing, those before a create included", NODE(miss_never)},
    {"fluxkv_misses_total", "reason=\"evicted\"", NULL, NODE(miss_evicted)},
    {"fluxkv_misses_total", "reason=\"expired\"", NULL, NODE(miss_expired)},
    {"fluxkv_misses_total", "reason=\"owner lost\"", NULL, NODE(miss_owner_lost)},
    {"fluxkv_misses_total", "reason=\"checksum\"", NULL, NODE(miss_checksum)},
    {"fluxkv_misses_total", "reason=\"timeout\"", NULL, NODE(miss_timeout)},
    {"fluxkv_get_bytes_total", NULL, "bytes copied to readers (not those that the kernel reads by itself)",
     NODE(gets_bytes)},
    {"fluxkv_puts_total", NULL, "versions published", NODE(puts)},
    {"fluxkv_put_bytes_total", NULL, "bytes of published versions", NODE(put_bytes)},
    {"fluxkv_puts_revoked_total", NULL, "writes that were given up", NODE(puts_revoked)},
    {"fluxkv_puts_no_space_total", NULL, "writes that ended with ENOSPC", NODE(put_nospace)},
    {"fluxkv_refills_total", NULL, "blocks brought into memory", NODE(refills)},
    {"fluxkv_refill_bytes_total", NULL, "bytes brought into memory", NODE(refill_bytes)},
    {"fluxkv_refill_failures_total", NULL, "refills that failed", NODE(refill_failures)},
    {"fluxkv_fetches_total", NULL, "blocks that came from other nodes", NODE(fetches)},
    {"fluxkv_fetch_bytes_total", NULL, "bytes that came from other nodes", NODE(fetch_bytes)},
    {"fluxkv_fetch_failures_total", NULL, "blocks that did not come from the node that was asked",
     NODE(fetch_failures)},
    {"fluxkv_serves_total", NULL, "blocks sent to other nodes", NODE(serves)},
    {"fluxkv_serve_bytes_total", NULL, "bytes sent to other nodes", NODE(serve_bytes)},
    {"fluxkv_serve_failures_total", NULL, "blocks that other nodes asked for in vain", NODE(serve_failures)},
    {"fluxkv_evictions_total", "tier=\"dram\"", "blocks evicted from the tier", NODE(evictions_dram)},
    {"fluxkv_evictions_total", "tier=\"ssd\"", NULL, NODE(evictions_ssd)},
    {"fluxkv_persists_total", NULL, "blocks written to the SSD tier", NODE(persists)},
    {"fluxkv_persist_bytes_total", NULL, "bytes written to the SSD tier", NODE(persist_bytes)},
    {"fluxkv_persist_failures_total", NULL, "blocks that the SSD tier failed to take", NODE(persist_failures)},
    {"fluxkv_persist_dropped_total", NULL, "blocks not persisted: the backlog was full", NODE(persist_dropped)},
    {"fluxkv_persist_backlog_bytes", NULL, "bytes that wait for the SSD tier", NODE(persist_backlog_bytes)},
    {"fluxkv_checksum_errors_total", NULL, "blocks that came back with other bytes", NODE(checksum_errors)},
    {"fluxkv_stale_routes_total", NULL, "routes that led to nothing", NODE(stale_routes)},
    {"fluxkv_private_versions", NULL, "versions being written", NODE(private_versions)},
    {"fluxkv_open_versions", NULL, "versions that readers hold", NODE(open_versions)},
    {"fluxkv_blocks", NULL, "blocks in the index", NODE(blocks)},
    {"fluxkv_parked_requests", NULL, "requests that wait for memory, a refill or the master", NODE(parked)},
    {"fluxkv_master_messages_total", NULL, "requests sent to the master", NODE(master_messages)},
};

static const struct metric fs_metrics[] = {
    {"fluxkv_fs_requests_total", NULL, "file-system requests", FS(requests)},
    {"fluxkv_fs_in_flight_requests", NULL, "file-system requests not yet answered", FS(in_flight)},
    {"fluxkv_fs_interrupted_total", NULL, "requests of tasks that were killed", FS(interrupted)},
    {"fluxkv_fs_io_errors_total", NULL, "requests answered with EIO", FS(errors_io)},
    {"fluxkv_fs_inodes", NULL, "inodes that the kernel knows", FS(inodes)},
    {"fluxkv_fs_handles", NULL, "open files", FS(handles)},
    {"fluxkv_fs_passthrough_bytes", NULL, "open values that the kernel reads by itself", FS(passthrough_held)},
};

static const struct metric master_metrics[] = {
    {"fluxkv_master_objects", NULL, "objects in the catalogue", MASTER(objects)},
    {"fluxkv_master_directories", NULL, "directories in the catalogue", MASTER(directories)},
    {"fluxkv_master_namespaces", NULL, "namespaces in the catalogue", MASTER(namespaces)},
    {"fluxkv_master_commits_total", NULL, "transactions of the catalogue", MASTER(commits)},
    {"fluxkv_master_commit_failures_total", NULL, "failed transactions, each tried again", MASTER(commit_failures)},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *type_of(const char *name)
{
	size_t n = strlen(name);

	return n > 6 && !strcmp(name + n - 6, "_total") ? "counter" : "gauge";
}

static void put_help(FILE *f, const char *name, const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type_of(name));
}

static void put_metrics(FILE *f, const struct metric *m, size_t n, const void *values)
{
	for (; n; n--, m++) {
		uint64_t v;

		memcpy(&v, (const char *)values + m->at, sizeof(v));
		if (m->help)
			put_help(f, m->name, m->help);
		fprintf(f, m->label ? "%s{%s} %" PRIu64 "\n" : "%s%s %" PRIu64 "\n", m->name, m->label ? m->label : "",
			v);
	}
}

/* A label's value: a backslash before backslash, quote and newline. */
static void put_label(FILE *f, const char *value)
{
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			fputc('\\', f);
		if (*value == '\n')
			fputs("\\n", f);
		else
			fputc(*value, f);
	}
}

static void put_device_line(FILE *f, const char *name, const char *path, uint64_t v)
{
	fprintf(f, "%s{device=\"", name);
	put_label(f, path);
	fprintf(f, "\"} %" PRIu64 "\n", v);
}

static void put_devices(FILE *f, const struct ssd_stats *s)
{
	put_help(f, "fluxkv_ssd_device_failed", "1: the device is taken out");
	for (unsigned i = 0; i < s->n_devices; i++)
		put_device_line(f, "fluxkv_ssd_device_failed", s->dev[i].path, s->dev[i].failed);
	put_help(f, "fluxkv_ssd_device_failures_total", "how often the device was taken out");
	for (unsigned i = 0; i < s->n_devices; i++)
		put_device_line(f, "fluxkv_ssd_device_failures_total", s->dev[i].path, s->dev[i].failures);
	put_help(f, "fluxkv_ssd_device_capacity_bytes", "bytes of the device's rings");
	for (unsigned i = 0; i < s->n_devices; i++)
		put_device_line(f, "fluxkv_ssd_device_capacity_bytes", s->dev[i].path, s->dev[i].capacity);
	put_help(f, "fluxkv_ssd_device_used_bytes", "bytes of the device's rings in use");
	for (unsigned i = 0; i < s->n_devices; i++)
		put_device_line(f, "fluxkv_ssd_device_used_bytes", s->dev[i].path, s->dev[i].used);
}

static void put_all(FILE *f, const struct report *r)
{
	struct fs *mounted = atomic_load(&r->fs);
	struct local_master_stats m;
	struct node_stats n;
	struct fs_stats fs;
	struct ssd_stats s;

	put_help(f, "fluxkv_info", "1; the labels say what runs");
	fprintf(f, "fluxkv_info{version=\"%s\",instance=\"", PACKAGE_VERSION);
	put_label(f, r->instance);
	fputs("\",cluster=\"", f);
	put_label(f, r->cluster);
	fputs("\"} 1\n", f);
	put_help(f, "fluxkv_uptime_seconds", "since the daemon serves");
	fprintf(f, "fluxkv_uptime_seconds %.3f\n", (double)(clock_ns() - r->started) / (double)NS_PER_SEC);
	node_get_stats(r->node, &n);
	put_metrics(f, node_metrics, COUNT(node_metrics), &n);
	if (!node_get_ssd_stats(r->node, &s))
		put_devices(f, &s);
	if (mounted) {
		fs_get_stats(mounted, &fs);
		put_metrics(f, fs_metrics, COUNT(fs_metrics), &fs);
	}
	if (!r->master)
		return;
	local_master_get_stats(r->master, &m);
	put_metrics(f, master_metrics, COUNT(master_metrics), &m);
}

char *report_metrics(const struct report *r)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	put_all(f, r);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}
