"""The ioctl structures and numbers, against declarations of our own and this machine's C compiler."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from neuron_ds import _core

# From docs/driver.md's source, the published headers, declared here anew: not our core's header.
PROGRAM = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>

struct datastore { int32_t pid; uint64_t mmap_offset; uint32_t size; };
struct app { int32_t pid; uint8_t nc_lock_map; char uuid[4][32]; size_t host_mem; size_t device_mem; };
struct apps { uint16_t flags; uint32_t capacity; uint32_t size; struct app entries[]; };

int main(void)
{
    printf("{\"acquire\": %lu, \"release\": %lu, \"apps\": %lu,", (unsigned long)_IOR('N', 71, void *),
           (unsigned long)_IOR('N', 72, void *), (unsigned long)_IOR('N', 7, void *));
    printf("\"slab\": %zu, \"offset_at\": %zu, \"size_at\": %zu,", sizeof(struct datastore),
           offsetof(struct datastore, mmap_offset), offsetof(struct datastore, size));
    printf("\"entries_at\": %zu, \"capacity_at\": %zu, \"filled_at\": %zu,", offsetof(struct apps, entries),
           offsetof(struct apps, capacity), offsetof(struct apps, size));
    printf("\"app\": %zu, \"uuid_at\": %zu, \"host_at\": %zu, \"device_at\": %zu}\n", sizeof(struct app),
           offsetof(struct app, uuid), offsetof(struct app, host_mem), offsetof(struct app, device_mem));
    return 0;
}
"""
# Our core's header printed the same way.
OURS = r"""
#include <stdio.h>
#include "nds_kernel.h"
int main(void)
{
    printf("{\"acquire\": %lu, \"release\": %lu, \"apps\": %lu,", (unsigned long)NDS_IOCTL_ACQUIRE,
           (unsigned long)NDS_IOCTL_RELEASE, (unsigned long)NDS_IOCTL_ALL_APPS_INFO);
    printf("\"slab\": %zu, \"offset_at\": %zu, \"size_at\": %zu,", sizeof(struct nds_ioctl_slab),
           offsetof(struct nds_ioctl_slab, mmap_offset), offsetof(struct nds_ioctl_slab, size));
    printf("\"entries_at\": %zu, \"capacity_at\": %zu, \"filled_at\": %zu,", offsetof(struct nds_ioctl_apps, app),
           offsetof(struct nds_ioctl_apps, capacity), offsetof(struct nds_ioctl_apps, size));
    printf("\"app\": %zu, \"uuid_at\": %zu, \"host_at\": %zu, \"device_at\": %zu}\n", sizeof(struct nds_ioctl_app),
           offsetof(struct nds_ioctl_app, uuid), offsetof(struct nds_ioctl_app, host_memory),
           offsetof(struct nds_ioctl_app, device_memory));
    return 0;
}
"""
# What the driver's protocol says in numbers, on x86-64 and arm64 alike.
SAID = {
    "acquire": 0x80084E47,
    "release": 0x80084E48,
    "apps": 0x80084E07,
    "slab": 24,
    "offset_at": 8,
    "size_at": 16,
    "entries_at": 16,
    "capacity_at": 4,
    "filled_at": 8,
    "app": 152,
    "uuid_at": 5,
    "host_at": 136,
    "device_at": 144,
}
CORE = Path(__file__).resolve().parents[2] / "csrc"


def compiled(source: str, folder: Path, name: str) -> dict[str, int]:
    (folder / f"{name}.c").write_text(source)
    subprocess.run(
        ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{CORE}", "-o", folder / name, folder / f"{name}.c"],
        check=True,
    )
    return json.loads(subprocess.run([folder / name], check=True, capture_output=True, text=True).stdout)


def test_the_compiler_lays_the_published_structures_out_as_said(tmp_path: Path) -> None:
    assert compiled(PROGRAM, tmp_path, "published") == SAID


def test_our_structures_are_the_published_ones(tmp_path: Path) -> None:
    assert compiled(OURS, tmp_path, "ours") == SAID


def test_the_core_was_built_with_them() -> None:
    names = ("acquire", "release", "apps", "slab", "entries_at", "app")
    assert _core.kernel_abi() == tuple(SAID[name] for name in names)
