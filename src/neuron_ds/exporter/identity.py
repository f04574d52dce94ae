"""Who a process is, beside its pid: container and pod from its cgroup, user, command.

Everything is read from /proc and whatever can't be is "". A pid of another pid namespace means nothing here and isn't
looked up. This module knows /proc and the names that container runtimes give to cgroups.
"""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass

from neuron_ds.listing import command_line, shorten

#: Longest command that is shown as a label.
COMMAND_LIMIT = 120

_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=$|/)")
#: A pod's uid, with the dashes that systemd doesn't let stand as underscores; of static pods 32 digits in a row.
_POD = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?=$|[/:])"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is; "" where it is not known, or not so."""

    container_id: str = ""
    pod_uid: str = ""
    user: str = ""
    command: str = ""


def identify(pid: int, *, proc: str = "/proc") -> Identity:
    """Who has this pid, of our pid namespace."""
    container_id, pod_uid = of_cgroups(_text(f"{proc}/{pid}/cgroup"))
    command = command_line(pid) if proc == "/proc" else _text(f"{proc}/{pid}/cmdline").replace("\0", " ").strip()
    return Identity(container_id, pod_uid, _user(f"{proc}/{pid}"), shorten(command or "", COMMAND_LIMIT))


def of_cgroups(text: str) -> tuple[str, str]:
    """(container id, pod uid) from the lines of /proc/PID/cgroup, of either version."""
    container_id = pod_uid = ""
    for line in text.splitlines():
        path = line.rpartition(":")[2] if line.count(":") < 2 else line.split(":", 2)[2]
        containers, pods = _CONTAINER.findall(path), _POD.findall(path)
        container_id = container_id or (containers[-1] if containers else "")  # the innermost
        pod_uid = pod_uid or (pods[-1].replace("_", "-") if pods else "")
    return container_id, pod_uid


def _text(path: str) -> str:
    try:
        with open(path, "rb") as f:
            return f.read().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _user(path: str) -> str:
    try:
        uid = os.stat(path).st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
