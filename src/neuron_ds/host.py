"""The host around the devices: processor, memory, ECC counts, and what /proc says of each runtime.

A HostCollector looks through psutil and gives one HostSample; what happened is the difference of two. What cannot be
read is a text in the place of its value and fails nobody else. This module knows no slab and no format of output.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

from neuron_ds.driver import Driver
from neuron_ds.driver.clock import REAL_TIME, clock_of
from neuron_ds.records import printable

#: Names in the stream, and psutil's.
CPU_FIELDS = {
    "user": "user",
    "nice": "nice",
    "system": "system",
    "idle": "idle",
    "io_wait": "iowait",
    "irq": "irq",
    "soft_irq": "softirq",
}
ECC = ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_corrected", "sram_ecc_uncorrected")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the host, in bytes."""

    total_bytes: int
    used_bytes: int
    swap_total_bytes: int
    swap_used_bytes: int


@dataclass(frozen=True, slots=True)
class Processors:
    """Seconds since boot by CPU, in the order of CPU_FIELDS with all the rest (steal) last; context switches."""

    seconds: tuple[tuple[float, ...], ...]
    context_switches: int


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Of one process: seconds of processor time since its start, and resident memory."""

    user_s: float
    system_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class HostSample:
    """The host at one moment. A text in the place of a value says why there is none.

    ecc: by device, cumulative, or why a device's can't be read; None where there is nothing to read because the devices
    are no hardware.
    """

    time_ns: int
    memory: Memory | str
    processors: Processors | str
    processes: Mapping[int, ProcessUse | str]
    ecc: Mapping[int, tuple[int, ...] | str] | str | None


class HostCollector:
    """Looks at the host. Not for several threads at once."""

    def __init__(self, driver: Driver) -> None:
        self._clock = clock_of(driver)
        self._sysfs: Path | None = None
        if driver.name == "kernel":
            from neuron_ds.driver.kernel import sysfs_root

            self._sysfs = Path(sysfs_root())
        self._processes: dict[int, psutil.Process] = {}

    def collect(self, pids: Iterable[int], devices: Iterable[int], *, system: bool = True) -> HostSample:
        """One look at these processes and, with ``system``, at the rest. Raises nothing."""
        wanted = dict.fromkeys(pids)
        for pid in self._processes.keys() - wanted.keys():
            del self._processes[pid]
        uses = {pid: _told(partial(self._process, pid)) for pid in wanted}
        if self._clock is not REAL_TIME:  # another time, and as a rule another host
            elsewhere = "is not in a recording"
            return HostSample(self._clock.now_ns(), elsewhere, elsewhere, dict.fromkeys(wanted, elsewhere), elsewhere)
        nothing = "was not looked at"
        return HostSample(
            time.monotonic_ns(),
            _told(_memory) if system else nothing,
            _told(_processors) if system else nothing,
            uses,
            self._ecc(devices) if system else nothing,
        )

    def _process(self, pid: int) -> ProcessUse:
        process = self._processes.get(pid)
        if process is None or not process.is_running():
            process = self._processes[pid] = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return ProcessUse(times.user, times.system, process.memory_info().rss)

    def _ecc(self, devices: Iterable[int]) -> Mapping[int, tuple[int, ...] | str] | None:
        if self._sysfs is None:
            return None
        root = self._sysfs
        return {
            device: _told(partial(_hardware, root / f"neuron{device}" / "stats" / "hardware")) for device in devices
        }


def _told(look: Callable[[], T]) -> T | str:
    """What a look gives, or why it gave nothing."""
    try:
        return look()
    except psutil.NoSuchProcess as e:
        return f"process {e.pid} is not in /proc"
    except psutil.AccessDenied as e:
        return f"process {e.pid} may not be looked at in /proc"
    except psutil.Error as e:
        return printable(str(e))
    except OSError as e:
        return printable(f"{os.fsdecode(e.filename or '/proc')}: {e.strerror}")
    except (ValueError, IndexError, KeyError, RuntimeError) as e:
        return printable(f"/proc is not as expected: {e!r}")


def _memory() -> Memory:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return Memory(memory.total, memory.used, swap.total, swap.used)


def _processors() -> Processors:
    seconds = []
    for times in psutil.cpu_times(percpu=True):
        named = [getattr(times, name, 0.0) for name in CPU_FIELDS.values()]
        seconds.append((*named, getattr(times, "steal", 0.0)))  # guests are counted in user and nice already
    return Processors(tuple(seconds), psutil.cpu_stats().ctx_switches)


def _hardware(base: Path) -> tuple[int, ...] | str:
    """The ECC counts of a device in the order of ECC, or why there are none."""
    if not base.is_dir():
        return f"{base}: the driver shows no hardware counters there"
    return tuple(_count(base / name) for name in ECC)


def _count(path: Path) -> int:
    """A counter of the driver: a file, or a directory with its total; 0 where it has none.

    Raises OSError where it can't be read just now, or holds no number: a 0 in between would count every event again.
    """
    for each in (path / "total", path):
        try:
            return max(0, int(each.read_text()))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except ValueError:
            raise OSError(errno.EINVAL, "holds no number", str(each)) from None
    return 0
