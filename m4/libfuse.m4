# SPDX-License-Identifier: Apache-2.0

# FLUXKV_PRIVATE_LIBFUSE(PREFIX, MINIMAL-VERSION)
# Sets FUSE_CFLAGS and FUSE_LIBS to the libfuse that is installed in PREFIX. Its static library is taken where there is
# one, so that our programs go on without PREFIX; else they look for the shared one there.
AC_DEFUN([FLUXKV_PRIVATE_LIBFUSE], [
  AC_MSG_CHECKING([for libfuse in $1])
  fluxkv_prefix=`cd "$1" 2>/dev/null && pwd`
  AS_IF([test -z "$fluxkv_prefix"], [AC_MSG_ERROR([--with-libfuse=$1: there is no such folder])])
  fluxkv_pcdir=
  for fluxkv_dir in "$fluxkv_prefix"/lib/pkgconfig "$fluxkv_prefix"/lib64/pkgconfig "$fluxkv_prefix"/lib/*/pkgconfig; do
    AS_IF([test -z "$fluxkv_pcdir" && test -f "$fluxkv_dir/fuse3.pc"], [fluxkv_pcdir=$fluxkv_dir])
  done
  AS_IF([test -z "$fluxkv_pcdir"],
    [AC_MSG_ERROR([--with-libfuse=$1: no libfuse is installed there (lib/pkgconfig/fuse3.pc); scripts/build-libfuse.sh installs one])])
  fluxkv_pc="env PKG_CONFIG_PATH=$fluxkv_pcdir:$PKG_CONFIG_PATH $PKG_CONFIG --define-variable=prefix=$fluxkv_prefix"
  fluxkv_version=`$fluxkv_pc --modversion fuse3`
  AS_IF([$fluxkv_pc --exists "fuse3 >= $2"], [],
    [AC_MSG_ERROR([--with-libfuse=$1: that is libfuse $fluxkv_version, and $2 or newer is needed])])
  fluxkv_libdir=`$fluxkv_pc --variable=libdir fuse3`
  FUSE_CFLAGS=`$fluxkv_pc --cflags fuse3`
  AS_IF([test -f "$fluxkv_libdir/libfuse3.a"],
    [FUSE_LIBS=`$fluxkv_pc --static --libs fuse3 | sed "s|-L$fluxkv_libdir||;s|-lfuse3|$fluxkv_libdir/libfuse3.a|"`
     fluxkv_kind=static],
    [FUSE_LIBS="-Wl,-rpath,$fluxkv_libdir `$fluxkv_pc --libs fuse3`"
     fluxkv_kind=shared])
  AC_MSG_RESULT([$fluxkv_version, $fluxkv_kind])
  AC_SUBST([FUSE_CFLAGS])
  AC_SUBST([FUSE_LIBS])
])

# FLUXKV_FUSE_PASSTHROUGH
# Defines HAVE_FUSE_PASSTHROUGH if the libfuse of FUSE_CFLAGS and FUSE_LIBS can pass reads through to a backing file.
AC_DEFUN([FLUXKV_FUSE_PASSTHROUGH], [
  AC_MSG_CHECKING([whether libfuse has passthrough])
  fluxkv_save_CPPFLAGS=$CPPFLAGS
  fluxkv_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $FUSE_CFLAGS"
  LIBS="$FUSE_LIBS $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <fuse_lowlevel.h>]], [[
      int (*backing_open)(fuse_req_t, int) = fuse_passthrough_open;
      int (*backing_close)(fuse_req_t, int) = fuse_passthrough_close;
      struct fuse_file_info fi = {.backing_id = 1};
      return !backing_open || !backing_close || !fi.backing_id || !FUSE_CAP_PASSTHROUGH;
    ]])],
    [AC_MSG_RESULT([yes])
     AC_DEFINE([HAVE_FUSE_PASSTHROUGH], [1], [Define if libfuse has fuse_passthrough_open() and what belongs to it.])],
    [AC_MSG_RESULT([no])])
  CPPFLAGS=$fluxkv_save_CPPFLAGS
  LIBS=$fluxkv_save_LIBS
])
