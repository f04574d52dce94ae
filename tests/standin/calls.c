/* The interposed system calls: open, close, dup, ioctl, mmap, where they meet a node of the stand-in.
 * Knows which calls do what to a device, and hands everything else on; the rules are in table.c. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "standin.h"

/* ---- open --------------------------------------------------------------------------------------------------------- */

static int attach(struct folder *f, int device, int fd)
{
    if (node_is_restricted(fd))
        return fd;
    struct call c;
    call_enter(&c, f, (unsigned)device);
    int failed = -table_attach(c.view.table, getpid(), process_started(getpid()));
    if (!failed && !description_mark(fd))
        failed = errno;
    if (!failed) {
        c.view.table->open = 1;
        call_commit(&c);
    }
    call_leave(&c);
    if (!failed)
        return fd;
    NEXT(close)(fd);
    errno = failed;
    return -1;
}

/* Whoever reads the totals wants to see the dead in them. */
static void before_sysfs(const char *path)
{
    struct folder *f;
    int device = folder_sysfs_device(path, &f);
    if (device >= 0) {
        struct call c;
        call_enter(&c, f, (unsigned)device);
        call_leave(&c);
    }
}

static int open_at(int dir, const char *path, int flags, mode_t mode)
{
    struct folder *f;
    before_sysfs(path);
    if (flags & O_TRUNC && node_at(dir, path) >= 0)
        flags &= ~O_TRUNC; /* means nothing to a device */
    int fd = NEXT(openat)(dir, path, flags, mode);
    int device = node_of(fd, &f);
    return device < 0 ? fd : attach(f, device, fd);
}

#define OPEN(dir)                                                                                                      \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                             \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
    }                                                                                                                  \
    return open_at(dir, path, flags, mode)

EXPORT int open(const char *path, int flags, ...)
{
    OPEN(AT_FDCWD);
}

EXPORT int open64(const char *path, int flags, ...)
{
    OPEN(AT_FDCWD);
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
    OPEN(dir);
}

EXPORT int openat64(int dir, const char *path, int flags, ...)
{
    OPEN(dir);
}

/* What a program compiled with _FORTIFY_SOURCE calls instead. */
EXPORT int __open_2(const char *path, int flags)
{
    return open_at(AT_FDCWD, path, flags, 0);
}

EXPORT int __open64_2(const char *path, int flags)
{
    return open_at(AT_FDCWD, path, flags, 0);
}

EXPORT int __openat_2(int dir, const char *path, int flags)
{
    return open_at(dir, path, flags, 0);
}

EXPORT int __openat64_2(int dir, const char *path, int flags)
{
    return open_at(dir, path, flags, 0);
}

EXPORT int creat(const char *path, mode_t mode)
{
    return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

EXPORT int creat64(const char *path, mode_t mode)
{
    return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* ---- close, and what closes ----------------------------------------------------------------------------------------- */

/* close(fd), or with `from` >= 0 its like: a dup that closes what fd was before. */
static int close_node(struct folder *f, int device, int fd, int from, int flags)
{
    struct call c;
    bool restricted = node_is_restricted(fd);
    call_enter(&c, f, (unsigned)device);
    int result = from < 0 ? NEXT(close)(fd) : flags < 0 ? NEXT(dup2)(from, fd) : NEXT(dup3)(from, fd, flags);
    int error = errno;
    if (!restricted && result >= 0) {
        node_flushed(&c);
        call_last_close(&c);
    }
    call_leave(&c);
    if (result < 0)
        errno = error;
    return result;
}

EXPORT int close(int fd)
{
    struct folder *f;
    int device = node_of(fd, &f);
    return device < 0 ? NEXT(close)(fd) : close_node(f, device, fd, -1, 0);
}

EXPORT int dup2(int from, int fd)
{
    struct folder *f;
    int device = from < 0 || from == fd ? -1 : node_of(fd, &f);
    return device < 0 ? NEXT(dup2)(from, fd) : close_node(f, device, fd, from, -1);
}

EXPORT int dup3(int from, int fd, int flags)
{
    struct folder *f;
    int device = from < 0 || from == fd || flags < 0 ? -1 : node_of(fd, &f);
    return device < 0 ? NEXT(dup3)(from, fd, flags) : close_node(f, device, fd, from, flags);
}

struct range {
    unsigned first, last;
};

static void close_in_range(int fd, void *context)
{
    const struct range *range = context;
    if ((unsigned)fd >= range->first && (unsigned)fd <= range->last)
        close(fd);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    struct range range = {first, last};
    if (!(flags & ~(int)CLOSE_RANGE_UNSHARE) && first <= last)
        node_for_each(close_in_range, &range);
    return NEXT(close_range)(first, last, flags);
}

EXPORT void closefrom(int first)
{
    close_range(first < 0 ? 0 : (unsigned)first, UINT_MAX, 0);
}

/* ---- ioctl ------------------------------------------------------------------------------------------------------- */

/* The size field of these numbers is a pointer's, whatever they point to. */
#define ACQUIRE _IOR('N', 71, void *)
#define RELEASE _IOR('N', 72, void *)
#define APPS    _IOR('N', 7, void *)
#define TABLE   _IOR('N', 250, void *)

/* Opaque to everybody: slot s is mapped at FIRST_OFFSET + s slabs. */
#define FIRST_OFFSET UINT64_C(0x10000000)

struct slab_argument {
    int32_t pid; /* in; 0: the caller */
    uint32_t pad;
    uint64_t mmap_offset; /* out */
    uint32_t size;        /* out */
    uint32_t pad_end;
};
_Static_assert(sizeof(struct slab_argument) == 24, "the argument of acquire and release");

struct apps_argument {
    uint16_t flags; /* in: what to tell of each; there is nothing to tell here */
    uint16_t pad;
    uint32_t capacity; /* in: entries there is room for */
    uint32_t size;     /* out: entries written */
    uint32_t pad_end;  /* the entries follow */
};
_Static_assert(sizeof(struct apps_argument) == 16, "the head of the list of processes");

struct app {
    int32_t pid;
    uint8_t nc_lock_map;
    uint8_t uuids[4][32];
    uint8_t pad[3];
    uint64_t host_memory_bytes;
    uint64_t device_memory_bytes;
};
_Static_assert(sizeof(struct app) == 152 && offsetof(struct app, host_memory_bytes) == 136, "an entry of it");

struct table_argument { /* for tests only: the table as it is */
    uint64_t roll_ups;
    struct {
        int32_t pid;
        uint32_t pad;
        uint64_t tick, first_counter;
    } slots[NDS_SLOTS_PER_DEVICE];
};
_Static_assert(sizeof(struct table_argument) == 8 + 24 * NDS_SLOTS_PER_DEVICE, "the answer to TABLE");

/* As the kernel's copy_from_user and copy_to_user: a bad address is an error, not the end of the program. */
static bool copy_in(void *to, const void *user, size_t n)
{
    struct iovec here = {to, n}, there = {(void *)user, n};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)n;
}

static bool copy_out(void *user, const void *from, size_t n)
{
    struct iovec here = {(void *)from, n}, there = {user, n};
    return !n || process_vm_writev(getpid(), &here, 1, &there, 1, 0) == (ssize_t)n;
}

static int do_acquire(struct call *c, void *user)
{
    struct slab_argument a;
    if (!copy_in(&a, user, sizeof a))
        return -EFAULT;
    int slot = table_acquire(c->view.table, a.pid, getpid());
    if (slot < 0)
        return slot;
    if (!a.pid)
        call_commit(c);
    a.mmap_offset = FIRST_OFFSET + (uint64_t)slot * NDS_SLAB_SIZE;
    a.size = NDS_SLAB_SIZE;
    return copy_out(user, &a, sizeof a) ? 0 : -EFAULT;
}

static int do_release(struct call *c, void *user)
{
    struct slab_argument a;
    if (!copy_in(&a, user, sizeof a))
        return -EFAULT;
    if ((!a.pid || a.pid == getpid()) && table_release(&c->view, getpid()))
        call_commit(c);
    return 0;
}

static int do_apps(struct call *c, void *user)
{
    struct apps_argument a;
    struct app apps[STANDIN_PROCESSES] = {0};
    if (!copy_in(&a, user, sizeof a))
        return -EFAULT;
    a.size = 0;
    for (unsigned i = 0; i < STANDIN_PROCESSES && a.size < a.capacity; i++)
        if (c->view.table->attached[i].pid)
            apps[a.size++].pid = c->view.table->attached[i].pid;
    bool done = copy_out((char *)user + sizeof a, apps, a.size * sizeof *apps) &&
                copy_out((char *)user + offsetof(struct apps_argument, size), &a.size, sizeof a.size);
    return done ? 0 : -EFAULT;
}

static int do_table(struct call *c, void *user)
{
    struct table_argument a = {.roll_ups = c->view.table->roll_ups};
    for (unsigned s = 0; s < NDS_SLOTS_PER_DEVICE; s++) {
        const unsigned char *counter = c->view.slabs + s * NDS_SLAB_SIZE + NDS_ND_COUNTERS_OFFSET;
        a.slots[s].pid = c->view.table->slots[s].pid;
        a.slots[s].tick = c->view.table->slots[s].tick;
        a.slots[s].first_counter = __atomic_load_n((const uint64_t *)counter, __ATOMIC_ACQUIRE);
    }
    return copy_out(user, &a, sizeof a) ? 0 : -EFAULT;
}

static int ioctl_node(struct folder *f, int device, int fd, unsigned number, void *argument)
{
    static int (*const handlers[])(struct call *, void *) = {do_acquire, do_release, do_apps, do_table};
    static const unsigned numbers[] = {ACQUIRE, RELEASE, APPS, TABLE};
    unsigned i = 0;
    while (i < 4 && numbers[i] != number)
        i++;
    int result = i == 4 ? -ENOTTY : number != TABLE && node_is_restricted(fd) ? -EPERM : 0;
    if (!result) {
        struct call c;
        call_enter(&c, f, (unsigned)device);
        result = handlers[i](&c, argument);
        call_leave(&c);
    }
    if (result < 0)
        errno = -result;
    return result < 0 ? -1 : 0;
}

EXPORT int ioctl(int fd, unsigned long number, ...)
{
    va_list more;
    va_start(more, number);
    void *argument = va_arg(more, void *);
    va_end(more);
    struct folder *f;
    int device = node_of(fd, &f);
    switch ((unsigned)number) {
    case FIOCLEX: /* the kernel answers these itself, for every file */
    case FIONCLEX:
    case FIONBIO:
    case FIOASYNC:
        device = -1;
    }
    return device < 0 ? NEXT(ioctl)(fd, number, argument) : ioctl_node(f, device, fd, (unsigned)number, argument);
}

/* ---- mmap -------------------------------------------------------------------------------------------------------- */

static void *map_node(void *address, size_t size, int protection, int flags, int fd, uint64_t offset)
{
    int type = flags & MAP_TYPE;
    uint64_t at = offset - FIRST_OFFSET;
    if (size != NDS_SLAB_SIZE || (type != MAP_SHARED && type != MAP_SHARED_VALIDATE) || at % NDS_SLAB_SIZE ||
        at / NDS_SLAB_SIZE >= NDS_SLOTS_PER_DEVICE) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    void *p = NEXT(mmap)(address, size, protection, flags, fd, (off_t)at);
    if (p != MAP_FAILED)
        madvise(p, size, MADV_DONTFORK);
    return p;
}

EXPORT void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    struct folder *f;
    int device = flags & MAP_ANONYMOUS ? -1 : node_of(fd, &f);
    return device < 0 ? NEXT(mmap)(address, size, protection, flags, fd, offset)
                      : map_node(address, size, protection, flags, fd, (uint64_t)offset);
}

EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset)
{
    return mmap(address, size, protection, flags, fd, offset);
}
