/* Calls on the kernel driver's device node. */
#include "nds_kernel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

int nds_kernel_acquire(int fd, int pid, uint64_t *offset, uint32_t *size)
{
    struct nds_ioctl_slab slab = {.pid = pid};
    if (ioctl(fd, NDS_IOCTL_ACQUIRE, &slab) != 0)
        return -errno;
    *offset = slab.mmap_offset;
    *size = slab.size;
    return 0;
}

int nds_kernel_release(int fd, int pid)
{
    struct nds_ioctl_slab slab = {.pid = pid};
    return ioctl(fd, NDS_IOCTL_RELEASE, &slab) != 0 ? -errno : 0;
}

int nds_kernel_apps(int fd, struct nds_ioctl_apps *apps, uint32_t capacity, uint16_t flags)
{
    memset(apps, 0, sizeof *apps + capacity * sizeof apps->app[0]);
    apps->flags = flags;
    apps->capacity = capacity;
    if (ioctl(fd, NDS_IOCTL_ALL_APPS_INFO, apps) != 0)
        return -errno;
    return (int)(apps->size < capacity ? apps->size : capacity);
}

int nds_kernel_check(int fd, int pid, uint64_t offset, int pidfd)
{
    uint64_t now = 0;
    uint32_t size = 0;
    int failed = nds_kernel_acquire(fd, pid, &now, &size);
    if (failed)
        return failed == -ENOENT ? -ESRCH : failed;
    if (now != offset)
        return -ESRCH;
    /* The pid may be another process's by now; a pidfd is not fooled. */
    struct pollfd dead = {.fd = pidfd, .events = POLLIN};
    if (pidfd >= 0 && poll(&dead, 1, 0) == 1)
        return -ESRCH;
    return 0;
}
