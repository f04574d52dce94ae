"""Who a process is, beside its pid: container and pod from its cgroup, user, command, and the pod's names.

Everything but the names is read from /proc and whatever can't be is "". A pid of another pid namespace means nothing
here and isn't looked up. This module knows /proc and the names that container runtimes give to cgroups; the names of
pods are the kubernetes module's.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
from dataclasses import dataclass, replace

from neuron_ds.collect import Key, Sample, key_of
from neuron_ds.driver import Owner
from neuron_ds.kubernetes import Container, Placing, PodResources, Uses
from neuron_ds.listing import shorten

#: Longest command that is shown as a label.
COMMAND_LIMIT = 120

#: What passes, and says nothing of the process: no descriptor, no memory.
_LACKS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
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
    namespace: str = ""
    pod: str = ""
    container: str = ""


NOBODY = Identity()


class Identities:
    """Who the processes of Samples are, each looked up once. Not for several threads at once."""

    def __init__(self, pods: PodResources | None = None) -> None:
        """``pods``: where names of pods come from."""
        self._placing = Placing(pods) if pods else None
        self._known: dict[Key, Identity] = {}

    def look(self, sample: Sample) -> None:
        """Learn of the processes of a Sample; forget those that are in it no more."""
        living = {p.key: p for p in sample.processes if p.owner.alive is not False and p.owner.state == "owned"}
        known = {key: who for key, who in self._known.items() if key in living}
        for key in living.keys() - known.keys():
            who = _who(living[key].owner)
            if who is not None:
                known[key] = who
        if self._placing:
            containers: dict[Container, Uses] = {}
            for key, who in known.items():
                if who.pod_uid:
                    uses = containers.setdefault((who.pod_uid, who.container_id), {})
                    uses.setdefault(key[0], []).append(living[key])
            places = self._placing.look(sample, containers)
            for key, who in known.items():
                place = places.get((who.pod_uid, who.container_id), ("", "", ""))
                if place != (who.namespace, who.pod, who.container):
                    known[key] = replace(who, namespace=place[0], pod=place[1], container=place[2])
        self._known = known

    def of(self, owner: Owner) -> Identity:
        """Who this is, as of the last look."""
        return self._known.get(key_of(owner), NOBODY)


def _who(owner: Owner) -> Identity | None:
    """As the driver tells it, else as /proc does."""
    if (told := owner.who) is not None:
        return Identity(told.container_id, told.pod_uid, told.user, shorten(told.command, COMMAND_LIMIT))
    return NOBODY if owner.foreign else identify(owner.pid)


def identify(pid: int, *, proc: str = "/proc") -> Identity | None:
    """Who has this pid, of our pid namespace; None where it can't be told for lack of descriptors: ask again."""
    where = f"{proc}/{pid}"
    try:
        container_id, pod_uid = of_cgroups(_text(f"{where}/cgroup"))
        command = _text(f"{where}/cmdline").replace("\0", " ").strip()
        return Identity(container_id, pod_uid, _user(where), shorten(command, COMMAND_LIMIT))
    except OSError:
        return None


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
    """What is in a file, "" where it isn't to be had. Raises OSError where that is for lack of something."""
    try:
        with open(path, "rb") as f:
            return f.read().decode("utf-8", "surrogateescape")
    except OSError as e:
        if e.errno in _LACKS:
            raise
        return ""


def _user(path: str) -> str:
    try:
        uid = os.stat(path).st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        _text("/etc/passwd")  # raises where it was a descriptor that was lacking, and no such user
        return str(uid)
