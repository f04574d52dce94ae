"""What the doctor looks at where devices are directories: the software driver's, the room in them, and who publishes
in others. It knows files and /proc; what is in a device is not its business."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from neuron_ds.doctor.finding import Finding, split
from neuron_ds.driver import directory as d
from neuron_ds.errors import NeuronDSError

#: A producer's mapping of its slab in /proc/PID/maps: shared and writable, readers' are not.
_SLAB_MAPPING = re.compile(rb"^\S+ rw-s \S+ \S+ \S+ +(/.*)/neuron\d+/slabs( \(deleted\))?$", re.MULTILINE)

#: How many pids are named for one directory.
_NAMED = 16


def directories(roots: Sequence[tuple[str, bool]]) -> Iterator[Finding]:
    """The directories where devices should be: missing, not ours to read, or not to be trusted."""
    missing = []
    there = False
    for path, told in roots:
        try:
            os.close(d.open_root(path, produce=False, told=told))
        except FileNotFoundError:
            missing.append(path)
        except NeuronDSError as e:
            there = True
            yield Finding("problem", "directory", *split(e))
        except OSError as e:
            there = True
            yield Finding("problem", "directory", f"{path}: {e.strerror}", "name another in NEURON_DS_DIR")
        else:
            there = True
            yield Finding("ok", "directory", path)
    if missing and not there:
        yield Finding(
            "problem",
            "directory",
            f"{' and '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist: nobody has published there, "
            "or it was deleted",
            "start a producer (neuron-ds simulate is one), or name the producer's directory in NEURON_DS_DIR",
        )


def space(root: str, *, needed: bool) -> Iterator[Finding]:
    """Whether another device would fit. ``needed``: there is none yet, so it has to."""
    path = root
    while True:
        try:
            st = os.statvfs(path)
            break
        except OSError:
            if path == (parent := os.path.dirname(path)):
                return
            path = parent or "."
    free, total = st.f_bavail * st.f_frsize, st.f_blocks * st.f_frsize
    if free >= d.DEVICE_BYTES:
        yield Finding("ok", "space", f"{free:,} of {total:,} bytes are free below {path}")
    else:
        yield Finding(
            "problem" if needed else "warn",
            "space",
            f"{path} is full: a device needs {d.DEVICE_BYTES:,} bytes, {free:,} of {total:,} are free",
            "make room, give the container a larger /dev/shm, or set NEURON_DS_DIR to a larger file system",
        )


def elsewhere(roots: Iterable[str], proc: str, *, with_variables: str = "") -> Iterator[Finding]:
    """Producers that we don't see because their directory is another one than ours, or gone.

    ``roots`` are ours, none where the driver is another one; ``with_variables`` is what it takes to look in such.
    """
    ours = {os.path.realpath(root) for root in roots}
    try:
        pids = sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return
    found: dict[tuple[str, bool], list[int]] = {}
    for pid in pids:
        if pid == os.getpid():
            continue
        try:
            with open(f"{proc}/{pid}/maps", "rb") as f:
                mappings = set(_SLAB_MAPPING.findall(f.read()))
        except OSError:
            continue  # ended, or another user's
        for path, deleted in sorted(mappings):
            found.setdefault((os.fsdecode(path), bool(deleted)), []).append(pid)
    for (root, deleted), there in found.items():
        mine = os.path.realpath(root) in ours
        many = len(there) > 1
        who = f"{_processes(there)} publish{'' if many else 'es'} in {root}"
        if deleted and mine:
            yield Finding(
                "problem",
                "gone",
                f"{who}, but {'their' if many else 'its'} device there was deleted or replaced: nobody sees "
                f"{'them' if many else 'it'}",
                f"restart the process{'es' if many else ''}; systemd-logind's RemoveIPC deletes a user's shared memory "
                "at logout",
            )
        elif not deleted and not mine:
            yield Finding(
                "warn",
                "elsewhere",
                f"{who} (as {'they see' if many else 'it sees'} it), where we don't look",
                f"set {with_variables}NEURON_DS_DIR={root} to see {'them' if many else 'it'}",
            )


def _processes(pids: Sequence[int]) -> str:
    """Who, as far as a line has room."""
    some = ", ".join(map(str, pids[:_NAMED]))
    more = f" and {len(pids) - _NAMED} more" if len(pids) > _NAMED else ""
    return f"process{'es' if len(pids) > 1 else ''} {some}{more}"
