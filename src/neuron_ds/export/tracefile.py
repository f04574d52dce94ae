"""Trace files: slices, instants and counters, as Chrome's JSON or as Perfetto's own packets.

Both are written as they come, so that memory doesn't grow. What the tracks are about is not known here. The numbers
of Perfetto's fields are those of its published ``perfetto_trace.proto``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import IO, Protocol

#: Details of a slice or an instant.
Args = Mapping[str, int | float | str]


class TraceSink(Protocol):
    """Where a trace goes. Processes, tracks and counters are made first and named by the numbers given back."""

    def process(self, pid: int, name: str) -> int: ...

    def track(self, process: int, name: str) -> int: ...

    def counter(self, process: int, name: str, unit: str) -> int: ...

    def begin(self, track: int, time_ns: int, name: str, args: Args) -> None: ...

    def end(self, track: int, time_ns: int) -> None: ...

    def instant(self, track: int, time_ns: int, name: str, args: Args) -> None: ...

    def count(self, counter: int, time_ns: int, value: int | float) -> None: ...

    def close(self) -> None: ...


class JsonTrace:
    """Chrome's trace event format, which every viewer of traces reads. Times are microseconds."""

    def __init__(self, file: IO[bytes], wall_offset_ns: int, about: Args) -> None:
        self._file = file
        self._pids: list[int] = []
        self._places: list[tuple[int, str]] = []  # of tracks and counters: pid and name
        head = {"displayTimeUnit": "ms", "otherData": {"wall_offset_ns": wall_offset_ns, **about}}
        text = json.dumps(head, separators=(",", ":"))
        self._file.write(f'{text[:-1]},"traceEvents":['.encode())
        self._first = True

    def _put(self, event: dict[str, object]) -> None:
        text = json.dumps(event, separators=(",", ":"))
        self._file.write(("\n" if self._first else ",\n").encode() + text.encode())
        self._first = False

    def process(self, pid: int, name: str) -> int:
        self._put({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}})
        self._pids.append(pid)
        return len(self._pids) - 1

    def _place(self, process: int, name: str) -> int:
        self._places.append((self._pids[process], name))
        return len(self._places) - 1

    def track(self, process: int, name: str) -> int:
        track = self._place(process, name)
        pid = self._pids[process]
        self._put({"ph": "M", "pid": pid, "tid": track, "name": "thread_name", "args": {"name": name}})
        self._put({"ph": "M", "pid": pid, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}})
        return track

    def counter(self, process: int, name: str, unit: str) -> int:
        return self._place(process, f"{name} {unit}")

    def _event(self, kind: str, track: int, time_ns: int, **more: object) -> None:
        pid, _ = self._places[track]
        time_us: int | float = time_ns // 1000 if time_ns % 1000 == 0 else time_ns / 1000
        self._put({"ph": kind, "pid": pid, "tid": track, "ts": time_us, **more})

    def begin(self, track: int, time_ns: int, name: str, args: Args) -> None:
        self._event("B", track, time_ns, name=name, cat="neuron", args=dict(args))

    def end(self, track: int, time_ns: int) -> None:
        self._event("E", track, time_ns)

    def instant(self, track: int, time_ns: int, name: str, args: Args) -> None:
        self._event("i", track, time_ns, name=name, cat="neuron", s="t", args=dict(args))

    def count(self, counter: int, time_ns: int, value: int | float) -> None:
        pid, name = self._places[counter]
        time_us: int | float = time_ns // 1000 if time_ns % 1000 == 0 else time_ns / 1000
        self._put({"ph": "C", "pid": pid, "ts": time_us, "name": name, "args": {"value": value}})

    def close(self) -> None:
        self._file.write(b"\n]}\n")


# --- Perfetto's packets -----------------------------------------------------------------------------------------------


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode("utf-8", "replace"))


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


_PACKET = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _TRACK_DESCRIPTOR, _CLOCKS = 8, 10, 11, 60, 6
_TYPE, _TRACK, _NAME, _CATEGORY, _INT_VALUE, _DOUBLE_VALUE, _ANNOTATION = 9, 11, 23, 22, 30, 44, 4
_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4
_BOOTTIME, _MONOTONIC, _REALTIME = 6, 3, 1


class PerfettoTrace:
    """Perfetto's protobuf packets: exact nanoseconds and 64-bit counters, and a third of the size of the JSON.

    The recording's monotonic clock stands for the trace's own; a clock snapshot tells how late it was on the wall.
    """

    def __init__(self, file: IO[bytes], wall_offset_ns: int, about: Args) -> None:
        self._file = file
        self._last = 0  # every track has a number of its own; 0 is none
        clocks = ((_BOOTTIME, 0), (_MONOTONIC, 0), (_REALTIME, wall_offset_ns))
        self._clocks: bytes | None = None
        self._offsets = clocks

    def _put(self, packet: bytes) -> None:
        self._file.write(_message(_PACKET, packet + _number(_SEQUENCE, 1)))

    def _describe(self, what: bytes) -> int:
        self._last += 1
        self._put(_message(_TRACK_DESCRIPTOR, _number(1, self._last) + what))
        return self._last

    def process(self, pid: int, name: str) -> int:
        return self._describe(_message(3, _number(1, pid) + _text(6, name)))

    def track(self, process: int, name: str) -> int:
        return self._describe(_text(2, name) + _number(5, process))

    def counter(self, process: int, name: str, unit: str) -> int:
        return self._describe(_text(2, f"{name} {unit}") + _number(5, process) + _message(8, _text(6, unit)))

    def _event(self, kind: int, track: int, time_ns: int, more: bytes = b"") -> None:
        if self._clocks is None:
            self._clocks = b"".join(
                _message(1, _number(1, clock) + _number(2, time_ns + offset)) for clock, offset in self._offsets
            )
            self._put(_message(_CLOCKS, self._clocks))
        event = _number(_TYPE, kind) + _number(_TRACK, track) + more
        self._put(_number(_TIMESTAMP, time_ns) + _message(_TRACK_EVENT, event))

    def _named(self, kind: int, track: int, time_ns: int, name: str, args: Args) -> None:
        more = [_text(_NAME, name), _text(_CATEGORY, "neuron")]
        for key, value in args.items():
            if isinstance(value, str):
                shown = _text(6, value)
            else:
                shown = _double(5, value) if isinstance(value, float) else _number(4, value)
            more.append(_message(_ANNOTATION, _text(10, key) + shown))
        self._event(kind, track, time_ns, b"".join(more))

    def begin(self, track: int, time_ns: int, name: str, args: Args) -> None:
        self._named(_BEGIN, track, time_ns, name, args)

    def end(self, track: int, time_ns: int) -> None:
        self._event(_END, track, time_ns)

    def instant(self, track: int, time_ns: int, name: str, args: Args) -> None:
        self._named(_INSTANT, track, time_ns, name, args)

    def count(self, counter: int, time_ns: int, value: int | float) -> None:
        shown = _double(_DOUBLE_VALUE, value) if isinstance(value, float) else _number(_INT_VALUE, value)
        self._event(_COUNT, counter, time_ns, shown)

    def close(self) -> None:
        pass
