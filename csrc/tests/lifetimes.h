/* The part of test_core.c that is about what belongs to a process: mappings after close and fork, lock files. */
#ifndef NDS_TESTS_LIFETIMES_H
#define NDS_TESTS_LIFETIMES_H

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* ---- mappings ---- */

static int status_of(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void test_mapping_states(void)
{
    struct nds_mapping m, second;
    CHECK(nds_map(&m, -1, 0, NDS_SLAB_SIZE, true) == 0);
    CHECK(nds_readable(&m) && nds_writable(&m) && !nds_forked(&m));
    uint64_t *live = m.live;
    nds_mapping_kill(&m);
    CHECK(!nds_readable(&m) && !nds_writable(&m) && !nds_forked(&m) && m.base);
    nds_unmap(&m);
    CHECK(!m.base && !nds_readable(&m) && *live == NDS_LIVE_KILLED);
    CHECK(nds_map(&second, -1, 0, NDS_SLAB_SIZE, false) == 0);
    CHECK(second.live != live); /* the dead mapping still has its word: somebody may look at it */
    CHECK(nds_readable(&second) && !nds_writable(&second));
    nds_mapping_free(&m);
    nds_mapping_free(&second);
}

static void test_live_words_are_used_again(void)
{
    enum { MANY = 3000 };
    static struct nds_mapping m[MANY];
    static uint64_t *before[MANY];
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            CHECK(nds_map(&m[i], -1, 0, 4096, i % 2) == 0);
            CHECK(nds_writable(&m[i]) == (i % 2) && nds_readable(&m[i]));
            if (round) /* the last given back is the first handed out, so none is lost and none is used twice */
                CHECK(m[i].live == before[MANY - 1 - i]);
        }
        for (unsigned i = 0; i < MANY; i++) {
            before[i] = m[i].live;
            nds_mapping_free(&m[i]);
        }
    }
}

static void test_mapping_errors(void)
{
    struct nds_mapping m;
    CHECK(nds_map(&m, 9999, 0, 4096, false) == -EBADF);
    int fd = memfd_create("short", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    CHECK(nds_map(&m, fd, 0, NDS_REQUIRED_SIZE, false) == -ENODATA);
    CHECK(nds_map(&m, fd, 4096, 4096, false) == -ENODATA);
    CHECK(nds_map(&m, fd, UINT64_MAX - 4095, 8192, false) == -ENODATA);
    CHECK(nds_map(&m, fd, 8, 8, false) == -EINVAL);
    CHECK(nds_map(&m, fd, 0, 4096, false) == 0);
    nds_mapping_free(&m);
    close(fd);
}

static void test_a_forked_child_owns_nothing(void)
{
    struct nds_mapping m, mine;
    uint64_t epoch = nds_process_epoch();
    CHECK(epoch && nds_process_epoch() == epoch);
    CHECK(nds_map(&m, -1, 0, NDS_SLAB_SIZE, true) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool good = nds_forked(&m) && !nds_readable(&m) && !nds_writable(&m) && nds_process_epoch() != epoch;
        void *old = m.base;
        /* Whatever the child has at the parent's address by now must survive the end of the parent's mapping. */
        void *here = mmap(old, NDS_SLAB_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        good = good && here == old;
        nds_mapping_kill(&m);
        good = good && nds_forked(&m);
        nds_mapping_free(&m);
        memset(here, 1, NDS_SLAB_SIZE);
        good = good && nds_map(&mine, -1, 0, NDS_SLAB_SIZE, true) == 0 && nds_writable(&mine);
        _exit(good ? 0 : 1);
    }
    CHECK(status_of(pid) == 0);
    CHECK(nds_writable(&m) && nds_process_epoch() == epoch);
    nds_mapping_free(&m);
}

/* ---- lock files ---- */

static int temporary_directory(char *path)
{
    strcpy(path, "/tmp/nds-test-XXXXXX");
    CHECK(mkdtemp(path) != NULL);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(dir >= 0);
    int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
    return dir;
}

/* Who another process sees: the holder's pid, 0 for nobody. */
static int holder_elsewhere(int dir, uint64_t byte)
{
    pid_t pid = fork();
    if (pid == 0) {
        int fd = openat(dir, "lock", O_RDWR);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
        if (fd < 0 || fcntl(fd, F_GETLK, &lock) != 0)
            _exit(2);
        _exit(lock.l_type != F_UNLCK && lock.l_pid == getppid());
    }
    int status = status_of(pid);
    CHECK(status == 0 || status == 1 << 8);
    return status ? getpid() : 0;
}

static void test_locks(void)
{
    char path[32];
    int dir = temporary_directory(path), pid;
    bool held;
    struct nds_lock_file *a, *b;
    CHECK(nds_lock_file_open(dir, "absent", &a) == -ENOENT);
    CHECK(symlinkat("lock", dir, "link") == 0 && nds_lock_file_open(dir, "link", &a) == -ELOOP);
    CHECK(nds_lock_file_open(dir, "lock", &a) == 0 && nds_lock_file_open(dir, "lock", &b) == 0);
    CHECK(a == b && nds_lock_file_writable(a));
    CHECK(nds_lock_holder(a, 5, &held, &pid) == 0 && !held);
    CHECK(nds_lock_take(a, 5) == 0 && nds_lock_take(a, 5) == 0 && nds_lock_take(a, 6) == 0);
    CHECK(nds_lock_holder(b, 5, &held, &pid) == 0 && held && pid == getpid());
    CHECK(holder_elsewhere(dir, 5) == getpid() && holder_elsewhere(dir, 4) == 0);
    nds_lock_file_close(a);
    CHECK(holder_elsewhere(dir, 5) == getpid());
    nds_lock_file_close(b); /* no user is left, but two locks are: the descriptor stays */
    CHECK(holder_elsewhere(dir, 5) == getpid());
    CHECK(nds_lock_file_open(dir, "lock", &a) == 0);
    CHECK(nds_lock_drop(a, 5) == 0 && nds_lock_holder(a, 5, &held, &pid) == 0 && !held);
    CHECK(holder_elsewhere(dir, 5) == 0 && holder_elsewhere(dir, 6) == getpid());
    CHECK(nds_lock_take(a, 64) == -EINVAL && nds_lock_drop(a, UINT64_MAX) == -EINVAL);
    CHECK(nds_lock_holder(a, 64, &held, &pid) == -EINVAL);
    pid_t child = fork();
    if (child == 0) { /* it inherits the descriptor, not the lock, and closing it takes nothing from the parent */
        bool good = nds_lock_holder(a, 6, &held, &pid) == 0 && held && pid == getppid();
        good = good && nds_lock_take(a, 6) == -EAGAIN;
        nds_lock_file_close(a);
        _exit(good ? 0 : 1);
    }
    CHECK(status_of(child) == 0);
    CHECK(holder_elsewhere(dir, 6) == getpid());
    CHECK(nds_lock_drop(a, 6) == 0);
    nds_lock_file_close(a);
    CHECK(unlinkat(dir, "lock", 0) == 0 && unlinkat(dir, "link", 0) == 0 && rmdir(path) == 0);
    close(dir);
}

/* Opened while it could only be read, then again once it can be written: the same lock file, now good for locks. */
static void test_a_read_only_lock_file(void)
{
    char path[32];
    int dir = temporary_directory(path), pid;
    CHECK(fchmodat(dir, "lock", 0444, 0) == 0 && fchmod(dir, 0755) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct nds_lock_file *f, *g;
        bool held, root = geteuid() == 0;
        bool good = !root || seteuid(65534) == 0;
        good = good && nds_lock_file_open(dir, "lock", &f) == 0 && !nds_lock_file_writable(f);
        good = good && nds_lock_take(f, 1) == -EBADF && nds_lock_holder(f, 1, &held, &pid) == 0 && !held;
        good = good && (!root || seteuid(0) == 0) && fchmodat(dir, "lock", 0644, 0) == 0;
        good = good && nds_lock_file_open(dir, "lock", &g) == 0 && g == f && nds_lock_file_writable(f);
        good = good && nds_lock_take(f, 1) == 0;
        if (good)
            nds_lock_file_close(f), nds_lock_drop(g, 1), nds_lock_file_close(g);
        _exit(good ? 0 : 1);
    }
    CHECK(status_of(child) == 0);
    CHECK(unlinkat(dir, "lock", 0) == 0 && rmdir(path) == 0);
    close(dir);
}

static void test_lifetimes(void)
{
    test_mapping_states();
    test_live_words_are_used_again();
    test_mapping_errors();
    test_a_forked_child_owns_nothing();
    test_locks();
    test_a_read_only_lock_file();
}

#endif
