"""The datastore: ``publish`` gives a Producer of this process's own slab, ``attach`` a Reader of another's.

Header, counters and records are handled here, through the core; which slab it is was the driver's decision.
Counters change only by the core's atomics, records only by its publish call. See docs/protocol.md.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self
from weakref import WeakKeyDictionary

from neuron_ds import _core, layout
from neuron_ds._core import Counter
from neuron_ds.driver import DeviceProperties, Driver, Lease, get_driver
from neuron_ds.driver.clock import REAL_TIME, clock_of
from neuron_ds.driver.steps import step
from neuron_ds.errors import BadIndex, BadValue, ModelsFull, NeuronDSError, ProducerGone, TornRecord
from neuron_ds.records import ModelNode, ProcessInfo, ProcessInfoExt, Version
from neuron_ds.snapshot import (
    RECORD_PROCESS_INFO,
    RECORD_PROCESS_INFO_EXT,
    Origin,
    RecordState,
    Snapshot,
    check_header,
    header_error,
)

TAG_VARIABLE = "NEURON_PROCESS_TAG"
HEADER_PAUSE_S = 500e-6
_HEADER = layout.HEADER_WORD.to_bytes(8, "little")


def _not_assignable(name: str) -> AttributeError:
    return AttributeError(f"{name} can't be assigned to; a counter changes with .add(), .inc(), .sub() or .set()")


class CoreCounters:
    """The counters of one physical core: ``core.inference_count.add(1)``, or ``core.counter(28)``.

    ``execution_ended`` and ``add_many`` make many updates in one call; see ``_core.Core``.
    """

    def __init__(self, mapping: _core.Mapping, core: int) -> None:
        self._mapping, self.core = mapping, core
        handle = mapping.core(core)
        self.execution_ended = handle.execution_ended
        self.add_many = handle.add_many

    def __setattr__(self, name: str, value: object) -> None:
        if name in layout.NC_BY_NAME:
            raise _not_assignable(name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Counter:
        definition = layout.NC_BY_NAME.get(name)
        if definition is None:
            raise AttributeError(f"a core has no counter {name!r}; see neuron_ds.layout.NC")
        handle = self._mapping.nc(self.core, definition.index)
        self.__dict__[name] = handle  # the next look-up is Python's own
        return handle

    def counter(self, index: int) -> Counter:
        """Counter 0-94 by index. Raises BadIndex (EINVAL)."""
        return self._mapping.nc(self.core, index)

    def __repr__(self) -> str:
        return f"<CoreCounters core {self.core} {self._mapping.state}>"


class Bitmap:
    """A counter of the device whose bits are only ever set: totals of a device are all bits that anybody ever set."""

    __slots__ = ("_counter", "get", "or_")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self.or_, self.get = counter.or_, counter.get

    if not TYPE_CHECKING:  # a type checker knows already what is missing

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"a bitmap has no {name}(); its bits are only ever set, with .or_()")

    def __repr__(self) -> str:
        return repr(self._counter)


class DeviceCounters:
    """The counters of the device: ``ds.nd.mem_usage_code_host.add(1)``, or ``ds.nd.counter(6)``.

    Bitmaps have no ``add``, ``inc``, ``sub`` and ``set``: ``ds.nd.feature_bitmap.or_(1)``.
    """

    feature_bitmap: Bitmap
    dynamic_sysfs_metric_bitmap: Bitmap

    def __init__(self, mapping: _core.Mapping) -> None:
        self._mapping = mapping

    def __setattr__(self, name: str, value: object) -> None:
        if name in layout.ND_BY_NAME:
            raise _not_assignable(name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Counter:
        definition = layout.ND_BY_NAME.get(name)
        if definition is None:
            raise AttributeError(f"a device has no counter {name!r}; see neuron_ds.layout.ND")
        handle: Counter | Any = self.counter(definition.index)
        self.__dict__[name] = handle
        return handle

    def counter(self, index: int) -> Counter | Any:  # Any: a Bitmap, which callers with a literal index know
        """Counter 0-30 by index, a Bitmap where it is one. Raises BadIndex (EINVAL)."""
        counter = self._mapping.nd(index)
        return Bitmap(counter) if layout.ND[index].kind == layout.BITMAP else counter

    def __repr__(self) -> str:
        return f"<DeviceCounters {self._mapping.state}>"


def _number(value: int, what: str, device: int | None = None) -> int:
    """A whole number, of whatever type. Raises BadIndex for anything else, True and 1.0 among it."""
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        return operator.index(value)
    raise BadIndex(f"{what} is {value!r}; it is a whole number", device=device)


class _Datastore:
    """What Producer and Reader share."""

    def __init__(self, driver: Driver, lease: Lease) -> None:
        self._driver, self._lease = driver, lease
        self._origin = Origin(lease.device, lease.pid, lease.slot, lease.generation)
        self._mapping, self._copy = lease.mapping, lease.mapping.snapshot
        self._moment_ns = None if (clock := clock_of(driver)) is REAL_TIME else clock.moment_ns
        self._cores: dict[int, CoreCounters] = {}
        self.nd = DeviceCounters(lease.mapping)

    @property
    def device(self) -> int:
        return self._lease.device

    @property
    def pid(self) -> int:
        """The producer's pid, in its own pid namespace."""
        return self._lease.pid

    @property
    def slot(self) -> int | None:
        return self._lease.slot

    @property
    def generation(self) -> int | None:
        """How often the slot changed hands, None where the driver does not count."""
        return self._lease.generation

    @property
    def properties(self) -> DeviceProperties:
        return self._lease.properties

    @property
    def closed(self) -> bool:
        """Whether this handle is dead, also because another one was closed or the process forked."""
        return self._lease.mapping.state in ("closed", "forked")

    def core(self, core: int) -> CoreCounters:
        """The counters of a physical core. Raises BadIndex (EINVAL) for one the device does not have."""
        known = self._cores.get(core)
        if known is None:
            limit = self.properties.slab_cores
            if not 0 <= core < limit:
                raise BadIndex(
                    f"core {core} does not exist; the device has {limit} physical cores, from 0",
                    device=self.device,
                    pid=self.pid,
                    slot=self.slot,
                )
            known = self._cores[core] = CoreCounters(self._lease.mapping, core)
        return known

    def snapshot(self, *, verify: bool = True) -> Snapshot:
        """The slab now. With ``verify`` every record is checked against its hash, mismatches once more after 200 us.

        Without it the slab is only copied: records are checked when somebody asks for one, and that its producer was
        killed shows once the slot is recovered (``alive`` tells at once). It is never another's slab.
        Raises ProducerGone (ESRCH) if it is not its producer's any more, Closed, ForkedChild.
        """
        raw, time_ns, states, stale = self._copy(verify)
        if not raw.startswith(_HEADER) and (error := self._header_error(int.from_bytes(raw[:8], "little"))) is not None:
            raise error
        if self._moment_ns is not None:
            time_ns = self._moment_ns() or time_ns
        return Snapshot(raw, self._origin, time_ns, states, stale)

    def _header_error(self, header: int) -> NeuronDSError | None:
        lease = self._lease
        if header == 0 and not lease.writable:
            return ProducerGone(
                "its slab has been zeroed; list the owners again", device=lease.device, pid=lease.pid, slot=lease.slot
            )
        return header_error(header, device=lease.device, pid=lease.pid, slot=lease.slot)

    def close(self) -> None:
        """End the use of the slab. Calling it again does nothing."""
        self._driver.release(self._lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self._lease.mapping.state
        return f"<{type(self).__name__} device {self.device} pid {self.pid} slot {self.slot} {state}>"


# --- Producing --------------------------------------------------------------------------------------------------------


class _ModelSlots:
    """Model slots that threads of this process are about to publish into, besides those in the bitmap."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reserved = 0


_model_slots: WeakKeyDictionary[Lease, _ModelSlots] = WeakKeyDictionary()
_stamping = threading.Lock()  # of threads that publish the same slab the first stamps it, the others wait for that


def _forget() -> None:
    """A forked child owns nothing, and none of the threads that may hold a lock."""
    global _stamping
    _model_slots.clear()
    _stamping = threading.Lock()


os.register_at_fork(after_in_child=_forget)


class ModelHandle:
    """A published model; it keeps its slot until it is deleted."""

    def __init__(self, lease: Lease, slot: int, node: ModelNode) -> None:
        self._lease, self.slot, self.node = lease, slot, node
        self.deleted = False
        self._lock = threading.Lock()  # an update or a second delete must not hit the slot's next model

    def __repr__(self) -> str:
        return f"<ModelHandle model slot {self.slot} {self.node.name!r}{' deleted' if self.deleted else ''}>"

    def update(self, node: ModelNode) -> None:
        """Overwrite the record in place. Raises BadIndex (EINVAL) once deleted."""
        self._lease.mapping.bitmap()  # raises in a forked child, where a lost thread may hold the lock for ever
        with self._lock:
            if self.deleted:
                raise BadIndex(
                    f"the model in model slot {self.slot} was deleted; add it again",
                    device=self._lease.device,
                    pid=self._lease.pid,
                    slot=self._lease.slot,
                )
            self.node = ModelNode(self._lease.mapping.publish(self.slot, node.raw))

    def delete(self) -> None:
        """Clear the bit, then zero the record. Calling it again does nothing."""
        already = self.deleted
        if already:
            return
        self._lease.mapping.bitmap()
        with self._lock:
            if self.deleted:
                return
            self._lease.mapping.bitmap_clear(self.slot)
            step("delete.bit")
            self._lease.mapping.zero_record(self.slot)
            step("delete.zeroed")
            self.deleted = True
        slots = _model_slots[self._lease]
        with slots.lock:
            slots.reserved &= ~(1 << self.slot)


class Producer(_Datastore):
    """This process's own slab on a device. A second ``publish`` gives another Producer of the same slab, and the
    first close of any of them ends all: ownership is by process, without a count."""

    def add_model(self, node: ModelNode) -> ModelHandle:
        """Publish a model in the first free slot: the record, then its bit. Raises ModelsFull (ENOSPC)."""
        lease = self._lease
        slots = _model_slots.setdefault(lease, _ModelSlots())
        with slots.lock:
            taken = lease.mapping.bitmap() | slots.reserved
            slot = (~taken & taken + 1).bit_length() - 1
            if slot >= layout.MAX_MODELS:
                raise ModelsFull(
                    f"all {layout.MAX_MODELS} model slots are taken; delete a model first",
                    device=lease.device,
                    pid=lease.pid,
                    slot=lease.slot,
                )
            slots.reserved |= 1 << slot
        try:
            raw = lease.mapping.publish(slot, node.raw)
            lease.mapping.bitmap_set(slot)
        except BaseException:
            with slots.lock:
                slots.reserved &= ~(1 << slot)
            raise
        step("publish.bit")
        return ModelHandle(lease, slot, ModelNode(raw))

    def set_process_info(
        self,
        *,
        tag: str | None = None,
        framework_type: int = 0,
        framework_version: Sequence[int] = (0, 0, 0),
        fal_version: Sequence[int] = (0, 0, 0),
        runtime_version: Sequence[int] = (0, 0, 0),
    ) -> None:
        """Publish who this is: process info, its ext record, and the packed versions in device counters 0-2.

        tag: NEURON_PROCESS_TAG by default, else the pid; at most 256 bytes, of which process info itself shows the
        first 32. Versions are (major, minor, build). Raises BadValue (EINVAL), naming field and limit.
        """
        told = os.environ.get(TAG_VARIABLE) if tag is None else None
        try:
            ext = ProcessInfoExt.build(tag=told or (str(self.pid) if tag is None else tag))
        except BadValue as e:
            raise (BadValue(f"{TAG_VARIABLE}: {e.message}") if told else e) from None
        info = ProcessInfo.build(
            tag=_shorten(ext.tag, next(f.size for f in layout.PROCESS_INFO_FIELDS if f.name == "tag")),
            framework_type=framework_type,
            framework_version=framework_version,
            fal_version=fal_version,
            runtime_version=runtime_version,
        )
        mapping = self._lease.mapping
        mapping.publish(RECORD_PROCESS_INFO, info.raw)
        mapping.publish(RECORD_PROCESS_INFO_EXT, ext.raw)
        self.nd.runtime_version.set(Version(*runtime_version).packed())
        self.nd.framework_version.set(Version(*framework_version).packed(framework_type & 0xFFFF))
        self.nd.fal_version.set(Version(*fal_version).packed())


def _shorten(text: str, limit: int) -> bytes:
    """At most ``limit`` bytes, not cut inside a character."""
    data = text.encode("utf-8", "surrogateescape")
    if len(data) <= limit:
        return data
    end = limit
    while end > limit - 4 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def publish(
    device: int = 0,
    *,
    tag: str | None = None,
    framework_type: int = 0,
    framework_version: Sequence[int] = (0, 0, 0),
    fal_version: Sequence[int] = (0, 0, 0),
    runtime_version: Sequence[int] = (0, 0, 0),
    driver: Driver | None = None,
) -> Producer:
    """Acquire this process's slab on a device, stamp its header and publish who this is.

    A second call in the same process gives the same slab; its process info is then left as it is. Raises SlotsFull
    (ENOMEM), NoDevice (ENODEV), BadIndex and BadValue (EINVAL); of the directory AccessDenied and UnsafeDirectory
    (EACCES), NoSpace (ENOSPC), TableBusy (ETIMEDOUT), LayoutMismatch (EPROTO), DirectoryGone (ESTALE); of hardware
    NoDriver, DeviceBusy (EBUSY).
    """
    device = _number(device, "the device")
    driver = driver or get_driver()
    lease = driver.acquire(device)
    producer = Producer(driver, lease)
    try:
        with _stamping:
            if lease.fresh:
                lease.mapping.stamp_header()
                step("publish.header")
                producer.set_process_info(
                    tag=tag,
                    framework_type=framework_type,
                    framework_version=framework_version,
                    fal_version=fal_version,
                    runtime_version=runtime_version,
                )
                lease.fresh = False
    except BaseException:
        driver.release(lease)
        raise
    return producer


# --- Reading ----------------------------------------------------------------------------------------------------------


class Reader(_Datastore):
    """Another process's slab, mapped read-only. Every value is given only while the slab is still that process's."""

    def read_process_info(self) -> ProcessInfo | None:
        """The record alone: two reads at most, 200 us apart, the last consistent copy if both are torn.

        None while it is unpublished. Raises TornRecord (EAGAIN) if it is torn and there is no earlier copy.
        """
        data = self._read(RECORD_PROCESS_INFO)
        return None if data is None else ProcessInfo(data)

    def read_process_info_ext(self) -> ProcessInfoExt | None:
        """As ``read_process_info``."""
        data = self._read(RECORD_PROCESS_INFO_EXT)
        return None if data is None else ProcessInfoExt(data)

    def read_model(self, slot: int) -> ModelNode | None:
        """The model in a slot, None where none is in use or published. As ``read_process_info``."""
        layout.model_offset(slot)
        if not self._lease.mapping.bitmap() >> slot & 1:
            return None
        data = self._read(slot)
        return None if data is None else ModelNode(data)

    def _read(self, record: int) -> bytes | None:
        state, data = self._lease.mapping.read_record(record)
        if state == RecordState.TORN:
            raise TornRecord(
                f"record {record} is being written, or damaged; read it again, neuron-ds check tells which",
                device=self.device,
                pid=self.pid,
                slot=self.slot,
            )
        return data

    def read_tail(self) -> bytes:
        """What follows the blob in the slab, which a good producer leaves zero. Raises ProducerGone (ESRCH)."""
        mapping = self._lease.mapping
        tail = mapping.copy(layout.REQUIRED_WORDS, mapping.size // 8 - layout.REQUIRED_WORDS)
        mapping.check()
        return tail

    @property
    def alive(self) -> bool:
        """Whether the producer still holds the slab. Raises Closed (EBADF) once this reader is closed."""
        try:
            self._lease.mapping.check()
        except ProducerGone:
            return False
        return True


def attach(
    pid: int | None = None,
    device: int = 0,
    *,
    slot: int | None = None,
    path: str | None = None,
    driver: Driver | None = None,
) -> Reader:
    """Map the slab of a process, or of a slot, read-only; with an Owner's ``path`` only of the device there.

    Raises NoDevice, NoSlab (ENOENT), AmbiguousPid, BadIndex, ProducerGone (ESRCH), NotReady (no header, also not 500 us
    later), WrongVersion (EINVAL), AccessDenied (EACCES), LayoutMismatch (EPROTO); of hardware NoDriver, DeviceBusy
    (EBUSY), NotSupported for a slot.
    """
    device = _number(device, "the device")
    pid = None if pid is None else _number(pid, "the pid", device)
    slot = None if slot is None else _number(slot, "the slot", device)
    driver = driver or get_driver()
    lease = driver.attach(device, pid, slot=slot, path=path)
    try:
        header = lease.mapping.header()
        if header != layout.HEADER_WORD:
            import time

            time.sleep(HEADER_PAUSE_S)
            header = lease.mapping.header()
            lease.mapping.check()
            check_header(header, device=device, pid=lease.pid, slot=lease.slot)
    except BaseException:
        driver.release(lease)
        raise
    return Reader(driver, lease)


class ArenaPool:
    """Memory for passes over many slabs, used again once nobody holds a Snapshot of an earlier pass.

    Threads may share one: an arena that is taken is out of the pool until it is put back.
    """

    def __init__(self) -> None:
        self._arenas: list[_core.Arena] = []

    def take(self, slabs: int) -> _core.Arena:
        """An arena nobody looks at with room for so many slabs; ``put`` it back once somebody does."""
        free = [arena for arena in tuple(self._arenas) if not arena.in_use]
        for arena in [a for a in free if a.capacity >= slabs] or free:  # none has room: those that are free may go
            try:
                self._arenas.remove(arena)
            except ValueError:  # another thread was faster
                continue
            if arena.capacity >= slabs and not arena.in_use:
                return arena
        return _core.arena(max(slabs, 1))

    def put(self, arena: _core.Arena) -> None:
        self._arenas.append(arena)


_Shot = int | tuple[int, bytes | None, dict[int, bytes] | None] | Exception


def _at(result: _Shot, time_ns: int) -> _Shot:
    """What a pass gave of a slab, with the time of what it showed instead of the time of the pass."""
    if isinstance(result, tuple):
        return time_ns, *result[1:]
    return time_ns if isinstance(result, int) else result


def snapshot_all(
    readers: Sequence[_Datastore], pool: ArenaPool, *, verify: bool = True
) -> list[Snapshot | NeuronDSError]:
    """One pass over many slabs: for each its Snapshot, or why there is none; one bad slab fails nobody else.

    All records that mismatch share one pause. The snapshots lie in an arena of the pool.
    """
    arena = pool.take(len(readers))
    results = _core.snapshot_many([reader._mapping for reader in readers], arena, verify)
    view, size = memoryview(arena), layout.REQUIRED_SIZE
    pool.put(arena)
    out: list[Snapshot | NeuronDSError] = []
    if readers and (moment := readers[0]._moment_ns) is not None and (now_ns := moment()) is not None:
        results = [_at(result, now_ns) for result in results]
    for reader, result, at in zip(readers, results, range(0, len(readers) * size, size), strict=True):
        if isinstance(result, int):  # a mere copy, and the core has seen that its header is good
            out.append(Snapshot(view[at : at + size], reader._origin, result))
        elif isinstance(result, tuple):
            header = int.from_bytes(view[at : at + len(_HEADER)], "little")
            error = reader._header_error(header) if header != layout.HEADER_WORD else None
            out.append(error or Snapshot(view[at : at + size], reader._origin, *result))
        elif isinstance(result, NeuronDSError):
            out.append(result)
        else:
            raise result
    return out
