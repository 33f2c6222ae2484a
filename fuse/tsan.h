/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ThreadSanitizer cannot see: the kernel answers a program only after our reply, and the program's next request,
 * which any worker may receive, comes after that. Its interceptor of writev() says so when the call has returned, which
 * is too late for a worker that has the next request by then. So each reply releases first, and each request received
 * acquires. In other builds this header does nothing.
 */
#ifndef FUSE_TSAN_H
#define FUSE_TSAN_H

#ifdef WITH_TSAN
#include <sanitizer/tsan_interface.h>

extern char tsan_kernel; /* stands for the order that the kernel keeps; in loop.c */

#define tsan_request_received() __tsan_acquire(&tsan_kernel)
#define TSAN_REPLY(call) (__tsan_release(&tsan_kernel), call)

#define fuse_reply_attr(...) TSAN_REPLY(fuse_reply_attr(__VA_ARGS__))
#define fuse_reply_buf(...) TSAN_REPLY(fuse_reply_buf(__VA_ARGS__))
#define fuse_reply_create(...) TSAN_REPLY(fuse_reply_create(__VA_ARGS__))
#define fuse_reply_entry(...) TSAN_REPLY(fuse_reply_entry(__VA_ARGS__))
#define fuse_reply_err(...) TSAN_REPLY(fuse_reply_err(__VA_ARGS__))
#define fuse_reply_iov(...) TSAN_REPLY(fuse_reply_iov(__VA_ARGS__))
#define fuse_reply_none(...) TSAN_REPLY(fuse_reply_none(__VA_ARGS__))
#define fuse_reply_open(...) TSAN_REPLY(fuse_reply_open(__VA_ARGS__))
#define fuse_reply_statfs(...) TSAN_REPLY(fuse_reply_statfs(__VA_ARGS__))
#define fuse_reply_write(...) TSAN_REPLY(fuse_reply_write(__VA_ARGS__))
#define fuse_reply_xattr(...) TSAN_REPLY(fuse_reply_xattr(__VA_ARGS__))
#else
#define tsan_request_received() ((void)0)
#endif

#endif
