/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/backend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct backend_ops *const backend_list[] = {&backend_fluxkv, &backend_memcached, &backend_redis, &backend_files,
						  NULL};

int backend_start(struct backend *b, const struct backend_ops *ops, const struct backend_setup *setup, struct errmsg *e)
{
	*b = (struct backend){.ops = ops,
			      .setup = *setup,
			      .work = TARGET_CLOSED,
			      .ssd = TARGET_CLOSED,
			      .values = TARGET_CLOSED,
			      .service = {.fd = -1}};
	return ops->start(b, e);
}

void backend_end(struct backend *b)
{
	b->ops->stop(b);
	target_close(&b->values);
	target_close(&b->ssd);
	target_close(&b->work);
	cgroup_remove(&b->cgroup);
	cgroup_remove(&b->held);
}

int backend_work(struct backend *b, const char *socket, struct errmsg *e)
{
	int r = target_open(&b->work, "work", target_temp_dir(), e);

	if (r < 0 || !socket)
		return r;
	if (snprintf(b->address, sizeof(b->address), "%.100s/%s", b->work.path, socket) >= (int)sizeof(b->address) ||
	    strlen(b->work.path) > 100)
		return errmsg_set(e, -ENAMETOOLONG, "%s: too long for the address of a socket; set TMPDIR",
				  b->work.path);
	return 0;
}

bool backend_here(const struct backend_ops *ops, const char *fluxkvd, struct errmsg *e)
{
	const char *program = ops == &backend_fluxkv ? fluxkvd : ops->program;

	if (!ops->built)
		errmsg_set(e, -ENOSYS, "%s: this fluxkv-bench was built without its client library (%s); left out",
			   ops->name, ops->package);
	else if (program && !service_find(program) && !ops->package)
		errmsg_set(e, -ENOENT, "%s: there is no program %s (--fluxkvd names one); left out", ops->name, program);
	else if (program && !service_find(program))
		errmsg_set(e, -ENOENT, "%s: there is no program %s (Debian, Ubuntu: apt-get install %s); left out",
			   ops->name, program, ops->package);
	else
		return true;
	return false;
}

void backend_key(unsigned key, char name[static KEY_LEN])
{
	snprintf(name, KEY_LEN, "k%08u", key);
}
