/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON by a dotted way ("tiers.dram.used"). Pure; what is not there is 0, "" or NULL. Any thread. */
#ifndef NET_JSON_H
#define NET_JSON_H

#include <stdint.h>

#include <jansson.h>

/* Borrowed; NULL when a part of the way is missing. */
json_t *json_at(const json_t *j, const char *way);
uint64_t json_u64(const json_t *j, const char *way);
/* Integers and reals. */
double json_num(const json_t *j, const char *way);
/* Borrowed; "" when it is not there or not a string. */
const char *json_str(const json_t *j, const char *way);

#endif
