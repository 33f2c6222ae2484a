/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An SQLite VFS like the default one, whose writes can be told to fail or to hang. For tests of one database at a time;
 * which write fails may be set while another thread writes.
 */
#ifndef TESTS_BAD_VFS_H
#define TESTS_BAD_VFS_H

#include <check.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

static struct {
	sqlite3_vfs vfs, *real;
	atomic_int_least64_t countdown; /* writes until the failure; < 0: none */
	atomic_bool sticky;
	atomic_int error;
	atomic_int_least64_t writes;
	atomic_bool hang; /* writes wait until it is false again */
} bad;

struct bad_file {
	sqlite3_file base;
	sqlite3_file *real; /* behind this struct */
};

/* The write that counts down to 0 fails, and if sticky all behind it. */
static inline int bad_now(void)
{
	int64_t left = bad.countdown;

	bad.writes++;
	while (bad.hang)
		usleep(1000);
	if (left < 0)
		return SQLITE_OK;
	if (left > 0 || !bad.sticky)
		bad.countdown = left - 1;
	return left ? SQLITE_OK : bad.error;
}

#define REAL(f) (((struct bad_file *)(f))->real)

static int bad_close(sqlite3_file *f)
{
	return REAL(f)->pMethods ? REAL(f)->pMethods->xClose(REAL(f)) : SQLITE_OK;
}

static int bad_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
	return REAL(f)->pMethods->xRead(REAL(f), p, n, at);
}

static int bad_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
	int rc = bad_now();

	if (rc == SQLITE_OK)
		return REAL(f)->pMethods->xWrite(REAL(f), p, n, at);
	/* part of it may have got there */
	if (n > 1)
		REAL(f)->pMethods->xWrite(REAL(f), p, n / 2, at);
	return rc;
}

static int bad_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	int rc = bad_now();

	return rc == SQLITE_OK ? REAL(f)->pMethods->xTruncate(REAL(f), size) : rc;
}

static int bad_sync(sqlite3_file *f, int flags)
{
	return REAL(f)->pMethods->xSync(REAL(f), flags);
}

static int bad_size(sqlite3_file *f, sqlite3_int64 *ret)
{
	return REAL(f)->pMethods->xFileSize(REAL(f), ret);
}

static int bad_lock(sqlite3_file *f, int k)
{
	return REAL(f)->pMethods->xLock(REAL(f), k);
}

static int bad_unlock(sqlite3_file *f, int k)
{
	return REAL(f)->pMethods->xUnlock(REAL(f), k);
}

static int bad_check(sqlite3_file *f, int *ret)
{
	return REAL(f)->pMethods->xCheckReservedLock(REAL(f), ret);
}

static int bad_control(sqlite3_file *f, int op, void *arg)
{
	return REAL(f)->pMethods->xFileControl(REAL(f), op, arg);
}

static int bad_sector(sqlite3_file *f)
{
	return REAL(f)->pMethods->xSectorSize(REAL(f));
}

static int bad_device(sqlite3_file *f)
{
	return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}

/* Version 1: no shared memory and no mapping, which a catalogue needs neither of. */
static const sqlite3_io_methods bad_methods = {
    .iVersion = 1,
    .xClose = bad_close,
    .xRead = bad_read,
    .xWrite = bad_write,
    .xTruncate = bad_truncate,
    .xSync = bad_sync,
    .xFileSize = bad_size,
    .xLock = bad_lock,
    .xUnlock = bad_unlock,
    .xCheckReservedLock = bad_check,
    .xFileControl = bad_control,
    .xSectorSize = bad_sector,
    .xDeviceCharacteristics = bad_device,
};

static int bad_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *ret_flags)
{
	struct bad_file *b = (struct bad_file *)f;
	int rc;

	b->real = (sqlite3_file *)(b + 1);
	rc = bad.real->xOpen(bad.real, name, b->real, flags, ret_flags);
	b->base.pMethods = rc == SQLITE_OK ? &bad_methods : NULL;
	return rc;
}

static inline void bad_install(void)
{
	bad.real = sqlite3_vfs_find(NULL);
	bad.vfs = *bad.real;
	bad.vfs.zName = "failing";
	bad.vfs.pNext = NULL;
	bad.vfs.szOsFile = (int)sizeof(struct bad_file) + bad.real->szOsFile;
	bad.vfs.xOpen = bad_open;
	bad.countdown = -1;
	ck_assert_int_eq(sqlite3_vfs_register(&bad.vfs, 1), SQLITE_OK);
}

static inline void bad_uninstall(void)
{
	bad.countdown = -1;
	bad.hang = false;
	sqlite3_vfs_unregister(&bad.vfs);
	sqlite3_vfs_register(bad.real, 1);
}

#endif
