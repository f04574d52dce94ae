/* The ioctls of the kernel driver's device node. Numbers and shapes as the driver declares them; docs/driver.md.
 * Knows the node's protocol; knows nothing of slabs. Functions return 0 or a negative errno. */
#ifndef NDS_KERNEL_H
#define NDS_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* Declared with a pointer-sized argument, whatever the structure behind the pointer is. */
#define NDS_IOCTL_ALL_APPS_INFO _IOR('N', 7, void *)
#define NDS_IOCTL_ACQUIRE       _IOR('N', 71, void *)
#define NDS_IOCTL_RELEASE       _IOR('N', 72, void *)

struct nds_ioctl_slab {
    int32_t pid; /* in: 0 for one's own, else whose */
    uint32_t pad;
    uint64_t mmap_offset; /* out */
    uint32_t size;        /* out: bytes to map, exactly */
    uint32_t pad2;
};

struct nds_ioctl_app {
    int32_t pid;
    uint8_t nc_lock_map;
    uint8_t uuid[4][32];
    uint8_t pad[3];
    uint64_t host_memory; /* bytes */
    uint64_t device_memory;
};

struct nds_ioctl_apps {
    uint16_t flags;
    uint8_t pad[2];
    uint32_t capacity; /* in: entries that follow */
    uint32_t size;     /* out: entries filled */
    uint32_t pad2;
    struct nds_ioctl_app app[];
};

enum { NDS_APPS_LOCK_INFO = 1, NDS_APPS_MEMORY = 2, NDS_APPS_ALL = 0xf };

_Static_assert(sizeof(struct nds_ioctl_slab) == 24 && offsetof(struct nds_ioctl_slab, mmap_offset) == 8 &&
                   offsetof(struct nds_ioctl_slab, size) == 16,
               "argument of acquire and release");
_Static_assert(sizeof(struct nds_ioctl_app) == 152 && offsetof(struct nds_ioctl_app, uuid) == 5 &&
                   offsetof(struct nds_ioctl_app, host_memory) == 136 &&
                   offsetof(struct nds_ioctl_app, device_memory) == 144,
               "entry of the list of processes");
_Static_assert(offsetof(struct nds_ioctl_apps, capacity) == 4 && offsetof(struct nds_ioctl_apps, size) == 8 &&
                   offsetof(struct nds_ioctl_apps, app) == 16,
               "list of processes");

/* Claims the caller's slab (pid 0) or finds another process's: where to map it and how many bytes. */
int nds_kernel_acquire(int fd, int pid, uint64_t *offset, uint32_t *size);
int nds_kernel_release(int fd, int pid);

/* Fills up to `capacity` entries; returns how many, or a negative errno. */
int nds_kernel_apps(int fd, struct nds_ioctl_apps *apps, uint32_t capacity, uint16_t flags);

/* 0 while the process still owns the slab at this offset and lives (pidfd -1: not known), -ESRCH when not. */
int nds_kernel_check(int fd, int pid, uint64_t offset, int pidfd);

#endif
