/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The table writes blanks and backslashes as three octal digits. Decodes in place. */
static void unescape(char *s)
{
	char *to = s;
	unsigned code;

	for (; *s; s++)
		if (*s == '\\' && sscanf(s + 1, "%3o", &code) == 1 && strlen(s) >= 4) {
			*to++ = (char)code;
			s += 3;
		} else {
			*to++ = *s;
		}
	*to = '\0';
}

int mountinfo_parse(char *line, unsigned long long id, struct mountinfo *ret)
{
	char *save = NULL, *word = strtok_r(line, " \n", &save), *root = NULL;

	if (!word)
		return -EBADMSG;
	if (strtoull(word, NULL, 10) != id)
		return 0;
	for (unsigned i = 1; word && strcmp(word, "-"); i++) { /* "-" ends the optional fields */
		word = strtok_r(NULL, " \n", &save);
		if (i == 4)
			root = word;
	}
	word = word ? strtok_r(NULL, " \n", &save) : NULL;
	if (!word || !root || strlen(word) >= sizeof(ret->type) || strlen(root) >= sizeof(ret->root))
		return -EBADMSG;
	unescape(root);
	strcpy(ret->type, word);
	strcpy(ret->root, root);
	return 1;
}

int mountinfo_get(int fd, struct mountinfo *ret)
{
	char *line = NULL;
	struct statx stx;
	size_t cap = 0;
	int r = 0;
	FILE *f;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0)
		return -errno;
	f = fopen("/proc/self/mountinfo", "re");
	if (!f)
		return -errno;
	while (r == 0 && getline(&line, &cap, f) > 0)
		r = mountinfo_parse(line, stx.stx_mnt_id, ret);
	free(line);
	fclose(f);
	return r == 1 ? 0 : r < 0 ? r : -ENOENT;
}
