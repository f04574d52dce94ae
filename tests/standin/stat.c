/* The interposed stat family: a node of the stand-in is shown as the character device it stands for.
 * Knows what a device looks like to stat; knows nothing of its rules. */
#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>

#include "standin.h"

#define MAJOR 508 /* any: the real driver's is given out when it is loaded */

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one machine word, one layout");

static int device_of(mode_t mode, off_t size, dev_t dev, ino_t ino)
{
    if (!S_ISREG(mode) || size != STANDIN_SLABS)
        return -1;
    const struct folder *f = folder_now();
    return f ? folder_device(f, &(struct stat){.st_dev = dev, .st_ino = ino}) : -1;
}

static int as_device(int result, struct stat *st)
{
    int device = result ? -1 : device_of(st->st_mode, st->st_size, st->st_dev, st->st_ino);
    if (device >= 0) {
        st->st_mode = S_IFCHR | (st->st_mode & ~(mode_t)S_IFMT);
        st->st_rdev = makedev(MAJOR, (unsigned)device);
        st->st_size = 0;
        st->st_blocks = 0;
    }
    return result;
}

#define STAT_FAMILY(suffix, type)                                                                                      \
    EXPORT int fstat##suffix(int fd, struct type *st)                                                                  \
    {                                                                                                                  \
        return as_device(NEXT(fstat)(fd, (struct stat *)st), (struct stat *)st);                                       \
    }                                                                                                                  \
    EXPORT int fstatat##suffix(int dir, const char *path, struct type *st, int flags)                                  \
    {                                                                                                                  \
        return as_device(NEXT(fstatat)(dir, path, (struct stat *)st, flags), (struct stat *)st);                       \
    }                                                                                                                  \
    EXPORT int stat##suffix(const char *path, struct type *st)                                                         \
    {                                                                                                                  \
        return as_device(NEXT(fstatat)(AT_FDCWD, path, (struct stat *)st, 0), (struct stat *)st);                      \
    }                                                                                                                  \
    EXPORT int lstat##suffix(const char *path, struct type *st)                                                        \
    {                                                                                                                  \
        return as_device(NEXT(fstatat)(AT_FDCWD, path, (struct stat *)st, AT_SYMLINK_NOFOLLOW), (struct stat *)st);    \
    }                                                                                                                  \
    /* What a program built against a glibc before 2.33 calls. */                                                      \
    EXPORT int __fxstat##suffix(int version, int fd, struct type *st)                                                  \
    {                                                                                                                  \
        (void)version;                                                                                                 \
        return as_device(NEXT(fstat)(fd, (struct stat *)st), (struct stat *)st);                                       \
    }                                                                                                                  \
    EXPORT int __xstat##suffix(int version, const char *path, struct type *st)                                         \
    {                                                                                                                  \
        (void)version;                                                                                                 \
        return as_device(NEXT(fstatat)(AT_FDCWD, path, (struct stat *)st, 0), (struct stat *)st);                      \
    }                                                                                                                  \
    EXPORT int __lxstat##suffix(int version, const char *path, struct type *st)                                        \
    {                                                                                                                  \
        (void)version;                                                                                                 \
        return as_device(NEXT(fstatat)(AT_FDCWD, path, (struct stat *)st, AT_SYMLINK_NOFOLLOW), (struct stat *)st);    \
    }                                                                                                                  \
    EXPORT int __fxstatat##suffix(int version, int dir, const char *path, struct type *st, int flags)                  \
    {                                                                                                                  \
        (void)version;                                                                                                 \
        return as_device(NEXT(fstatat)(dir, path, (struct stat *)st, flags), (struct stat *)st);                       \
    }

STAT_FAMILY(, stat)
STAT_FAMILY(64, stat64)

EXPORT int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
    int result = NEXT(statx)(dir, path, flags, mask, st);
    int device = result ? -1
                        : device_of(st->stx_mode, (off_t)st->stx_size, makedev(st->stx_dev_major, st->stx_dev_minor),
                                    st->stx_ino);
    if (device >= 0) {
        st->stx_mode = (uint16_t)(S_IFCHR | (st->stx_mode & ~S_IFMT));
        st->stx_rdev_major = MAJOR;
        st->stx_rdev_minor = (uint32_t)device;
        st->stx_size = st->stx_blocks = 0;
    }
    return result;
}
