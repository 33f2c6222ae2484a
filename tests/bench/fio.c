/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/fio.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/child.h"

int fio_parse(const char *json, uint64_t bytes, double *ret_bytes_per_s)
{
	json_int_t read_bytes = 0, bandwidth = 0;
	json_t *root = json_loads(json, JSON_DISABLE_EOF_CHECK, NULL);
	int r = root ? json_unpack(root, "{s:[{s:{s:I, s:I}}]}", "jobs", "read", "io_bytes", &read_bytes, "bw_bytes",
				   &bandwidth)
		     : -1;

	json_decref(root);
	if (r < 0 || bandwidth <= 0 || (uint64_t)read_bytes != bytes)
		return -EBADMSG;
	*ret_bytes_per_s = (double)bandwidth;
	return 0;
}

int fio_randread(const char *path, uint64_t bytes, uint64_t block, unsigned depth, double *ret_bytes_per_s,
		 struct errmsg *e)
{
	char filename[PATH_MAX + 16], size[40], bs[40], iodepth[40], *out = NULL;
	const char *const words[] = {
	    "fio", "--name=refill", "--rw=randread", "--ioengine=io_uring",   "--direct=1",	      size,
	    bs,	   iodepth,	    filename,	     "--allow_file_create=0", "--output-format=json", NULL};
	int r;

	snprintf(filename, sizeof(filename), "--filename=%s", path);
	snprintf(size, sizeof(size), "--size=%llu", (unsigned long long)bytes);
	snprintf(bs, sizeof(bs), "--bs=%llu", (unsigned long long)block);
	snprintf(iodepth, sizeof(iodepth), "--iodepth=%u", depth);
	r = child_run(words, &out, NULL, e);
	if (r == 0 && fio_parse(out, bytes, ret_bytes_per_s) < 0)
		r = errmsg_set(e, -EBADMSG, "cannot read the output of fio");
	free(out);
	return r;
}
