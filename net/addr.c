/* SPDX-License-Identifier: Apache-2.0 */
#include "net/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define PORT_MAX 65535

static int bad(const char *text, struct errmsg *e)
{
	return errmsg_set(e, -EINVAL, "address '%.300s': HOST:PORT or [IPV6]:PORT is expected", text);
}

static bool good_port(const char *port)
{
	size_t n = strspn(port, "0123456789");

	return n && n <= 5 && !port[n] && atoi(port) <= PORT_MAX;
}

int addr_parse(const char *text, struct addr *ret, struct errmsg *e)
{
	const char *colon = strrchr(text, ':'), *host = text;
	size_t len = colon ? (size_t)(colon - text) : 0;

	if (!colon || !good_port(colon + 1))
		return bad(text, e);
	if (*host == '[') {
		if (len < 2 || host[len - 1] != ']')
			return bad(text, e);
		host++;
		len -= 2;
	} else if (memchr(host, ':', len)) {
		return bad(text, e);
	}
	if (!len || len >= sizeof(ret->host))
		return bad(text, e);
	*ret = (struct addr){0};
	memcpy(ret->host, host, len);
	strcpy(ret->port, colon + 1);
	return 0;
}

int addr_parse_number(const char *text, struct sockaddr_storage *ret, struct errmsg *e)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	struct addr a;
	int r = addr_parse(text, &a, e);

	if (r < 0)
		return r;
	*ret = (struct sockaddr_storage){0};
	v4.sin_port = v6.sin6_port = htons((uint16_t)atoi(a.port));
	if (inet_pton(AF_INET, a.host, &v4.sin_addr) == 1)
		memcpy(ret, &v4, sizeof(v4));
	else if (inet_pton(AF_INET6, a.host, &v6.sin6_addr) == 1)
		memcpy(ret, &v6, sizeof(v6));
	else
		return errmsg_set(e, -EINVAL, "address '%.300s': the host must be a number, such as 127.0.0.1 or [::]",
				  text);
	return 0;
}

bool addr_is_loopback(const struct sockaddr_storage *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;

	if (a->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return a->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}
