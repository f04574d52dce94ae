/* SPDX-License-Identifier: GPL-2.0-only */
/* One device of the stand-in as its two halves know it: the rules (nds_driver.c) and what sysfs shows (nds_sysfs.c). */
#ifndef NDS_DRIVER_H
#define NDS_DRIVER_H

#include <linux/device.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "nds_layout.h"

#define NDS_MAX_ATTACHED 16

struct nds_number; /* a number in sysfs */

struct nds_device {
    struct mutex lock; /* of everything up to the blank line */
    unsigned int descriptions;
    u64 roll_ups;
    struct {
        pid_t tgid; /* 0: nobody */
        unsigned int opens;
    } attached[NDS_MAX_ATTACHED];
    struct {
        pid_t owner; /* 0: free */
        u64 tick;    /* of its last release; 0: never used */
        u64 *slab;   /* the same from loading to unloading */
    } slots[NDS_SLOTS_PER_DEVICE];
    u64 total[NDS_MAX_CORES][NDS_NC_COUNTERS];
    u64 present[NDS_MAX_CORES][NDS_NC_COUNTERS]; /* what the last roll-up added */

    struct device *node; /* from here on: set when loading */
    unsigned int core_count;
    struct kobject **folders;
    unsigned int folder_count;
    struct nds_number *numbers;
    unsigned int number_count;
};

/* Makes the tree of a device below its node; 0 or a negative errno. What was made until then is for nds_sysfs_remove. */
int nds_sysfs_add(struct nds_device *device);

/* Takes all but the node itself away; harmless when nothing is there. */
void nds_sysfs_remove(struct nds_device *device);

#endif
