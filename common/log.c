/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static atomic_int log_max = LOG_LVL_INFO;
static atomic_bool log_systemd;

void log_setup(enum log_level max, bool systemd)
{
	atomic_store(&log_max, (int)max);
	atomic_store(&log_systemd, systemd);
}

void log_set_level(enum log_level max)
{
	atomic_store(&log_max, (int)max);
}

/* systemd says which device and inode its journal reads from; a standard error that was redirected is another. */
bool log_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 && !fstat(STDERR_FILENO, &st) &&
	       st.st_dev == dev && st.st_ino == ino;
}

int log_open(const char *path, struct errmsg *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);

	if (fd < 0)
		return errmsg_set(e, -errno, "%s: %s", path, strerror(errno));
	dup2(fd, STDERR_FILENO);
	close(fd);
	return 0;
}

const char *log_level_word(enum log_level level)
{
	switch (level) {
	case LOG_LVL_ERROR:
		return "error";
	case LOG_LVL_WARN:
		return "warn";
	case LOG_LVL_INFO:
		return "info";
	case LOG_LVL_DEBUG:
		return "debug";
	}
	return "?";
}

int log_level_parse(const char *word, enum log_level *ret)
{
	static const enum log_level all[] = {LOG_LVL_ERROR, LOG_LVL_WARN, LOG_LVL_INFO, LOG_LVL_DEBUG};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(word, log_level_word(all[i]))) {
			*ret = all[i];
			return 0;
		}
	return -EINVAL;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[2048];
	size_t n = 0;
	va_list ap;
	int r;

	if ((int)level > atomic_load_explicit(&log_max, memory_order_relaxed))
		return;
	if (atomic_load_explicit(&log_systemd, memory_order_relaxed)) {
		n = (size_t)snprintf(line, sizeof(line), "<%d>", (int)level);
	} else {
		struct timespec ts;
		struct tm tm;

		clock_gettime(CLOCK_REALTIME, &ts);
		localtime_r(&ts.tv_sec, &tm);
		n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
		n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ld %s: ", ts.tv_nsec / 1000000,
				      log_level_word(level));
	}
	va_start(ap, fmt);
	r = vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
	if (r > 0)
		n += (size_t)r;
	if (n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	/* Nobody can be told that the log itself fails. */
	if (write(STDERR_FILENO, line, n) < 0)
		n = 0;
	errno = saved;
}
