/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/auth.h"

static const char context[] = "fluxkv cluster key 1";

static int check_file(int fd, const char *path, struct errmsg *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return errmsg_set(e, -errno, "cluster_key_file %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return errmsg_set(e, -EINVAL, "cluster_key_file %s: not a file", path);
	if (st.st_uid && st.st_uid != geteuid())
		return errmsg_set(e, -EPERM,
				  "cluster_key_file %s: belongs to user %u; it must be root's or the daemon's own",
				  path, (unsigned)st.st_uid);
	if (st.st_mode & 077)
		return errmsg_set(e, -EPERM, "cluster_key_file %s: others may use it; run: chmod 600 %s", path, path);
	return 0;
}

/* All of it; one byte more than the most is enough to see that it is too long. */
static int read_file(int fd, const char *path, uint8_t bytes[AUTH_KEY_MAX + 1], size_t *ret, struct errmsg *e)
{
	size_t len = 0;
	ssize_t n;

	do {
		n = read(fd, bytes + len, AUTH_KEY_MAX + 1 - len);
		if (n > 0)
			len += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0)
		return errmsg_set(e, -errno, "cluster_key_file %s: %s", path, strerror(errno));
	if (len < AUTH_KEY_MIN)
		return errmsg_set(e, -EINVAL,
				  "cluster_key_file %s: %zu bytes, at least %u are needed; make one with: "
				  "(umask 077; head -c 32 /dev/urandom >%s)",
				  path, len, AUTH_KEY_MIN, path);
	if (len > AUTH_KEY_MAX)
		return errmsg_set(e, -EINVAL, "cluster_key_file %s: more than %u bytes", path, AUTH_KEY_MAX);
	*ret = len;
	return 0;
}

static int load(int fd, const char *path, uint8_t bytes[AUTH_KEY_MAX + 1], size_t *ret, struct errmsg *e)
{
	int r = check_file(fd, path, e);

	return r < 0 ? r : read_file(fd, path, bytes, ret, e);
}

/* Whatever its length, it becomes one of 32 bytes, that only we use. */
static void derive(const uint8_t *bytes, size_t len, struct auth_key *ret)
{
	crypto_generichash_state st;

	crypto_generichash_init(&st, NULL, 0, sizeof(ret->bytes));
	crypto_generichash_update(&st, (const uint8_t *)context, sizeof(context));
	crypto_generichash_update(&st, bytes, len);
	crypto_generichash_final(&st, ret->bytes, sizeof(ret->bytes));
	sodium_memzero(&st, sizeof(st));
}

int auth_key_load(const char *path, struct auth_key *ret, struct errmsg *e)
{
	uint8_t bytes[AUTH_KEY_MAX + 1];
	size_t len = 0;
	int fd, r = 0;

	if (sodium_init() < 0)
		return errmsg_set(e, -EIO, "libsodium cannot be used: it finds no source of random numbers");
	if (path) {
		/* Not for ever where it is a fifo. */
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd < 0)
			return errmsg_set(e, -errno, "cluster_key_file %s: %s", path, strerror(errno));
		r = load(fd, path, bytes, &len, e);
		close(fd);
	}
	if (!r)
		derive(bytes, len, ret);
	sodium_memzero(bytes, sizeof(bytes));
	return r;
}
