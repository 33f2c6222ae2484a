/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/fault.h"

#include <stdarg.h>
#include <stdio.h>

int fault_set(struct fault *f, int err, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&f->lock);
	if (!f->set) {
		va_start(ap, fmt);
		vsnprintf(f->e.text, sizeof(f->e.text), fmt, ap);
		va_end(ap);
		f->set = true;
	}
	pthread_mutex_unlock(&f->lock);
	return err;
}
