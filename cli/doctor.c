/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: what FluxKV needs of this machine, a line each, and what to change. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/session.h"
#include "common/clock.h"
#include "common/mountinfo.h"
#include "net/json.h"

#define NOFILE_WANTED 1024
#define MOUNT_TIMEOUT (5 * NS_PER_SEC)

struct doctor {
	unsigned faults;
};

static void report(struct doctor *d, bool good, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void report(struct doctor *d, bool good, const char *fmt, ...)
{
	va_list ap;

	d->faults += !good;
	printf("%-6s", good ? "ok" : "FAULT");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void check_kernel(struct doctor *d)
{
	unsigned major = 0, minor = 0;
	struct utsname u;

	if (uname(&u) || sscanf(u.release, "%u.%u", &major, &minor) != 2)
		return;
	report(d, major > 5 || (major == 5 && minor >= 4), "kernel %s%s", u.release,
	       major > 5 || (major == 5 && minor >= 4) ? "" : ": FluxKV needs Linux 5.4 or newer");
}

/* Works, or may work, but there is something to say about it. */
static void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void note(const char *fmt, ...)
{
	va_list ap;

	printf("%-6s", "note");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static bool has_helper(void)
{
	return !access("/usr/bin/fusermount3", X_OK) || !access("/bin/fusermount3", X_OK) ||
	       !access("/usr/local/bin/fusermount3", X_OK);
}

static void check_fuse(struct doctor *d)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), err = errno;

	if (fd >= 0) {
		report(d, true, "/dev/fuse can be opened");
		close(fd);
	} else if (err == ENOENT) {
		report(d, false,
		       "/dev/fuse is not there: modprobe fuse, or give the container the device (--device /dev/fuse)");
	} else if (err == EACCES && geteuid() && has_helper()) {
		report(d, true, "/dev/fuse is not for this user, and fusermount3 opens it");
	} else {
		report(d, false, "/dev/fuse: %s", strerror(err));
	}
}

static void check_helper(struct doctor *d)
{
	if (geteuid())
		report(d, has_helper(), "fusermount3 %s",
		       has_helper() ? "is installed"
				    : "is not installed; without it only root can mount (Debian: "
				      "apt install fuse3)");
}

static void check_files(struct doctor *d)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		return;
	if (rl.rlim_max >= NOFILE_WANTED)
		report(d, true, "open files: up to %" PRIu64, (uint64_t)rl.rlim_max);
	else
		report(d, false,
		       "open files: up to %" PRIu64 "; raise the hard limit to %d or more (ulimit -Hn, LimitNOFILE=)",
		       (uint64_t)rl.rlim_max, NOFILE_WANTED);
}

static void check_huge_pages(struct doctor *d)
{
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
	char line[128] = "";

	if (!f) {
		report(d, false,
		       "no transparent huge pages for tmpfs: memory copies are slower to read (kernel option "
		       "CONFIG_TRANSPARENT_HUGEPAGE)");
		return;
	}
	if (fgets(line, sizeof(line), f) && strstr(line, "[deny]"))
		report(d, false,
		       "transparent huge pages for tmpfs are denied; allow them: echo never > "
		       "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
	else
		report(d, true, "transparent huge pages for tmpfs are there");
	fclose(f);
}

/*
 * stat(2) asks first whether this user may have an answer at all, and is then perhaps answered by the kernel alone;
 * statfs(2) always asks the daemon, but for such a user, who gets nothing instead of an error.
 */
static int ask_mount(const char *target)
{
	struct statfs fs;
	struct stat st;

	if (stat(target, &st) && errno == EACCES)
		return EACCES;
	return statfs(target, &fs) ? errno : 0;
}

/* By a process of its own: whoever waits for a daemon that hangs cannot be stopped, not even by a signal. */
static int ask_mount_in_time(const char *target)
{
	uint64_t until = clock_ns() + MOUNT_TIMEOUT;
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return errno;
	if (!pid)
		_exit(ask_mount(target));
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_ns() > until) {
			kill(pid, SIGKILL);
			return ETIMEDOUT;
		}
		poll(NULL, 0, 5);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static void check_mount(struct doctor *d, const char *target)
{
	int err = ask_mount_in_time(target);

	if (!err)
		report(d, true, "%s is mounted", target);
	else if (err == EACCES)
		note("%s is mounted, and not for this user (allow_other), who cannot see whether it serves", target);
	else if (err == ENOTCONN)
		report(d, false, "%s: its fluxkvd died; start it again on the same mount point, or: umount -l '%s'",
		       target, target);
	else if (err == ETIMEDOUT)
		report(d, false, "%s: its fluxkvd has not answered for %d s", target,
		       (int)(MOUNT_TIMEOUT / NS_PER_SEC));
	else
		report(d, false, "%s: %s", target, strerror(err));
}

static void check_mounts(struct doctor *d)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mount_line m;
	char *line = NULL;
	size_t cap = 0;

	while (f && getline(&line, &cap, f) > 0)
		if (!mount_line_parse(line, &m) && !strcmp(m.fstype, "fuse.fluxkv"))
			check_mount(d, m.target);
	free(line);
	if (f)
		fclose(f);
}

/* Works, but another way works better. */
static void check_passthrough(struct doctor *d, const json_t *p)
{
	if (json_is_true(json_at(p, "on")))
		report(d, true, "the kernel reads values from memory without the daemon (passthrough)");
	else if (p)
		note("reads are copied by the daemon, which is slower than passthrough: %s", json_str(p, "why_not"));
}

static void check_status(struct doctor *d, const json_t *j)
{
	json_t *device;
	size_t i;

	report(d, true, "fluxkvd %s answers: instance %s on %s", json_str(j, "version"), json_str(j, "instance"),
	       json_str(j, "mountpoint"));
	check_passthrough(d, json_at(j, "fs.passthrough"));
	json_array_foreach (json_at(j, "ssd.devices"), i, device) {
		bool failed = json_is_true(json_at(device, "failed"));

		report(d, !failed, "SSD %s %s", json_str(device, "path"),
		       failed ? "failed and is taken out; see the daemon's log and the kernel's (dmesg)" : "works");
	}
	if (json_u64(j, "checksum_errors"))
		report(d, false,
		       "%" PRIu64 " checksum errors: an SSD gave back other bytes than were written; replace it",
		       json_u64(j, "checksum_errors"));
}

static int check_daemon(struct doctor *d, const struct cli_options *o)
{
	struct session s;
	json_t *status;
	int r;

	r = session_open(o, NULL, &s);
	if (r)
		return r;
	r = session_call(&s, json_pack("{s:s}", "op", "status"), &status);
	session_close(&s);
	if (r)
		return r;
	check_status(d, status);
	json_decref(status);
	return CLI_OK;
}

int cmd_doctor(const struct cli_options *o, int n, char **words)
{
	struct doctor d = {0};
	int r;

	check_kernel(&d);
	check_fuse(&d);
	check_helper(&d);
	check_files(&d);
	check_huge_pages(&d);
	check_mounts(&d);
	r = check_daemon(&d, o);
	return r ? r : d.faults ? CLI_FAILED : CLI_OK;
}
