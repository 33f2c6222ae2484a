/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/report.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "fuse/fs.h"
#include "fuse/mountpoint.h"
#include "master/local.h"
#include "net/ctl.h"
#include "net/rpc_client.h"
#include "ssd/ssd.h"
#include "store/node.h"

#define I(x) ((json_int_t)(x))

json_t *report_hello(const struct report *r)
{
	return json_pack("{s:b,s:i,s:s,s:I,s:s,s:o}", "ok", 1, "protocol", CTL_PROTOCOL, "version", PACKAGE_VERSION,
			 "pid", I(getpid()), "instance", r->instance, "mountpoint", ctl_name_to_json(r->mountpoint));
}

static json_t *devices(const struct ssd_stats *s)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < s->n_devices; i++) {
		const struct ssd_device_stats *d = &s->dev[i];

		json_array_append_new(list, json_pack("{s:o,s:b,s:I,s:I,s:I,s:I,s:I}", "path",
						      ctl_name_to_json(d->path), "failed", (int)d->failed, "capacity",
						      I(d->capacity), "used", I(d->used), "held", I(d->held), "objects",
						      I(d->entries), "backlog", I(d->backlog)));
	}
	return list;
}

static json_t *ssd_tier(const struct report *r, const struct node_stats *n)
{
	struct ssd_stats s;

	if (node_get_ssd_stats(r->node, &s))
		return json_null();
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:o}", "capacity", I(n->ssd_capacity), "used", I(n->ssd_used),
			 "reserved", I(0), "held", I(s.held), "objects", I(n->ssd_objects), "devices", devices(&s));
}

static json_t *dram_tier(const struct node_stats *n)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I}", "capacity", I(n->dram_capacity), "used", I(n->dram_used), "reserved",
			 I(n->dram_reserved), "zombie", I(n->dram_zombie), "objects", I(n->dram_objects));
}

static json_t *hits(const struct node_stats *n)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I}", "memory_local", I(n->hits_mem_local), "memory_remote",
			 I(n->hits_mem_remote), "ssd_local", I(n->hits_ssd_local), "ssd_remote", I(n->hits_ssd_remote),
			 "unknown", I(n->hits_unknown));
}

static json_t *misses(const struct node_stats *n)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "never_stored", I(n->miss_never), "evicted", I(n->miss_evicted),
			 "expired", I(n->miss_expired), "owner_lost", I(n->miss_owner_lost), "checksum",
			 I(n->miss_checksum), "timeout", I(n->miss_timeout));
}

static void add_work(json_t *j, const struct node_stats *n)
{
	json_object_set_new(j, "hits", hits(n));
	json_object_set_new(j, "misses", misses(n));
	json_object_set_new(j, "gets", json_pack("{s:I}", "bytes", I(n->gets_bytes)));
	json_object_set_new(j, "puts",
			    json_pack("{s:I,s:I,s:I,s:I}", "done", I(n->puts), "bytes", I(n->put_bytes), "revoked",
				      I(n->puts_revoked), "no_space", I(n->put_nospace)));
	json_object_set_new(j, "refills",
			    json_pack("{s:I,s:I,s:I}", "done", I(n->refills), "bytes", I(n->refill_bytes), "failed",
				      I(n->refill_failures)));
	json_object_set_new(j, "fetches",
			    json_pack("{s:I,s:I,s:I}", "done", I(n->fetches), "bytes", I(n->fetch_bytes), "failed",
				      I(n->fetch_failures)));
	json_object_set_new(j, "serves",
			    json_pack("{s:I,s:I,s:I}", "done", I(n->serves), "bytes", I(n->serve_bytes), "failed",
				      I(n->serve_failures)));
	json_object_set_new(j, "persists",
			    json_pack("{s:I,s:I,s:I,s:I,s:I}", "done", I(n->persists), "bytes", I(n->persist_bytes),
				      "failed", I(n->persist_failures), "dropped", I(n->persist_dropped),
				      "backlog_bytes", I(n->persist_backlog_bytes)));
	json_object_set_new(j, "evictions",
			    json_pack("{s:I,s:I}", "dram", I(n->evictions_dram), "ssd", I(n->evictions_ssd)));
	json_object_set_new(j, "now",
			    json_pack("{s:I,s:I,s:I,s:I}", "private_versions", I(n->private_versions), "open_versions",
				      I(n->open_versions), "blocks", I(n->blocks), "parked", I(n->parked)));
	json_object_set_new(j, "checksum_errors", json_integer(I(n->checksum_errors)));
	json_object_set_new(j, "stale_routes", json_integer(I(n->stale_routes)));
}

/* The connection to a master elsewhere. */
static json_t *connection_part(const struct report *r, const struct node_stats *n)
{
	struct rpc_client_stats c;

	rpc_client_get_stats(r->rpc, &c);
	return json_pack("{s:I,s:b,s:s?,s:I,s:I,s:I,s:I}", "messages", I(n->master_messages), "connected", (int)c.up,
			 "error", c.error ? strerror(-c.error) : NULL, "connects", I(c.connects), "breaks", I(c.breaks),
			 "resent", I(c.resent), "timed_out", I(c.timed_out));
}

static json_t *master_part(const struct report *r, const struct node_stats *n)
{
	struct local_master_stats m;

	if (!r->master)
		return connection_part(r, n);
	local_master_get_stats(r->master, &m);
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "messages", I(n->master_messages), "objects",
			 I(m.objects), "directories", I(m.directories), "namespaces", I(m.namespaces), "used",
			 I(m.used), "reserved", I(m.reserved), "commits", I(m.commits), "commit_failures",
			 I(m.commit_failures));
}

static json_t *fs_part(const struct report *r)
{
	struct fs *fs = atomic_load(&r->fs);
	struct fs_stats f;

	if (!fs)
		return json_null();
	fs_get_stats(fs, &f);
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:{s:b,s:s?,s:I}}", "requests", I(f.requests), "in_flight",
			 I(f.in_flight), "waited", I(f.parked), "interrupted", I(f.interrupted), "errors_io",
			 I(f.errors_io), "inodes", I(f.inodes), "handles", I(f.handles), "max_write", I(f.max_write),
			 "passthrough", "on", !f.no_passthrough, "why_not", f.no_passthrough, "held",
			 I(f.passthrough_held));
}

/* What umount(8) leaves when files are open, or when another mount namespace has a copy, is no mount to us. */
static bool is_mounted(const struct report *r)
{
	struct fs *fs = atomic_load(&r->fs);

	if (!fs || access("/proc/self/mountinfo", R_OK))
		return true; /* nothing tells otherwise */
	return mountpoint_has(r->mountpoint, fs_device(fs), getpid());
}

json_t *report_status(const struct report *r)
{
	struct node_stats n;
	json_t *j;

	node_get_stats(r->node, &n);
	j = json_pack("{s:b,s:s,s:s,s:s,s:s,s:I,s:f,s:o,s:b}", "ok", 1, "version", PACKAGE_VERSION, "instance",
		      r->instance, "cluster", r->cluster, "source", r->source, "pid", I(getpid()), "uptime_seconds",
		      (double)(clock_ns() - r->started) / (double)NS_PER_SEC, "mountpoint",
		      ctl_name_to_json(r->mountpoint), "mounted", (int)is_mounted(r));
	json_object_set_new(j, "dram", dram_tier(&n));
	json_object_set_new(j, "ssd", ssd_tier(r, &n));
	add_work(j, &n);
	json_object_set_new(j, "master", master_part(r, &n));
	json_object_set_new(j, "fs", fs_part(r));
	return j;
}
