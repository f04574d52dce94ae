"""Playing a script on real producers: at its own speed, faster, or as fast as the machine can.

``Player.apply`` makes the one call of the runtime's facade that an event stands for, ``Playback`` goes through a script
and can stop and go on between any two events. Neither knows where the events come from.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from neuron_ds.datastore import ModelHandle, Producer
from neuron_ds.runtime import Runtime
from neuron_ds.simulate.events import (
    ApiFailed,
    DeviceMemoryChanged,
    Event,
    Executed,
    FeaturesUsed,
    HostMemoryChanged,
    ModelLoaded,
    ModelUnloaded,
    StillBusy,
)

#: Further behind than this, the clock is set back: a process that was stopped does not catch up on what it missed.
LAG_S = 0.5
#: The least speed, and how long something may go on (a year): beyond, times don't fit what the system takes.
SLOWEST = 0.001
LONGEST_S = 365 * 86400
_EVENTS_PER_LOOK = 64


class Player:
    """Makes the calls of events on the producers of one process, by device."""

    def __init__(self, producers: Mapping[int, Producer]) -> None:
        self._runtimes = {device: Runtime(producer) for device, producer in producers.items()}
        self._models: dict[tuple[int, int, int], ModelHandle] = {}

    def apply(self, event: Event) -> None:
        """One event, one call."""
        runtime = self._runtimes[event.device]
        match event:
            case Executed():
                runtime.execution_ended(
                    event.core,
                    event.status,
                    busy_us=event.busy_us,
                    macs=event.macs,
                    device_us=event.device_us,
                    total_us=event.total_us,
                    nc_us=event.nc_us,
                    cc_us=event.cc_us,
                    error_class=event.error_class,
                    software_error=event.software_error,
                )
            case StillBusy():
                runtime.producer.core(event.core).time_in_use.add(event.busy_us)
            case ApiFailed():
                runtime.api_failed(event.core, event.kind)
            case DeviceMemoryChanged():
                runtime.device_memory(event.core, event.category, event.delta_bytes)
            case HostMemoryChanged():
                runtime.host_memory(event.category, event.delta_bytes)
            case ModelLoaded():
                model = event.model
                handle = runtime.model_loaded(model.record())
                self._models[event.device, model.model_id, model.subgraph] = handle
            case ModelUnloaded():
                model = event.model
                runtime.model_unloaded(self._models.pop((event.device, model.model_id, model.subgraph)))
            case FeaturesUsed():
                runtime.producer.nd.feature_bitmap.or_(event.bits)


class Clock(Protocol):
    """When an event is due."""

    def reach(self, at_us: int) -> bool:
        """Wait for this time of the script. False: woken early for another reason; ask again."""

    def restart(self) -> None:
        """The next event is due at once, and the others follow it."""


def _sleep(sleep_s: float) -> bool:
    time.sleep(sleep_s)
    return True


class RealTime:
    """A script's time as the machine's: ``speed`` times as fast, or as fast as possible where that is infinite.

    sleep: waits so many seconds, or returns False early. It is called now and then with 0 even if there is nothing to
    wait for.
    """

    def __init__(self, speed: float = 1.0, sleep: Callable[[float], bool] = _sleep) -> None:
        self._speed, self._sleep = speed, sleep
        self._origin_s: float | None = None
        self._unslept = 0

    def restart(self) -> None:
        self._origin_s = None

    def reach(self, at_us: int) -> bool:
        offset_s = at_us / 1e6 / self._speed
        if self._speed < math.inf:
            now = time.monotonic()
            if self._origin_s is None:
                self._origin_s = now - offset_s
            while (left_s := self._origin_s + offset_s - now) > 0:
                self._unslept = 0
                if not self._sleep(left_s):
                    return False
                now = time.monotonic()
            if left_s < -LAG_S:
                self._origin_s -= left_s
        self._unslept += 1
        if self._unslept < _EVENTS_PER_LOOK:
            return True
        self._unslept = 0
        return self._sleep(0)


class Playback:
    """One way through a script. ``played`` events have been applied, the script's time is ``at_us``."""

    def __init__(self, player: Player, events: Iterable[Event], clock: Clock | None = None) -> None:
        self._player, self._clock = player, clock
        self._events: Iterator[Event] = iter(events)
        self._next: Event | None = next(self._events, None)
        self.played = 0
        self.at_us = 0

    @property
    def over(self) -> bool:
        """Whether the script has ended."""
        return self._next is None

    def run(self, until: int | None = None, until_us: int | None = None) -> None:
        """Play until so many events were applied in all, until all up to a time were, or until the clock is woken."""
        while (event := self._next) is not None:
            if until is not None and self.played >= until:
                return
            if until_us is not None and event.at_us > until_us:
                return
            if self._clock is not None and not self._clock.reach(event.at_us):
                return
            self._player.apply(event)
            self.played += 1
            self.at_us = event.at_us
            self._next = next(self._events, None)


def play(
    producers: Producer | Mapping[int, Producer],
    events: Iterable[Event],
    *,
    limit: int | None = None,
    until_us: int | None = None,
    clock: Clock | None = None,
) -> int:
    """Play a script in this process and return how many events were applied.

    ``limit`` ends it after so many events, ``until_us`` behind that time of the script; without a clock nothing is
    waited for. An endless script needs one of the two. ``Playback`` can go on where it stopped.
    """
    by_device = producers if isinstance(producers, Mapping) else {producers.device: producers}
    playback = Playback(Player(by_device), events, clock)
    playback.run(limit, until_us)
    return playback.played
