/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of /proc/PID/mountinfo. Pure; any thread. */
#ifndef COMMON_MOUNTINFO_H
#define COMMON_MOUNTINFO_H

/* One line. Strings point into it, unescaped in place. */
struct mount_line {
	unsigned major, minor;
	const char *root; /* which directory of the file system is the mount's root */
	const char *target, *fstype, *source;
	const char *options; /* the file system's own, which all its mounts share; "": none */
};

/* Takes a line apart (and changes it). 0 or -EINVAL. */
int mount_line_parse(char *line, struct mount_line *ret);

#endif
