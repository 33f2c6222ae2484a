/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fluxkv-master is told: its command line over fluxkv.yaml. One thread.
 */
#ifndef MASTERD_SETTINGS_H
#define MASTERD_SETTINGS_H

#include <stdbool.h>

#include "store/config.h"

struct settings_args {
	const char *config_file;      /* absolute; NULL: none */
	const char *listen, *catalog; /* as given; NULL: not */
};

struct settings {
	struct config cfg;
	char *catalogue; /* absolute */
};

/*
 * Reads the file, puts the arguments over it, and looks at what belongs together: the key is there and good where one
 * is needed. Relative names are those of the current directory. On an error nothing is to be freed, and e has the line.
 */
int settings_read(const struct settings_args *args, struct settings *ret, struct errmsg *e);
/* Takes a zeroed one. */
void settings_done(struct settings *s);

#endif
