/* Record locks, and the one descriptor per file that they depend on.
 * Knows descriptors and fcntl(2); knows nothing of which byte means what. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nds_core.h"

#define LOCKABLE_BYTES 64
/* Not blocking: where somebody put a FIFO or a device in the file's place, opening it must not wait. */
#define FLAGS (O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)

struct nds_lock_file {
    struct nds_lock_file *next;
    dev_t dev;
    ino_t ino;
    int fd;
    int older_fd; /* a read-only descriptor from before the file could be opened read-write, or -1 */
    bool writable;
    unsigned users;
    uint64_t epoch; /* the process that took `held`, see nds_process_epoch */
    uint64_t held;  /* bit b: this process holds byte b */
};

static struct nds_lock_file *files;

static struct nds_lock_file *find(const struct stat *st)
{
    for (struct nds_lock_file *f = files; f; f = f->next)
        if (f->dev == st->st_dev && f->ino == st->st_ino)
            return f;
    return NULL;
}

/* Whether the descriptor still is of this file: a process that closes all its descriptors, as one that becomes a daemon
 * does, may have given the number to another file, and a lock there would say nothing. */
static bool is_of(int fd, const struct nds_lock_file *f)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
}

static int open_file(int dir, const char *name, bool *writable)
{
    int fd = openat(dir, name, O_RDWR | FLAGS);
    *writable = fd >= 0;
    if (fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM))
        fd = openat(dir, name, O_RDONLY | FLAGS);
    return fd < 0 ? -errno : fd;
}

/* A file opened read-only by an observer may have become writable by the time a producer wants it. */
static void upgrade(struct nds_lock_file *f, int dir, const char *name)
{
    struct stat st;
    int fd = openat(dir, name, O_RDWR | FLAGS);
    if (fd < 0)
        return;
    if (fstat(fd, &st) != 0 || st.st_dev != f->dev || st.st_ino != f->ino) {
        if (!find(&st))
            close(fd); /* another file by now, and none whose locks this close could drop */
        return;
    }
    f->older_fd = f->fd; /* kept: nothing is gained by closing it, and a lock could be lost */
    f->fd = fd;
    f->writable = true;
}

int nds_lock_file_open(int dir, const char *name, struct nds_lock_file **out)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return S_ISLNK(st.st_mode) ? -ELOOP : S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    struct nds_lock_file *f = find(&st);
    if (!f) {
        bool writable;
        int fd = open_file(dir, name, &writable);
        if (fd < 0)
            return fd;
        if (fstat(fd, &st) != 0) {
            int failed = errno;
            close(fd);
            return -failed;
        }
        f = find(&st);
        if (f) {
            /* Renamed between the two looks: this second descriptor must outlive the locks, so it stays open. */
            f->users++;
            *out = f;
            return 0;
        }
        f = calloc(1, sizeof *f);
        if (!f) {
            close(fd);
            return -ENOMEM;
        }
        f->dev = st.st_dev, f->ino = st.st_ino;
        f->fd = fd, f->older_fd = -1, f->writable = writable;
        f->epoch = nds_process_epoch();
        f->next = files;
        files = f;
    } else if (!is_of(f->fd, f)) {
        bool writable;
        int fd = open_file(dir, name, &writable);
        if (fd < 0)
            return fd;
        if (!is_of(fd, f))
            return -ESTALE; /* replaced this moment; the descriptor stays open, for its file may have locks of ours */
        f->fd = fd, f->older_fd = -1, f->writable = writable, f->held = 0; /* the old number is not ours to close */
    } else if (!f->writable) {
        upgrade(f, dir, name);
    }
    f->users++;
    *out = f;
    return 0;
}

/* A forked child inherits the descriptor but none of the locks. */
static uint64_t *held(struct nds_lock_file *f)
{
    if (f->epoch != nds_process_epoch()) {
        f->epoch = nds_process_epoch();
        f->held = 0;
    }
    return &f->held;
}

void nds_lock_file_close(struct nds_lock_file *f)
{
    if (--f->users || *held(f))
        return; /* a lock that outlives its users keeps the descriptor: the next user finds it again */
    for (struct nds_lock_file **at = &files; *at; at = &(*at)->next)
        if (*at == f) {
            *at = f->next;
            break;
        }
    if (is_of(f->fd, f))
        close(f->fd);
    if (f->older_fd >= 0 && is_of(f->older_fd, f))
        close(f->older_fd);
    free(f);
}

static int set_lock(struct nds_lock_file *f, uint64_t byte, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
    while (fcntl(f->fd, F_SETLK, &lock) != 0) {
        if (errno != EINTR)
            return errno == EACCES ? -EAGAIN : -errno;
    }
    return 0;
}

int nds_lock_take(struct nds_lock_file *f, uint64_t byte)
{
    if (byte >= LOCKABLE_BYTES)
        return -EINVAL;
    if (!is_of(f->fd, f))
        return -EBADF;
    int failed = set_lock(f, byte, F_WRLCK);
    if (!failed)
        *held(f) |= UINT64_C(1) << byte;
    return failed;
}

int nds_lock_drop(struct nds_lock_file *f, uint64_t byte)
{
    if (byte >= LOCKABLE_BYTES)
        return -EINVAL;
    int failed = set_lock(f, byte, F_UNLCK);
    if (!failed)
        *held(f) &= ~(UINT64_C(1) << byte);
    return failed;
}

int nds_lock_holder(struct nds_lock_file *f, uint64_t byte, bool *is_held, int *pid)
{
    if (byte >= LOCKABLE_BYTES)
        return -EINVAL;
    if (*held(f) >> byte & 1) { /* F_GETLK never reports one's own */
        *is_held = true;
        *pid = getpid();
        return 0;
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
    if (fcntl(f->fd, F_GETLK, &lock) != 0)
        return -errno;
    *is_held = lock.l_type != F_UNLCK;
    *pid = *is_held ? lock.l_pid : 0;
    return 0;
}

bool nds_lock_file_intact(const struct nds_lock_file *f)
{
    return is_of(f->fd, f);
}

bool nds_lock_file_writable(const struct nds_lock_file *f)
{
    return f->writable;
}
