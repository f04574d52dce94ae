"""Names of pods: what kubelet says of who holds which Neuron device and core, and which container of ours that is.

PodResources asks kubelet's pod-resources API in a thread of its own, rarely and with a deadline, so that nobody ever
waits for an answer; Placing matches containers with it and never guesses. This module knows that API and the ids of the
vendor's device plugin; it knows no format of output.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from neuron_ds.collect import ProcessSample, Sample
from neuron_ds.driver import DeviceProperties
from neuron_ds.numbering import DeviceCores, numbering
from neuron_ds.records import printable

DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
MISSING = "grpcio is not installed; pip install 'neuron-datastore[kubernetes]'"
#: How often kubelet is asked, how soon again for somebody new, and how long it may take to answer.
PERIOD_S, HASTE_S, PATIENCE_S = 30.0, 2.0, 5.0

_LIST = "/v1.PodResourcesLister/List"
_LARGEST_ANSWER = 16 << 20
#: Resources of the vendor's device plugin. Their ids are numbers: of a device, and of a logical core of the instance.
_DEVICES = ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice")
_CORES = ("aws.amazon.com/neuroncore",)
_ID = re.compile(r"0|[1-9][0-9]{0,5}")


class Place(NamedTuple):
    """A container by the names that Kubernetes has for it; "" where not known."""

    namespace: str = ""
    pod: str = ""
    container: str = ""


#: A container by what /proc says: pod uid and container id.
Container = tuple[str, str]
#: What a container's processes use: by device, what was read of each of them.
Uses = dict[int, list[ProcessSample]]


# --- The answer ------------------------------------------------------------------------------------------------------


class Allocations:
    """One answer: who holds a device as a whole, and who a core. ``asked_ns``: CLOCK_MONOTONIC before it was asked."""

    def __init__(self, answer: bytes, asked_ns: int) -> None:
        """From a ListPodResourcesResponse. Raises ValueError where it is none."""
        self.asked_ns = asked_ns
        self.devices: dict[int, set[Place]] = {}
        self.cores: dict[int, set[Place]] = {}
        self.places: set[Place] = set()
        self.odd = ""  #: an id of the plugin's that says nothing to us
        for place, resource, number in _allocated(answer):
            held = self.devices if resource in _DEVICES else self.cores
            if _ID.fullmatch(number):
                held.setdefault(int(number), set()).add(place)
                self.places.add(place)
            else:
                self.odd = f"{resource} {number!r}"

    def holders(self, device: int, cores: range, used: Callable[[], set[int]]) -> set[Place]:
        """Who may be the user of a device with these cores: holds all of it, or all of the cores that are used."""
        whole = self.devices.get(device, set())
        parts = set().union(*(self.cores.get(core, ()) for core in cores)) - whole
        if parts:
            wanted = used()
            parts = {place for place in parts if all(place in self.cores.get(core, ()) for core in wanted)}
        return whole | parts


def _allocated(answer: bytes) -> Iterator[tuple[Place, str, str]]:
    """(container, resource, id) of everything of the vendor's. The numbers are those of the API's messages."""
    for pod in _all(answer, 1):
        name, namespace = _text(pod, 1), _text(pod, 2)
        for container in _all(pod, 3):
            place = Place(namespace, name, _text(container, 1))
            for devices in _all(container, 2):
                resource = _text(devices, 1)
                if resource in _DEVICES or resource in _CORES:
                    for number in _all(devices, 2):
                        yield place, resource, str(number, "utf-8")


def _all(message: bytes, field: int) -> list[bytes]:
    return [value for number, value in _fields(message) if number == field]


def _text(message: bytes, field: int) -> str:
    values = _all(message, field)
    return str(values[-1], "utf-8") if values else ""


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, bytes) of the texts and messages in a protobuf message; what is of another kind is stepped over."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind, size = tag & 7, 0
        if kind == 0:
            _, at = _varint(message, at)
        elif kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if at + size > len(message):
            raise ValueError("cut short")
        if kind == 2:
            yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("cut short")
        value |= (message[at] & 0x7F) << shift
        at += 1
        if message[at - 1] < 0x80:
            return value, at
    raise ValueError("a number without end")


# --- Asking ----------------------------------------------------------------------------------------------------------


class PodResources:
    """Asks kubelet, in a thread; ``answer`` is the last one, ``error`` why there is no newer. Close it."""

    def __init__(
        self,
        path: str = DEFAULT_SOCKET,
        *,
        tell: Callable[[str], object] = lambda text: None,
        period_s: float = PERIOD_S,
        haste_s: float = HASTE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """``tell`` is told in a line whenever what is in the way has changed."""
        self.path = path
        self._tell, self._period_s, self._haste_s, self._patience_s = tell, period_s, haste_s, patience_s
        self.answer: Allocations | None = None
        self.error = ""
        self.asked = 0  #: how often
        self._told = ""
        self._call: object = None
        self._stop, self._wanted = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="neuron-ds-pods", daemon=True)
        self._thread.start()

    def want(self) -> None:
        """Ask soon: there is somebody whom the last answer can't know."""
        self._wanted.set()

    def close(self) -> None:
        """Ask no more; a call under way is given up."""
        self._stop.set()
        self._wanted.set()
        cancel = getattr(self._call, "cancel", None)
        if cancel is not None:
            cancel()
        self._thread.join()

    def __enter__(self) -> PodResources:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            asked_ns = time.monotonic_ns()
            try:
                self.answer, self.error = Allocations(self._list(), asked_ns), ""
                if self.answer.odd:
                    self.error = f"an id that is no number: {self.answer.odd}"
            except ModuleNotFoundError:
                self.error = MISSING
            except OSError as e:
                self.error = e.strerror or str(e)
            except ValueError as e:
                self.error = f"the answer is none of kubelet's: {e}"
            except Exception as e:  # whatever the library finds to raise: names of pods are no reason to end
                self.error = repr(e)
            self.asked += 1
            if self._stop.is_set():
                return
            if self.error:
                self.error = printable(f"no names of pods from {self.path}: {self.error}")
            if self.error != self._told:
                self._told = self.error
                self._tell(self.error or f"names of pods from {self.path} again")
            self._stop.wait(self._haste_s)
            self._wanted.wait(max(0.0, self._period_s - self._haste_s))
            self._wanted.clear()

    def _list(self) -> bytes:
        """The API's answer as it came. Raises OSError, or what Allocations can't take."""
        if not stat.S_ISSOCK(os.stat(self.path).st_mode):
            raise OSError("is no socket")
        import grpc

        options = (("grpc.max_receive_message_length", _LARGEST_ANSWER), ("grpc.enable_http_proxy", 0))
        with grpc.insecure_channel(f"unix:{os.path.abspath(self.path)}", options=options) as channel:
            ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_LIST)
            call = self._call = ask.future(b"", timeout=self._patience_s)
            if self._stop.is_set():  # closed before there was anything to give up
                call.cancel()
            try:
                answer = call.result()
            except grpc.FutureCancelledError:
                raise OSError("given up") from None
            except grpc.RpcError:
                raise OSError(f"{call.code().name}: {call.details()}") from None
            finally:
                self._call = None
        return answer


# --- Matching --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed:
    devices: frozenset[int]
    asked_ns: int
    place: Place | None


class Placing:
    """Which containers of /proc are which of kubelet's, as long as they live.

    The API tells neither pod uid nor container id. A container is the one that alone holds every device, or every core,
    that its processes use, by an answer that was asked for after the container was first seen; where that is not so, or
    of two containers, there is no name.
    """

    def __init__(self, pods: PodResources) -> None:
        self._pods = pods
        self._seen_ns: dict[Container, int] = {}
        self._placed: dict[Container, _Placed] = {}

    def look(self, sample: Sample, containers: Mapping[Container, Uses]) -> dict[Container, Place]:
        """The names of these containers, who are all there are in the Sample."""
        now_ns, answer = time.monotonic_ns(), self._pods.answer
        self._seen_ns = {c: self._seen_ns.get(c, now_ns) for c in containers}
        self._placed = {c: placed for c, placed in self._placed.items() if c in containers}
        shapes = {d.device: d.properties for d in sample.devices}
        for container, uses in containers.items():
            if answer is None or answer.asked_ns < self._seen_ns[container]:
                self._pods.want()
                continue
            old, devices = self._placed.get(container), frozenset(uses)
            if old and old.place and (old.devices, old.asked_ns) == (devices, answer.asked_ns):
                continue
            place = _holder(answer, uses, shapes)
            if place is None and old and old.devices == devices and old.place not in answer.places:
                place = old.place  # its pod is ending: kubelet no longer lists it
            self._placed[container] = _Placed(devices, answer.asked_ns, place)
        claims = Counter(placed.place for placed in self._placed.values())
        return {c: p.place for c, p in self._placed.items() if p.place and claims[p.place] == 1}


def _holder(answer: Allocations, uses: Uses, shapes: Mapping[int, DeviceProperties | None]) -> Place | None:
    """Who alone holds everything that is used."""
    numbers = numbering(shapes)
    found: set[Place] | None = None
    for device, processes in uses.items():
        cores = numbers.of(device)

        def used(processes: Sequence[ProcessSample] = processes, cores: DeviceCores = cores) -> set[int]:
            return {
                cores.first + core // cores.config
                for p in processes
                if p.snapshot
                for core in range(cores.physical)
                if any(p.snapshot.nc_counters(core))
            }

        holders = answer.holders(device, range(cores.first, cores.first + numbers.cores_per_device), used)
        found = holders if found is None else found & holders
    return found.pop() if found and len(found) == 1 else None
