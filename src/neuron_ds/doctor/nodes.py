"""What the doctor looks at where devices are nodes of a real driver: module, node, permission, places, pids.

It knows the kernel driver's ways to refuse, and /proc; what is in a slab is not its business.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Sequence

from neuron_ds.doctor.finding import Finding, split
from neuron_ds.driver import Owner, kernel
from neuron_ds.driver.kernel import KernelDriver
from neuron_ds.errors import AccessDenied, DeviceBusy, NeuronDSError, NoDevice
from neuron_ds.layout import SLOTS_PER_DEVICE

#: Where the kernel shows that the driver's module is loaded, in containers too.
MODULE = "/sys/module/neuron"
NODES_MISSING = (
    "in a container pass them in (docker run --device, the device plugin in Kubernetes); "
    "on the host dmesg tells why the module found no device"
)
_HOST_PIDS = "give the container the host's pid namespace: hostPID: true in Kubernetes, docker run --pid=host"


def is_loaded(module: str = MODULE) -> bool:
    return os.path.isdir(module)


def missing(module: str = MODULE) -> Finding:
    """Why there is no node."""
    root = kernel.dev_root()
    try:
        os.listdir(root)
    except OSError as e:
        return Finding("problem", "node", f"{root}: {e.strerror}", f"name the folder of nodes in {kernel.DEV_VARIABLE}")
    if not is_loaded(module):
        return Finding(
            "problem",
            "module",
            f"there is no device node in {root}, and the neuron module is not loaded ({module} is missing)",
            "load it where the accelerators are (modprobe neuron); without any set NEURON_DS_DRIVER=software",
        )
    return Finding(
        "problem", "node", f"there is no device node in {root}, although the neuron module is loaded", NODES_MISSING
    )


def sysfs(numbers: Sequence[int]) -> Iterator[Finding]:
    """Whether the driver's sysfs is there beside the nodes that could be opened."""
    root = kernel.sysfs_root()
    bare = [n for n in numbers if not os.path.isdir(f"{root}/neuron{n}")]
    if bare:
        yield Finding(
            "warn",
            "sysfs",
            f"{root} shows nothing of {_devices(bare)}: type, cores, and what ended processes counted are not known",
            f"mount the host's /sys into the container, or name the driver's folder in {kernel.SYSFS_VARIABLE}",
        )


# --- A device that can't be opened ------------------------------------------------------------------------------------


def refused(number: int, e: NeuronDSError, proc: str, module: str = MODULE) -> Finding:
    """Why a node could not be opened, with what can be found out about it."""
    path = f"{kernel.dev_root()}/neuron{number}"
    text, advice = split(e)
    match e:
        case DeviceBusy():
            return _busy(number, path, proc)
        case AccessDenied():
            return Finding("problem", "permission", f"{text} ({_permissions(path)})", advice)
        case NoDevice() if not is_loaded(module):
            return Finding(
                "problem", "module", f"{text}: the neuron module is not loaded ({module} is missing)", advice
            )
        case NoDevice():
            return Finding("problem", "node", text, advice)
    return Finding("problem", "device", text, advice or "dmesg may tell more")


def _busy(number: int, path: str, proc: str) -> Finding:
    holders = holders_of(path, proc)
    unseen = SLOTS_PER_DEVICE - len(holders)
    who = ", ".join(name_process(pid, proc) for pid in holders)
    if unseen > 0:
        hidden = f"{unseen} {'more' if holders else 'of them'} that can't be seen by you"
        who = f"{who}, and {hidden}" if who else hidden
    advice = "end one of them; monitors take places too"
    if unseen > 0:
        advice += ". root in the host's pid namespace sees them all"
    return Finding(
        "problem",
        "busy",
        f"device {number}: {SLOTS_PER_DEVICE} processes have it open, as many as the driver lets in: {who}",
        advice,
    )


def holders_of(path: str, proc: str) -> list[int]:
    """The processes that have a node open, as far as /proc shows their descriptors."""
    try:
        device = os.stat(path).st_rdev
        pids = sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return []
    return [pid for pid in pids if _has_open(f"{proc}/{pid}/fd", device)]


def _has_open(folder: str, device: int) -> bool:
    try:
        for name in os.listdir(folder):
            # By its name first: to stat a file of a dead server would wait for that.
            if os.path.basename(os.readlink(f"{folder}/{name}")).startswith("neuron"):
                st = os.stat(f"{folder}/{name}")
                if stat.S_ISCHR(st.st_mode) and st.st_rdev == device:
                    return True
    except OSError:
        pass  # ended, or another user's
    return False


def _permissions(path: str) -> str:
    """Who may open the node, and who asks."""
    try:
        st = os.stat(path)
    except OSError:
        return f"you are uid {os.geteuid()}"
    try:
        owner = pwd.getpwuid(st.st_uid).pw_name
    except KeyError:
        owner = str(st.st_uid)
    try:
        group = grp.getgrgid(st.st_gid).gr_name
    except KeyError:
        group = str(st.st_gid)
    return f"mode {stat.S_IMODE(st.st_mode):o}, of {owner} and group {group}; you are uid {os.geteuid()}"


# --- Who is attached --------------------------------------------------------------------------------------------------


def attached(driver: KernelDriver, owners: Sequence[Owner], proc: str) -> Iterator[Finding]:
    """What the processes on all devices say together: whose pids they are, and who publishes nothing."""
    foreign = sorted({o.pid for o in owners if o.foreign})
    if foreign:
        yield Finding(
            "warn",
            "namespace",
            f"the driver knows this process (pid {os.getpid()}) under another pid, so the pids it lists are the host's "
            f"and mean nothing here: {', '.join(map(str, foreign))}",
            f"{_HOST_PIDS}; attach by the pids listed works all the same",
        )
        return
    unknown = [o for o in owners if not _exists(o.pid, proc)]
    if absent := _still_listed(driver, unknown):
        yield Finding(
            "warn",
            "namespace",
            f"the driver lists processes that do not exist here: pid {', '.join(map(str, sorted(absent)))}",
            _HOST_PIDS,
        )
    idle: dict[int, list[int]] = {}
    for owner in owners:
        if owner.state == "attached" and owner.pid != os.getpid() and owner not in unknown:
            idle.setdefault(owner.pid, []).append(owner.device)
    for pid, numbers in sorted(idle.items()):
        yield Finding(
            "warn",
            "attached",
            f"{name_process(pid, proc)} has {_devices(numbers)} open and publishes nothing there",
            f"a monitor does so; it takes one of {SLOTS_PER_DEVICE} places all the same: end it if nobody needs it",
        )


def _still_listed(driver: KernelDriver, owners: Sequence[Owner]) -> set[int]:
    """Pids of those that the driver lists when it is asked again: the others have ended since."""
    again = {(number, o.pid) for number in {o.device for o in owners} for o in driver.owners(number)}
    return {o.pid for o in owners if (o.device, o.pid) in again}


def _exists(pid: int, proc: str) -> bool:
    if os.path.exists(f"{proc}/{pid}"):
        return True
    try:  # /proc may be mounted so that it hides what is another user's
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def name_process(pid: int, proc: str) -> str:
    try:
        with open(f"{proc}/{pid}/comm", errors="surrogateescape") as f:
            return f"pid {pid} ({f.read().rstrip()})"
    except OSError:
        return f"pid {pid}"


def _devices(numbers: Iterable[int]) -> str:
    listed = sorted(numbers)
    return f"device{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"
