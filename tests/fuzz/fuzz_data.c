/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what comes over a data connection. The first one says which side is ours. A request that is understood
 * is the same when it is said again; an answer never has more than the plan's bytes, and looks whole only with all of
 * them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/data_wire.h"
#include "tests/fuzz/fuzz.h"

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void take_request(const uint8_t *data, size_t len)
{
	uint8_t again[DATA_REQUEST_BYTES];
	struct plan p;
	int r;

	if (len < DATA_REQUEST_BYTES)
		return;
	r = data_decode_request(data, &p);
	must(!r || r == -EPROTO || r == -EBADMSG);
	if (r)
		return;
	data_encode_request(&p, again);
	must(!memcmp(again, data, sizeof(again)));
}

static void take_answer(const uint8_t *data, size_t len)
{
	const struct plan p = {.get_id = 1, .len = 100};
	struct data_answer a;
	uint64_t n = 0, sum = 0;
	int r = 0;

	data_answer_begin(&a, &p);
	while (!r && len >= DATA_PART_BYTES) {
		r = data_answer_take(&a, data, &n);
		must(r == 0 || r == 1 || r == -EPROTO || r == -EBADMSG);
		sum += r ? 0 : n;
		must(sum <= p.len && (r < 0 || a.got == sum));
		n = r ? 0 : n;
		data += DATA_PART_BYTES;
		len -= DATA_PART_BYTES;
		if (n > len)
			return;
		data += n;
		len -= n;
	}
	must(r != 1 || (a.status <= 0 && (a.status || sum == p.len)));
	/* behind its end there is nothing more of it */
	must(r != 1 || len < DATA_PART_BYTES || data_answer_take(&a, data, &n) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size)
		(data[0] & 1 ? take_request : take_answer)(data + 1, size - 1);
	return 0;
}
