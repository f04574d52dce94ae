/* SPDX-License-Identifier: GPL-2.0-only */
/* The sysfs tree of a device: what it is, and the totals of the slabs it got back.
 *
 * Knows names and folders (the counters' come from nds_counters.h, generated from the package's table) and no rule
 * of the slot table; a number is read under the device's lock when somebody reads its file.
 */
#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "nds_counters.h"
#include "nds_driver.h"

struct nds_number {
    struct kobj_attribute attribute;
    struct nds_device *device;
    const u64 *value;
    unsigned int factor;
};

static const u64 nds_zero;

static ssize_t nds_number_show(struct kobject *kobject, struct kobj_attribute *attribute, char *text)
{
    struct nds_number *number = container_of(attribute, struct nds_number, attribute);
    u64 value;

    mutex_lock(&number->device->lock);
    value = *number->value * number->factor;
    mutex_unlock(&number->device->lock);
    return sysfs_emit(text, "%llu\n", value);
}

static ssize_t core_count_show(struct device *node, struct device_attribute *attribute, char *text)
{
    struct nds_device *device = dev_get_drvdata(node);

    return sysfs_emit(text, "%u\n", device->core_count);
}
static DEVICE_ATTR_RO(core_count);

/* An invented device, named as the like of it is. */
#define NDS_TEXT(name, value)                                                                                          \
    static ssize_t name##_show(struct kobject *kobject, struct kobj_attribute *attribute, char *text)                  \
    {                                                                                                                  \
        return sysfs_emit(text, "%s\n", value);                                                                        \
    }                                                                                                                  \
    static struct kobj_attribute nds_##name = __ATTR_RO(name)

NDS_TEXT(arch_type, "NCv3");
NDS_TEXT(device_name, "Trainium2");
NDS_TEXT(instance_type, "Trn2");

static const struct attribute *const nds_architecture[] = {&nds_arch_type.attr, &nds_device_name.attr,
                                                           &nds_instance_type.attr, NULL};

static const struct {
    const char *folder;
    const char *name;
    unsigned int counter;
    unsigned int factor;
} nds_sysfs_counters[] = {
#define NDS_ENTRY(folder, name, counter, factor) {folder, name, counter, factor},
    NDS_SYSFS_COUNTERS(NDS_ENTRY)
#undef NDS_ENTRY
};

static const char *const nds_ecc[] = {"mem_ecc_uncorrected", "sram_ecc_uncorrected"};

/* Folders of a device: info, architecture, stats, hardware and the two below it; per core itself, stats, status,
 * other_info and one per counter. Two numbers in each of the last. */
#define NDS_FOLDERS (6 + NDS_MAX_CORES * (4 + ARRAY_SIZE(nds_sysfs_counters)))
#define NDS_NUMBERS (2 * (ARRAY_SIZE(nds_ecc) + NDS_MAX_CORES * ARRAY_SIZE(nds_sysfs_counters)))

/* NULL when the parent is, so that a chain of these is checked once, at its end. */
static struct kobject *nds_folder(struct nds_device *device, struct kobject *parent, const char *name)
{
    struct kobject *folder = parent ? kobject_create_and_add(name, parent) : NULL;

    if (folder)
        device->folders[device->folder_count++] = folder;
    return folder;
}

static int nds_add_number(struct nds_device *device, struct kobject *folder, const char *name, const u64 *value,
                          unsigned int factor)
{
    struct nds_number *number = &device->numbers[device->number_count++];

    sysfs_attr_init(&number->attribute.attr);
    number->attribute.attr.name = name;
    number->attribute.attr.mode = 0444;
    number->attribute.show = nds_number_show;
    number->device = device;
    number->value = value;
    number->factor = factor;
    return sysfs_create_file(folder, &number->attribute.attr);
}

static int nds_pair(struct nds_device *device, struct kobject *parent, const char *name, const u64 *total,
                    const u64 *present, unsigned int factor)
{
    struct kobject *folder = nds_folder(device, parent, name);
    int error = folder ? nds_add_number(device, folder, "total", total, factor) : -ENOMEM;

    return error ? error : nds_add_number(device, folder, "present", present, factor);
}

static int nds_core_sysfs(struct nds_device *device, unsigned int core)
{
    struct kobject *stats, *status, *other;
    char name[24];
    int i;

    snprintf(name, sizeof(name), "neuron_core%u", core);
    stats = nds_folder(device, nds_folder(device, &device->node->kobj, name), "stats");
    status = nds_folder(device, stats, "status");
    other = nds_folder(device, stats, "other_info");
    for (i = 0; i < ARRAY_SIZE(nds_sysfs_counters); i++) {
        unsigned int counter = nds_sysfs_counters[i].counter;
        int error = nds_pair(device, strcmp(nds_sysfs_counters[i].folder, "status") ? other : status,
                             nds_sysfs_counters[i].name, &device->total[core][counter], &device->present[core][counter],
                             nds_sysfs_counters[i].factor);

        if (error)
            return error;
    }
    return 0;
}

int nds_sysfs_add(struct nds_device *device)
{
    struct kobject *root = &device->node->kobj, *architecture, *hardware;
    unsigned int core;
    int i, error;

    device->folders = kcalloc(NDS_FOLDERS, sizeof(*device->folders), GFP_KERNEL);
    device->numbers = kvcalloc(NDS_NUMBERS, sizeof(*device->numbers), GFP_KERNEL);
    if (!device->folders || !device->numbers)
        return -ENOMEM;
    error = device_create_file(device->node, &dev_attr_core_count);
    if (error)
        return error;
    architecture = nds_folder(device, nds_folder(device, root, "info"), "architecture");
    hardware = nds_folder(device, nds_folder(device, root, "stats"), "hardware");
    if (!architecture || !hardware)
        return -ENOMEM;
    error = sysfs_create_files(architecture, (const struct attribute **)nds_architecture);
    for (i = 0; i < ARRAY_SIZE(nds_ecc) && !error; i++)
        error = nds_pair(device, hardware, nds_ecc[i], &nds_zero, &nds_zero, 1);
    for (core = 0; core < device->core_count && !error; core++)
        error = nds_core_sysfs(device, core);
    return error;
}

void nds_sysfs_remove(struct nds_device *device)
{
    while (device->folder_count)
        kobject_put(device->folders[--device->folder_count]);
    kfree(device->folders);
    kvfree(device->numbers);
    device->folders = NULL;
    device->numbers = NULL;
}
