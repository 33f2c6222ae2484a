/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: what FluxKV needs of this machine, a line each, and what to change. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cli/session.h"
#include "net/json.h"

#define NOFILE_WANTED 1024

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

static void check_fuse(struct doctor *d)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		report(d, true, "/dev/fuse can be opened");
		close(fd);
	} else if (errno == ENOENT) {
		report(d, false,
		       "/dev/fuse is not there: modprobe fuse, or give the container the device (--device /dev/fuse)");
	} else {
		report(d, false, "/dev/fuse: %s", strerror(errno));
	}
}

static void check_helper(struct doctor *d)
{
	bool there = !access("/usr/bin/fusermount3", X_OK) || !access("/bin/fusermount3", X_OK) ||
		     !access("/usr/local/bin/fusermount3", X_OK);

	if (geteuid())
		report(d, there, "fusermount3 %s",
		       there ? "is installed"
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

/* In place: the kernel writes blanks, newlines and backslashes of a mount point as \ooo. */
static void unescape(char *s)
{
	char *out = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
		    s[3] <= '7') {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*out++ = *s++;
		}
	}
	*out = '\0';
}

static void check_mount(struct doctor *d, const char *target)
{
	struct statfs st;

	if (!statfs(target, &st)) /* stat(2) may be answered by the kernel */
		report(d, true, "%s is mounted", target);
	else if (errno == ENOTCONN)
		report(d, false, "%s: its fluxkvd died; start it again on the same mount point, or: umount -l '%s'",
		       target, target);
	else if (errno == EACCES)
		report(d, true, "%s is mounted, and not for this user (allow_other)", target);
	else
		report(d, false, "%s: %s", target, strerror(errno));
}

static void check_stale_mounts(struct doctor *d)
{
	FILE *f = fopen("/proc/self/mounts", "re");
	char *line = NULL;
	size_t cap = 0;

	if (!f)
		return;
	while (getline(&line, &cap, f) > 0) {
		char target[4 * PATH_MAX], type[64];

		if (sscanf(line, "%*s %16383s %63s", target, type) != 2 || strcmp(type, "fuse.fluxkv"))
			continue;
		unescape(target);
		check_mount(d, target);
	}
	free(line);
	fclose(f);
}

/* Works, but another way works better. */
static void check_passthrough(struct doctor *d, const json_t *p)
{
	if (json_is_true(json_at(p, "on")))
		report(d, true, "the kernel reads values from memory without the daemon (passthrough)");
	else if (p)
		printf("%-6sreads are copied by the daemon, which is slower than passthrough: %s\n", "note",
		       json_str(p, "why_not"));
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
	check_stale_mounts(&d);
	r = check_daemon(&d, o);
	return r ? r : d.faults ? CLI_FAILED : CLI_OK;
}
