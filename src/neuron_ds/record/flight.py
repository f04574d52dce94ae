"""The flight recorder: the last minutes, kept in memory, and what makes them worth a file.

``Ring`` is a sink that forgets what is older than it has to be; ``Alarms`` looks at what the recorder sees and says
when something happened. Memory, not a file that goes round: the disk is left alone until there is something to tell,
and is often what is in trouble then. If the recorder itself is killed, what it kept is lost. It knows no signal.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from neuron_ds import layout
from neuron_ds.collect import Process, process_of
from neuron_ds.driver import Owner
from neuron_ds.errors import NeuronDSError, SystemFailure
from neuron_ds.record import format as f
from neuron_ds.record.container import FileSink
from neuron_ds.record.recorder import Recorder
from neuron_ds.snapshot import Snapshot

KEEP_S = 300.0
#: What comes after the moment that is told of is kept as well.
AFTER_S = 5.0
HANG_S = 10.0
#: Where jobs come and go something happens all day long, and a disk is not for that alone.
MOST_FILES = 100
MOST_BYTES = 256 << 20
CHECK_US = 100_000
#: A keyframe at least so often, or what is kept is much more than was asked for.
SEGMENTS = 6

DEATH, ERRORS, HANG, SIGNAL = "death", "error", "hang", "signal"
KINDS = (DEATH, ERRORS, HANG)

_WORK = frozenset(("time_in_use", "infer_completed", "model_load_count", "inference_count", "mac_count"))
#: Counters that only move when something went wrong.
ERROR_COUNTERS = tuple(c.index for c in layout.NC if c.kind == layout.COUNTER and c.name not in _WORK)
_COMPLETED = tuple(
    layout.NC_BY_NAME[name].index
    for name in ("infer_completed", "infer_completed_with_err", "infer_completed_with_num_err")
)
_IN_USE = layout.NC_BY_NAME["time_in_use"].index

_Message = tuple[str, int, int, bytes]


@dataclass(slots=True)
class _Segment:
    """Messages from one keyframe up to the next."""

    start_ns: int
    messages: list[_Message] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, message: _Message) -> None:
        self.messages.append(message)
        self.size_bytes += len(message[3])


class Ring:
    """A sink that keeps the last ``keep_s`` seconds and at most ``most_bytes``, in whole segments, one at least."""

    def __init__(self, keep_s: float = KEEP_S, most_bytes: int = MOST_BYTES) -> None:
        self._keep_ns, self._most = round(keep_s * 1e9), most_bytes
        self._segments: deque[_Segment] = deque()
        self.squeezed = False  #: less than was asked for is kept, since it takes too much

    @property
    def size_bytes(self) -> int:
        return sum(s.size_bytes for s in self._segments)

    @property
    def kept_s(self) -> float:
        """Seconds from the first message to the last."""
        if not self._segments:
            return 0.0
        return (self._segments[-1].messages[-1][2] - self._segments[0].start_ns) / 1e9

    def put(self, kind: str, log_ns: int, monotonic_ns: int, data: bytes) -> None:
        message = (kind, log_ns, monotonic_ns, data)
        if kind == f.KEYFRAME:
            world = self._segments[-1].messages.pop() if self._segments else None
            self._segments.append(_Segment(monotonic_ns))
            if world is not None:
                self._segments[-2].size_bytes -= len(world[3])
                self._segments[-1].add(world)
            if len(self._segments) > 1 and not self._segments[-2].messages:
                del self._segments[-2]
        elif not self._segments:
            self._segments.append(_Segment(monotonic_ns))
        self._segments[-1].add(message)
        self._forget(monotonic_ns)

    def flush(self) -> None: ...

    @property
    def crowded(self) -> bool:
        """Whether the newest segment is so large that another should begin: only whole ones can be forgotten."""
        return bool(self._segments) and self._segments[-1].size_bytes > self._most // SEGMENTS

    def _forget(self, now_ns: int) -> None:
        while len(self._segments) > 1 and self._segments[1].start_ns <= now_ns - self._keep_ns:
            self._segments.popleft()
        while len(self._segments) > 1 and self.size_bytes > self._most:
            self._segments.popleft()
            self.squeezed = True

    def take(self) -> list[list[_Message]]:
        """All that is kept, which is forgotten then."""
        taken = [s.messages for s in self._segments]
        self._segments.clear()
        return taken


def write(path: str, segments: list[list[_Message]], compression: str = "zstd") -> int:
    """What a ring kept as a file; its size. Raises NoSpace, SystemFailure."""
    sink = FileSink(path, compression=compression)
    for messages in segments:
        for message in messages:
            sink.put(*message)
        sink.flush()
    sink.close()
    return sink.size_bytes


@dataclass(slots=True)
class _CoreSeen:
    completed: int
    in_use: int
    since_us: int  # of the last completion, or of the first look
    told: bool = False


class Alarms:
    """What happens in the slabs of a recorder: processes that are gone, errors that are counted, cores that hang.

    A core hangs when its time in use grew since its last completion, and that is ``hang_s`` ago. The same kind of thing
    about the same process is not told again for ``quiet_s``.
    """

    def __init__(
        self, recorder: Recorder, *, hang_s: float = HANG_S, quiet_s: float = KEEP_S, kinds: Collection[str] = KINDS
    ) -> None:
        self._recorder, self._kinds = recorder, frozenset(kinds)
        self._hang_us, self._quiet_us = round(hang_s * 1e6), round(quiet_s * 1e6)
        self._living: dict[int, Owner] = {}  # by track
        self._errors: dict[int, tuple[int, ...]] = {}
        self._cores: dict[tuple[int, int], _CoreSeen] = {}
        self._told: dict[tuple[str, Process], int] = {}

    def check(self) -> tuple[str, str] | None:
        """(kind, what happened) since the last check; the first of several things."""
        now_us = self._recorder.last_us
        found = None
        for kind, owner, text in (*self._deaths(), *self._slabs(now_us)):
            key = (kind, process_of(owner))
            if kind in self._kinds and now_us >= self._told.get(key, 0):
                self._told[key] = now_us + self._quiet_us
                found = found or (kind, text)
        return found

    def _deaths(self) -> Iterator[tuple[str, Owner, str]]:
        tracks = dict(self._recorder.tracks)
        for track, owner in self._living.items():
            if track not in tracks:
                self._errors.pop(track, None)
                yield DEATH, owner, f"process {owner.pid} is gone"
        if self._living.keys() != tracks.keys():
            self._cores = {key: seen for key, seen in self._cores.items() if key[0] in tracks}
            self._told = {key: until_us for key, until_us in self._told.items() if until_us > self._recorder.last_us}
        self._living = tracks

    def _slabs(self, now_us: int) -> Iterator[tuple[str, Owner, str]]:
        for track, owner in self._living.items():
            raw = self._recorder.raw(track)
            if not any(raw[:8]):
                continue  # added since the last tick
            snapshot = Snapshot(raw)
            rows = [snapshot.nc_counters(core) for core in range(layout.MAX_CORES)]
            errors = tuple(sum(row[i] for row in rows) for i in ERROR_COUNTERS)
            before = self._errors.get(track)
            self._errors[track] = errors
            if before is not None and errors != before:
                names = [layout.NC[i].name for i, a, b in zip(ERROR_COUNTERS, before, errors, strict=True) if a != b]
                yield ERRORS, owner, f"process {owner.pid} counted {', '.join(names)}"
            for core, row in enumerate(rows):
                if self._hangs((track, core), row, now_us):
                    yield HANG, owner, f"core {core} of process {owner.pid} is in use and completes nothing"

    def _hangs(self, key: tuple[int, int], row: tuple[int, ...], now_us: int) -> bool:
        completed = sum(row[i] for i in _COMPLETED)
        seen = self._cores.get(key)
        if seen is None or completed != seen.completed:
            self._cores[key] = _CoreSeen(completed, row[_IN_USE], now_us)
            return False
        if seen.told or row[_IN_USE] == seen.in_use or now_us - seen.since_us < self._hang_us:
            return False
        seen.told = True
        return True


class FlightRecorder:
    """Recorder, ring and alarms together: call ``look`` after each tick. What is written is written by a thread."""

    def __init__(
        self,
        recorder: Recorder,
        ring: Ring,
        alarms: Alarms,
        directory: str,
        *,
        after_s: float = AFTER_S,
        compression: str = "zstd",
        most_files: int = MOST_FILES,
        told: Callable[[str, str], object],
    ) -> None:
        """``most_files``: of those written here; beyond, the oldest is removed; 0 for no limit. ``told``: called with
        the path of a file that was written, or "", and what happened or went wrong."""
        self._recorder, self._ring, self._alarms = recorder, ring, alarms
        self._directory, self._after_us = directory, round(after_s * 1e6)
        self._compression, self._told = compression, told
        self._checked_us = recorder.last_us
        self._due_us: int | None = None
        self._why = ("", "")
        self._writing: list[threading.Thread] = []
        self._most_files, self._paths = most_files, deque[str]()
        self._lock = threading.Lock()  # files are written by threads, and may be so two at a time
        self.files = 0
        self.failed = 0

    def look(self) -> None:
        """See whether something happened, and write when it is time."""
        now_us = self._recorder.last_us
        if now_us - self._checked_us >= CHECK_US:
            self._checked_us = now_us
            if (found := self._alarms.check()) is not None:
                self.happened(*found)
        if self._due_us is not None and now_us >= self._due_us:
            self._write()
        elif self._ring.crowded:
            self._recorder.keyframe()

    def happened(self, kind: str, text: str) -> None:
        """Something did; what comes before the file is written goes into the same one."""
        self._recorder.mark(f"{kind}: {text}")
        if self._due_us is None:
            self._due_us = self._recorder.last_us + self._after_us
            self._why = (kind, text)

    def _write(self) -> None:
        self._due_us = None
        self._recorder.cut()
        segments = self._ring.take()
        self._recorder.keyframe()
        kind, text = self._why
        path = os.path.join(self._directory, f"neuron-ds-{time.strftime('%Y%m%d-%H%M%S')}-{kind}.mcap")
        thread = threading.Thread(target=self._run, args=(path, segments, text), name="neuron-ds-dump", daemon=True)
        self._writing = [t for t in self._writing if t.is_alive()] + [thread]
        thread.start()

    def _run(self, path: str, segments: list[list[_Message]], text: str) -> None:
        stem, number = path.removesuffix(".mcap"), 1
        try:
            while True:
                try:
                    write(path, segments, self._compression)
                    break
                except SystemFailure as e:
                    if e.errno != errno.EEXIST:
                        raise
                number += 1
                path = f"{stem}-{number}.mcap"
        except (NeuronDSError, OSError) as e:
            self.failed += 1
            self._told("", f"{text}, and can't be written: {e}")
            return
        with self._lock:
            self.files += 1
            self._paths.append(path)
            old = self._paths.popleft() if 0 < self._most_files < len(self._paths) else None
        self._told(path, text)
        if old is not None:
            with suppress(OSError):  # somebody may have taken it away
                os.unlink(old)

    def finish(self) -> None:
        """Write what is due, and wait until all of it is."""
        if self._due_us is not None:
            self._write()
        for thread in self._writing:
            thread.join()
