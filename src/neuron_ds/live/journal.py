"""The journal: what happened between two looks, as Events: who came, left and died, which counters of trouble moved.

It compares Looks and keeps the newest events; it knows no screen and no Sample.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from neuron_ds.collect import Key
from neuron_ds.diagnose.finding import Finding
from neuron_ds.diagnose.looks import Look, ProcessLook
from neuron_ds.live import figures
from neuron_ds.live.figures import ZEROS
from neuron_ds.live.frame import Event, EventKind, ProcessFrame
from neuron_ds.numbering import DeviceCores
from neuron_ds.records import printable

#: Events that are kept, and the most that one look adds; what is beyond that is told as a number.
KEPT = 500
AT_ONCE = 100


class Journal:
    """Events, numbered from 1."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._number = 0
        self._ids: dict[Key, str] = {}  # of the processes of the last look
        self._whose: dict[object, str] = {}  # of the findings that began, by their identity

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self._events)

    @property
    def ids(self) -> set[str]:
        """Of processes that events are kept of: nobody else may be called so."""
        return {event.process for event in self._events if event.process} | set(self._whose.values())

    def compare(
        self,
        before: Look | None,
        look: Look,
        processes: Mapping[Key, ProcessFrame],
        troubled: Mapping[Key, Sequence[int]],
        cores: Callable[[int], DeviceCores],
        wall_s: float,
    ) -> None:
        """Write down what happened between two looks; ``troubled``: the physical cores to look at for that.

        The first look is no news.
        """
        gone, self._ids = self._ids, {key: frame.id for key, frame in processes.items()}
        if before is None:
            return
        room = AT_ONCE
        left_out = 0
        for event in self._compare(before, look, processes, gone, troubled, cores, wall_s):
            if room:
                self._events.append(event)
                room -= 1
            else:
                left_out += 1
        if left_out:
            self._events.append(self._event(wall_s, "error", f"and {left_out} more at the same time", count=left_out))

    def findings(
        self,
        began: Iterable[Finding],
        cleared: Iterable[Finding],
        wall_s: float,
        cores: Callable[[int], DeviceCores],
    ) -> None:
        """Write down which findings began and which are over."""
        changes: tuple[tuple[EventKind, Iterable[Finding]], ...] = (("began", began), ("cleared", cleared))
        for kind, found in changes:
            for f in found:
                core = None if f.core is None or f.device is None else f.core // cores(f.device).config
                text, severity = f"{f.kind}: {f.message}", f.severity.name.lower()
                if kind == "began":
                    id = self._whose[f.identity] = self._process_of(f)
                else:
                    id = self._whose.pop(f.identity, "")
                self._events.append(
                    self._event(wall_s, kind, text, f.pid, f.tag, f.device, core, severity=severity, process=id)
                )

    def _process_of(self, f: Finding) -> str:
        """The id of the process that a finding is of; "" of none that is there."""
        for (device, slot, _, pid, _), id in self._ids.items():
            if pid == f.pid and (f.slot is None or (device, slot) == (f.device, f.slot)):
                return id
        return ""

    def _event(
        self,
        wall_s: float,
        kind: EventKind,
        text: str,
        pid: int | None = None,
        tag: str = "",
        device: int | None = None,
        core: int | None = None,
        counter: str = "",
        count: int = 0,
        severity: str = "",
        process: str = "",
    ) -> Event:
        self._number += 1
        return Event(
            self._number,
            wall_s,
            kind,
            printable(text),
            pid,
            printable(tag),
            device,
            core,
            counter,
            count,
            severity,
            process,
        )

    def _compare(
        self,
        before: Look,
        look: Look,
        processes: Mapping[Key, ProcessFrame],
        gone: Mapping[Key, str],
        troubled: Mapping[Key, Sequence[int]],
        cores: Callable[[int], DeviceCores],
        wall_s: float,
    ) -> Iterator[Event]:
        for key, old in before.processes.items():
            if key not in look.processes:
                what = "its slot was recovered" if old.dead else "left"
                yield self._event(
                    wall_s, "left", what, old.owner.pid, old.tag, old.owner.device, process=gone.get(key, "")
                )
        for key, now in look.processes.items():
            frame = processes.get(key)
            tag, id = (frame.tag, frame.id) if frame else (now.tag, "")
            earlier = before.processes.get(key)
            if earlier is None:
                yield self._event(wall_s, "came", "began to publish", now.owner.pid, tag, now.owner.device, process=id)
            if now.dead and not (earlier and earlier.dead):
                text = "died without giving its slot back"
                yield self._event(wall_s, "died", text, now.owner.pid, tag, now.owner.device, process=id)
            if key in troubled:
                yield from self._troubles(earlier, now, troubled[key], tag, id, cores(now.owner.device), wall_s)

    def _troubles(
        self,
        before: ProcessLook | None,
        now: ProcessLook,
        cores: Sequence[int],
        tag: str,
        id: str,
        shape: DeviceCores,
        wall_s: float,
    ) -> Iterator[Event]:
        earlier = before.rows if before else {}
        device, pid = now.owner.device, now.owner.pid
        for core in cores:
            for counter, by in figures.troubles(earlier.get(core, ZEROS), now.rows[core]):
                text = f"{counter.name} +{by}: {counter.help}"
                logical = core // shape.config
                yield self._event(wall_s, "error", text, pid, tag, device, logical, counter.name, by, process=id)
