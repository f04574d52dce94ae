/* Which descriptors are nodes of the stand-in, and the way to the functions it stands before.
 * Knows descriptors and files; knows neither the rules of the table nor what a call does to a device.
 *
 * A node is recognised by the file behind a descriptor, not by remembering numbers. So a descriptor got by fork, by
 * dup, by F_DUPFD, over exec or from another process is one too, and those calls need no interposing. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "standin.h"

void *next_function(enum next which, const char *name)
{
    static void *_Atomic known[NEXT_FUNCTIONS];
    void *f = atomic_load(&known[which]);
    if (!f) {
        f = dlsym(RTLD_NEXT, name);
        atomic_store(&known[which], f);
    }
    return f;
}

static __attribute__((constructor)) void look_up(void)
{
    (void)NEXT(openat), (void)NEXT(close), (void)NEXT(close_range), (void)NEXT(dup2), (void)NEXT(dup3);
    (void)NEXT(ioctl), (void)NEXT(mmap), (void)NEXT(execve), (void)NEXT(execvpe), (void)NEXT(execveat);
    (void)NEXT(fexecve), (void)NEXT(fstat), (void)NEXT(fstatat), (void)NEXT(statx), (void)folder_now();
}

/* The size is a first sieve: nearly no other file has it, and then the folder needn't be looked at. */
static int device_of(const struct stat *st, struct folder **f)
{
    if (!S_ISREG(st->st_mode) || st->st_size != STANDIN_SLABS || !(*f = folder_now()))
        return -1;
    return folder_device(*f, st);
}

int node_of(int fd, struct folder **f)
{
    struct stat st;
    int error = errno, device = -1;
    if (fd >= 0 && NEXT(fstat)(fd, &st) == 0 && (device = device_of(&st, f)) >= 0 && fcntl(fd, F_GETFL) & O_PATH)
        device = -1;
    errno = error;
    return device;
}

int node_at(int dir, const char *path)
{
    struct folder *f;
    struct stat st;
    int error = errno, device = NEXT(fstatat)(dir, path, &st, 0) ? -1 : device_of(&st, &f);
    errno = error;
    return device;
}

bool node_is_restricted(int fd)
{
    return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
}

void node_flushed(struct call *c)
{
    if (table_flush(&c->view, getpid()))
        call_commit(c);
}

void node_for_each(void (*found)(int fd, void *context), void *context)
{
    struct entry { /* what getdents64 gives */
        uint64_t ino;
        int64_t next;
        unsigned short length;
        unsigned char type;
        char name[];
    };
    char buffer[2048] __attribute__((aligned(8)));
    struct folder *f;
    int error = errno, list = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long n; list >= 0 && (n = syscall(SYS_getdents64, list, buffer, sizeof buffer)) > 0;)
        for (char *at = buffer; at < buffer + n; at += ((struct entry *)at)->length) {
            const char *name = ((struct entry *)at)->name;
            if (*name >= '0' && *name <= '9' && node_of(atoi(name), &f) >= 0)
                found(atoi(name), context);
        }
    if (list >= 0)
        syscall(SYS_close, list);
    errno = error;
}
