/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over its corpus, without libFuzzer, as a test: the directory is tests/fuzz/corpus/<name>, name
 * being that of the program behind "replay_". Each file is also cut short at every length, which is where parsers fail.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_MAX 4096

static void replay(const uint8_t *data, size_t len)
{
	for (size_t n = 0; n <= len; n++) {
		/* a copy of exactly that length: reading beyond it is seen by ASan */
		uint8_t *copy = malloc(n ? n : 1);

		memcpy(copy, data, n);
		LLVMFuzzerTestOneInput(copy, n);
		free(copy);
	}
}

static int replay_file(const char *dir, const char *name)
{
	static uint8_t data[INPUT_MAX];
	char path[4096];
	size_t len;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	if (!f)
		return -1;
	len = fread(data, 1, sizeof(data), f);
	fclose(f);
	replay(data, len);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = strstr(argv[0], "replay_"), *top = getenv("top_srcdir");
	struct dirent *de;
	char dir[2048];
	int n = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", top ? top : ".", name ? name + strlen("replay_") : "");
	d = opendir(dir);
	while (d && (de = readdir(d)))
		if (de->d_name[0] != '.')
			printf("%sok %d - %s\n", replay_file(dir, de->d_name) ? "not " : "", ++n, de->d_name);
	if (d)
		closedir(d);
	printf("1..%d\n", n);
	return n ? 0 : 1;
}
