/* SPDX-License-Identifier: Apache-2.0 */
#include "net/json.h"

#include <string.h>

json_t *json_at(const json_t *j, const char *way)
{
	json_t *at = (json_t *)j;

	while (at && *way) {
		size_t len = strcspn(way, ".");

		at = json_object_getn(at, way, len);
		way += len + (way[len] == '.');
	}
	return at;
}

uint64_t json_u64(const json_t *j, const char *way)
{
	json_int_t v = json_integer_value(json_at(j, way));

	return v > 0 ? (uint64_t)v : 0;
}

double json_num(const json_t *j, const char *way)
{
	return json_number_value(json_at(j, way));
}

const char *json_str(const json_t *j, const char *way)
{
	const char *s = json_string_value(json_at(j, way));

	return s ? s : "";
}
