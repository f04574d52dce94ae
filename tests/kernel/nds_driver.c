/* SPDX-License-Identifier: GPL-2.0-only */
/* A stand-in for the Neuron kernel driver, for tests: device nodes, slot table, slabs, counters in sysfs.
 *
 * It keeps the rules of docs/driver.md on a real kernel, so that real process death, flush and page protection
 * are what the package meets. It knows no hardware. The layout comes from nds_layout.h, which
 * is generated from the package's table. Written from the published interface alone.
 *
 * A process *attaches* by opening a node for reading; what it opened is counted per process, and every close(2)
 * of whatever descriptor, made by that process, counts one down (flush). An *open description* ends when nothing
 * refers to it any more, a mapping included (release). The first gives a slab back, the second may be the last close.
 */
#include <linux/atomic.h>
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#include "nds_driver.h"

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stand-in for the Neuron kernel driver, for tests");

static unsigned int devices = 2;
module_param(devices, uint, 0444);
MODULE_PARM_DESC(devices, "number of devices");

static unsigned int cores = 8;
module_param(cores, uint, 0444);
MODULE_PARM_DESC(cores, "physical NeuronCores per device");

/* ---- what crosses the system calls --------------------------------------------------------------------------- */

struct nds_arg {
    s32 pid;         /* in; 0: the caller */
    u32 pad;         /* untouched */
    u64 mmap_offset; /* out */
    u32 size;        /* out */
    u32 pad_end;     /* untouched */
};
static_assert(sizeof(struct nds_arg) == 24);

struct nds_apps_head {
    u16 flags;    /* in: what to tell of each; there is nothing to tell here */
    u16 pad;      /* untouched */
    u32 capacity; /* in: entries there is room for */
    u32 size;     /* out: entries written */
    u32 pad_end;  /* untouched; the entries follow */
};
static_assert(sizeof(struct nds_apps_head) == 16);

struct nds_app {
    s32 pid;
    u8 nc_lock_map;
    u8 uuids[4][32];
    u8 pad[3];
    u64 host_memory_bytes;
    u64 device_memory_bytes;
};
static_assert(sizeof(struct nds_app) == 152);
static_assert(offsetof(struct nds_app, host_memory_bytes) == 136);

/* For tests only: the table as it is. */
struct nds_table {
    u64 roll_ups; /* of this device since the module was loaded */
    struct {
        s32 pid;
        u32 pad;
        u64 tick;
        u64 first_counter; /* device counter 0 of the slab */
    } slots[NDS_SLOTS_PER_DEVICE];
};
static_assert(sizeof(struct nds_table) == 8 + 24 * NDS_SLOTS_PER_DEVICE);

/* The size field of these numbers is a pointer's, whatever they point to. */
#define NDS_ACQUIRE _IOR('N', 71, void *)
#define NDS_RELEASE _IOR('N', 72, void *)
#define NDS_APPS    _IOR('N', 7, void *)
#define NDS_TABLE   _IOR('N', 250, void *)

/* Opaque to everybody: slot s is mapped at NDS_MMAP_BASE + s slabs. */
#define NDS_MMAP_BASE 0x10000000ULL

/* ---- devices -------------------------------------------------------------------------------------------------- */

static struct nds_device *nds_devices;
static dev_t nds_first;
static struct cdev nds_cdev;
static struct class *nds_class;
static atomic64_t nds_ticks; /* one counter for all devices */

/* Pids are those of the initial namespace, where the module lives. */
static pid_t nds_caller(void)
{
    return task_tgid_nr(current);
}

static const u64 *nds_counter(const u64 *slab, unsigned int core, unsigned int counter)
{
    if (core >= NDS_BASE_CORES)
        return slab + NDS_EXT_NC_DATA_OFFSET / 8 + (core - NDS_BASE_CORES) * NDS_EXT_NC_STRIDE + counter;
    if (counter < NDS_BASE_NC_COUNTERS)
        return slab + NDS_NC_COUNTERS_OFFSET / 8 + core * NDS_BASE_NC_COUNTERS + counter;
    return slab + NDS_EXT_NC_COUNTERS_OFFSET / 8 + core * NDS_EXT_NC_COUNTERS + counter - NDS_BASE_NC_COUNTERS;
}

/* ---- the slot table; the caller holds the device's lock --------------------------------------------------------- */

static int nds_find(const struct nds_device *device, pid_t pid)
{
    int slot;

    for (slot = 0; slot < NDS_SLOTS_PER_DEVICE; slot++)
        if (device->slots[slot].owner == pid)
            return slot;
    return -ENOENT;
}

/* A never-used slot has tick 0, so the free one of the smallest tick and lowest index is the one to take. */
static int nds_claim(struct nds_device *device, pid_t pid)
{
    int slot, best = -ENOMEM;

    for (slot = 0; slot < NDS_SLOTS_PER_DEVICE; slot++)
        if (!device->slots[slot].owner && (best < 0 || device->slots[slot].tick < device->slots[best].tick))
            best = slot;
    if (best >= 0)
        device->slots[best].owner = pid;
    return best;
}

static void nds_clear(struct nds_device *device, int slot)
{
    memset(device->slots[slot].slab, 0, NDS_SLAB_SIZE);
    device->slots[slot].tick = atomic64_inc_return(&nds_ticks);
    device->slots[slot].owner = 0;
}

static void nds_roll_up(struct nds_device *device, const u64 *slab)
{
    unsigned int core, counter;

    for (core = 0; core < NDS_MAX_CORES; core++) {
        for (counter = 0; counter < 64; counter++) {
            u64 value;

            if (!(NDS_NC_TOTALLED >> counter & 1))
                continue;
            value = READ_ONCE(*nds_counter(slab, core, counter));
            device->total[core][counter] += value;
            device->present[core][counter] = value;
        }
    }
    device->roll_ups++;
}

static void nds_release_of(struct nds_device *device, pid_t owner)
{
    int slot = nds_find(device, owner);

    if (slot < 0)
        return;
    nds_roll_up(device, device->slots[slot].slab);
    nds_clear(device, slot);
}

/* ---- attached processes; the caller holds the device's lock ------------------------------------------------------ */

static int nds_attach(struct nds_device *device, pid_t tgid)
{
    int i, place = -EBUSY;

    for (i = 0; i < NDS_MAX_ATTACHED; i++) {
        if (device->attached[i].tgid == tgid) {
            device->attached[i].opens++;
            return 0;
        }
        if (!device->attached[i].tgid && place < 0)
            place = i;
    }
    if (place < 0)
        return place;
    device->attached[place].tgid = tgid;
    device->attached[place].opens = 1;
    return 0;
}

/* True when this was the process's last. A process that only inherited a descriptor isn't attached. */
static bool nds_detach(struct nds_device *device, pid_t tgid)
{
    int i;

    for (i = 0; i < NDS_MAX_ATTACHED; i++) {
        if (device->attached[i].tgid != tgid)
            continue;
        if (--device->attached[i].opens)
            return false;
        device->attached[i].tgid = 0;
        return true;
    }
    return false;
}

/* ---- file operations --------------------------------------------------------------------------------------------- */

/* Open for writing only: another mode, that attaches nothing, holds nothing open and has none of the calls. */
static bool nds_is_restricted(const struct file *file)
{
    return !(file->f_mode & FMODE_READ);
}

static int nds_open(struct inode *inode, struct file *file)
{
    struct nds_device *device = &nds_devices[iminor(inode) - MINOR(nds_first)];
    int error;

    file->private_data = device;
    if (nds_is_restricted(file))
        return 0;
    mutex_lock(&device->lock);
    error = nds_attach(device, nds_caller());
    if (!error)
        device->descriptions++;
    mutex_unlock(&device->lock);
    return error;
}

/* Every close(2), of a dup too, and the exit of a process, in that process. */
static int nds_flush(struct file *file, fl_owner_t id)
{
    struct nds_device *device = file->private_data;

    if (nds_is_restricted(file))
        return 0;
    mutex_lock(&device->lock);
    if (nds_detach(device, nds_caller()))
        nds_release_of(device, nds_caller());
    mutex_unlock(&device->lock);
    return 0;
}

/* The end of an open description. After the last of a device nobody can own a slab: no owner check, no roll-up. */
static int nds_release(struct inode *inode, struct file *file)
{
    struct nds_device *device = file->private_data;
    int slot;

    if (nds_is_restricted(file))
        return 0;
    mutex_lock(&device->lock);
    if (--device->descriptions == 0)
        for (slot = 0; slot < NDS_SLOTS_PER_DEVICE; slot++)
            nds_clear(device, slot);
    mutex_unlock(&device->lock);
    return 0;
}

static int nds_mmap(struct file *file, struct vm_area_struct *vma)
{
    struct nds_device *device = file->private_data;
    u64 at =
        ((u64)vma->vm_pgoff << PAGE_SHIFT) - NDS_MMAP_BASE; /* below the base it wraps, and is refused as too big */

    if (!(vma->vm_flags & VM_SHARED) || vma->vm_end - vma->vm_start != NDS_SLAB_SIZE)
        return -EINVAL;
    if (at % NDS_SLAB_SIZE || at / NDS_SLAB_SIZE >= NDS_SLOTS_PER_DEVICE)
        return -EINVAL;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
    vm_flags_set(vma, VM_DONTCOPY);
#else
    vma->vm_flags |= VM_DONTCOPY;
#endif
    return remap_vmalloc_range(vma, device->slots[at / NDS_SLAB_SIZE].slab, 0);
}

static long nds_ioctl_acquire(struct nds_device *device, struct nds_arg __user *user)
{
    struct nds_arg arg;
    int slot;

    if (copy_from_user(&arg, user, sizeof(arg)))
        return -EFAULT;
    mutex_lock(&device->lock);
    slot = nds_find(device, arg.pid ? arg.pid : nds_caller());
    if (slot < 0 && !arg.pid)
        slot = nds_claim(device, nds_caller());
    mutex_unlock(&device->lock);
    if (slot < 0)
        return slot;
    arg.mmap_offset = NDS_MMAP_BASE + (u64)slot * NDS_SLAB_SIZE;
    arg.size = NDS_SLAB_SIZE;
    return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : 0;
}

static long nds_ioctl_release(struct nds_device *device, struct nds_arg __user *user)
{
    struct nds_arg arg;

    if (copy_from_user(&arg, user, sizeof(arg)))
        return -EFAULT;
    if (arg.pid && arg.pid != nds_caller())
        return 0;
    mutex_lock(&device->lock);
    nds_release_of(device, nds_caller());
    mutex_unlock(&device->lock);
    return 0;
}

static long nds_ioctl_apps(struct nds_device *device, struct nds_apps_head __user *user)
{
    struct nds_app __user *entries = (void __user *)(user + 1);
    struct nds_apps_head head;
    struct nds_app *apps;
    u32 count = 0;
    long error = 0;
    int i;

    if (copy_from_user(&head, user, sizeof(head)))
        return -EFAULT;
    apps = kcalloc(NDS_MAX_ATTACHED, sizeof(*apps), GFP_KERNEL);
    if (!apps)
        return -ENOMEM;
    mutex_lock(&device->lock);
    for (i = 0; i < NDS_MAX_ATTACHED && count < head.capacity; i++)
        if (device->attached[i].tgid)
            apps[count++].pid = device->attached[i].tgid;
    mutex_unlock(&device->lock);
    if (copy_to_user(entries, apps, count * sizeof(*apps)) || put_user(count, &user->size))
        error = -EFAULT;
    kfree(apps);
    return error;
}

static long nds_ioctl_table(struct nds_device *device, struct nds_table __user *user)
{
    struct nds_table table = {};
    int slot;

    mutex_lock(&device->lock);
    table.roll_ups = device->roll_ups;
    for (slot = 0; slot < NDS_SLOTS_PER_DEVICE; slot++) {
        table.slots[slot].pid = device->slots[slot].owner;
        table.slots[slot].tick = device->slots[slot].tick;
        table.slots[slot].first_counter = READ_ONCE(device->slots[slot].slab[NDS_ND_COUNTERS_OFFSET / 8]);
    }
    mutex_unlock(&device->lock);
    return copy_to_user(user, &table, sizeof(table)) ? -EFAULT : 0;
}

static long nds_ioctl(struct file *file, unsigned int number, unsigned long argument)
{
    struct nds_device *device = file->private_data;
    void __user *user = (void __user *)argument;

    if (number == NDS_TABLE) /* in the restricted mode too: so that looking doesn't attach */
        return nds_ioctl_table(device, user);
    if (number != NDS_ACQUIRE && number != NDS_RELEASE && number != NDS_APPS)
        return -ENOTTY;
    if (nds_is_restricted(file))
        return -EPERM;
    if (number == NDS_ACQUIRE)
        return nds_ioctl_acquire(device, user);
    if (number == NDS_RELEASE)
        return nds_ioctl_release(device, user);
    return nds_ioctl_apps(device, user);
}

static const struct file_operations nds_operations = {
    .owner = THIS_MODULE,
    .open = nds_open,
    .flush = nds_flush,
    .release = nds_release,
    .mmap = nds_mmap,
    .unlocked_ioctl = nds_ioctl,
};

/* ---- loading and unloading ------------------------------------------------------------------------------------------ */

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
static char *nds_devnode(const struct device *node, umode_t *mode)
#else
static char *nds_devnode(struct device *node, umode_t *mode)
#endif
{
    if (mode)
        *mode = 0666;
    return NULL;
}

static void nds_device_remove(struct nds_device *device)
{
    int slot;

    nds_sysfs_remove(device);
    if (device->node)
        device_unregister(device->node);
    for (slot = 0; slot < NDS_SLOTS_PER_DEVICE; slot++)
        vfree(device->slots[slot].slab);
}

static int nds_device_add(struct nds_device *device, unsigned int index)
{
    int slot;

    mutex_init(&device->lock);
    device->core_count = cores;
    for (slot = 0; slot < NDS_SLOTS_PER_DEVICE; slot++) {
        device->slots[slot].slab = vmalloc_user(NDS_SLAB_SIZE); /* zeroed */
        if (!device->slots[slot].slab)
            return -ENOMEM;
    }
    device->node = device_create(nds_class, NULL, nds_first + index, device, "neuron%u", index);
    if (IS_ERR(device->node)) {
        int error = PTR_ERR(device->node);

        device->node = NULL;
        return error;
    }
    return nds_sysfs_add(device);
}

static void nds_unload(void)
{
    unsigned int i;

    cdev_del(&nds_cdev);
    for (i = 0; i < devices; i++)
        nds_device_remove(&nds_devices[i]);
    class_destroy(nds_class);
    unregister_chrdev_region(nds_first, devices);
    kvfree(nds_devices);
}

static int __init nds_load(void)
{
    unsigned int i;
    int error;

    if (devices < 1 || devices > NDS_MAX_DEVICES || cores < 1 || cores > NDS_MAX_CORES)
        return -EINVAL;
    nds_devices = kvcalloc(devices, sizeof(*nds_devices), GFP_KERNEL);
    if (!nds_devices)
        return -ENOMEM;
    error = alloc_chrdev_region(&nds_first, 0, devices, "neuron");
    if (error)
        goto free;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
    nds_class = class_create("neuron_device");
#else
    nds_class = class_create(THIS_MODULE, "neuron_device");
#endif
    if (IS_ERR(nds_class)) {
        error = PTR_ERR(nds_class);
        goto unregister;
    }
    nds_class->devnode = nds_devnode;
    cdev_init(&nds_cdev, &nds_operations);
    nds_cdev.owner = THIS_MODULE;
    for (i = 0; i < devices && !error; i++)
        error = nds_device_add(&nds_devices[i], i);
    if (!error)
        error = cdev_add(&nds_cdev, nds_first, devices);
    if (!error)
        return 0;
    for (i = 0; i < devices; i++)
        nds_device_remove(&nds_devices[i]);
    class_destroy(nds_class);
unregister:
    unregister_chrdev_region(nds_first, devices);
free:
    kvfree(nds_devices);
    return error;
}

module_init(nds_load);
module_exit(nds_unload);
