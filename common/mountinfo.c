/* SPDX-License-Identifier: Apache-2.0 */
#include "common/mountinfo.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool octal(char c)
{
	return c >= '0' && c <= '7';
}

/* The kernel writes space, tab, newline and backslash as \ooo. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++)
		if (s[0] == '\\' && octal(s[1]) && octal(s[2]) && octal(s[3])) {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	*out = '\0';
}

/* id parent major:minor root target options [optional fields] - fstype source options */
int mount_line_parse(char *line, struct mount_line *ret)
{
	struct mount_line m = {0};
	char *save, *word;
	int field = 0;

	line[strcspn(line, "\n")] = '\0';
	for (word = strtok_r(line, " ", &save); word && strcmp(word, "-"); word = strtok_r(NULL, " ", &save)) {
		if (field == 2 && sscanf(word, "%u:%u", &m.major, &m.minor) != 2)
			return -EINVAL;
		if (field == 3)
			m.root = word;
		if (field == 4)
			m.target = word;
		field++;
	}
	if (!word || field < 6)
		return -EINVAL;
	m.fstype = strtok_r(NULL, " ", &save);
	m.source = strtok_r(NULL, " ", &save);
	if (!m.fstype || !m.source)
		return -EINVAL;
	m.options = strtok_r(NULL, " ", &save);
	if (!m.options)
		m.options = "";
	unescape((char *)m.root);
	unescape((char *)m.target);
	unescape((char *)m.fstype);
	unescape((char *)m.source);
	*ret = m;
	return 0;
}
