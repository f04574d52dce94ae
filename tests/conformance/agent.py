"""A process under test: it does what it is told over a socket, one JSON line each way.

An agent is forked from a runner that never opens a device itself, so it starts with nothing. It knows the public API
and the drivers; the rules and what to expect are in rules.py.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import socket
import struct
import sys
import threading
import time
from typing import Any

from neuron_ds import _core, attach, layout, publish
from neuron_ds.driver import Lease, get_driver
from neuron_ds.driver.totals import DifferentialReport
from neuron_ds.errors import NeuronDSError

SLAB_WORDS = layout.SLAB_SIZE // 8


class Agent:
    """The commands; each returns something JSON can carry."""

    def __init__(self) -> None:
        self.producers: dict[int, Any] = {}
        self.readers: dict[int, Any] = {}
        self.leases: list[Lease] = []
        self.reports: dict[int, DifferentialReport] = {}
        self.fds: list[int] = []

    # --- the datastore -----------------------------------------------------------------------------------------------

    def publish(self, device: int = 0, tag: str = "agent", **more: Any) -> dict[str, Any]:
        p = publish(device, tag=tag, **more)
        self.producers[device] = p
        return {"slot": p.slot, "generation": p.generation, "place": self._place(p._lease)}

    def close(self, device: int = 0) -> None:
        self.producers[device].close()

    def add(self, core: int, name: str, n: int, device: int = 0) -> None:
        getattr(self.producers[device].core(core), name).add(n)

    def set(self, core: int, name: str, n: int, device: int = 0) -> None:
        getattr(self.producers[device].core(core), name).set(n)

    def features(self, bits: int, device: int = 0) -> None:
        self.producers[device].nd.feature_bitmap.or_(bits)

    def add_in_threads(self, core: int, name: str, threads: int, times: int) -> dict[str, Any]:
        """Each thread publishes for itself, as a library would, and adds."""

        def work() -> None:
            with_own = publish(0)
            counter = getattr(with_own.core(core), name)
            for _ in range(times):
                counter.add(1)

        running = [threading.Thread(target=work) for _ in range(threads)]
        for t in running:
            t.start()
        for t in running:
            t.join()
        return {"owners": len([o for o in get_driver().owners(0) if o.pid == os.getpid() and o.state == "owned"])}

    def attach(self, pid: int, device: int = 0) -> int:
        self.readers[len(self.readers)] = attach(pid, device)
        return len(self.readers) - 1

    def snapshot(self, reader: int) -> dict[str, Any]:
        s = self.readers[reader].snapshot()
        return {"tag": s.tag, "raw": bytes(s.raw).hex(), "states": {str(r): x.name for r, x in s.states().items()}}

    def value(self, reader: int, core: int, name: str) -> int:
        return int(self.readers[reader].core(core).__getattr__(name).get())

    def snapshot_value(self, reader: int, core: int, name: str) -> int:
        return int(getattr(self.readers[reader].snapshot().core(core), name))

    def write_through_reader(self, reader: int) -> None:
        self.readers[reader].core(0).time_in_use.add(1)

    def alive(self, reader: int) -> bool:
        return bool(self.readers[reader].alive)

    def detach(self, reader: int) -> None:
        self.readers[reader].close()

    # --- the driver --------------------------------------------------------------------------------------------------

    def acquire(self, device: int = 0) -> dict[str, Any]:
        """The slab as the driver gives it, before anything is stamped."""
        lease = get_driver().acquire(device)
        self.leases.append(lease)
        whole = lease.mapping.copy(0, SLAB_WORDS)
        return {
            "zero": not any(whole),
            "size": len(whole),
            "place": self._place(lease),
            "header": lease.mapping.header(),
        }

    def fill(self) -> None:
        """Write into every word of the last acquired slab."""
        mapping = self.leases[-1].mapping
        for i in range(1, SLAB_WORDS):
            mapping.store(i, i | 1 << 40)

    def store_header(self, word: int) -> None:
        self.leases[-1].mapping.store(0, word)

    def release(self) -> None:
        lease = self.leases.pop()
        get_driver().release(lease)

    def owners(self, device: int = 0) -> list[dict[str, Any]]:
        return [{"pid": o.pid, "state": o.state, "alive": o.alive, "slot": o.slot} for o in get_driver().owners(device)]

    def devices(self) -> list[int]:
        return get_driver().devices()

    def properties(self, device: int = 0) -> dict[str, Any]:
        p = get_driver().properties(device)
        return {"cores": p.cores, "device": p.device, "type": p.type}

    def total(self, core: int, name: str, device: int = 0) -> int:
        return get_driver().totals(device).core(core)[name]

    def feature_total(self, device: int = 0) -> int:
        return get_driver().totals(device).nd(layout.ND_BY_NAME["feature_bitmap"].index)

    def versions(self, device: int = 0) -> list[Any]:
        found, other = get_driver().totals(device).versions("runtime_version")
        return [{str(v): n for v, n in found.items()}, other]

    def report(self, device: int = 0) -> dict[str, int]:
        now = get_driver().totals(device)
        if device not in self.reports:
            self.reports[device] = DifferentialReport(now)
            return {}
        return {f"{core}/{layout.NC[i].name}": n for (core, i), n in self.reports[device].report(now).items()}

    def reset(self, device: int = 0) -> None:
        get_driver().reset(device)

    @staticmethod
    def _place(lease: Lease) -> int:
        """What tells slots apart: the slot, or where the kernel maps it."""
        return lease.slot if lease.slot is not None else int(lease.private)  # type: ignore[call-overload]

    # --- processes ---------------------------------------------------------------------------------------------------

    def pid(self) -> int:
        return os.getpid()

    def forked(self, what: str) -> Any:
        """What a command gives in a forked child, which then exits."""
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            there.sendall(json.dumps(self.run({"do": what})).encode() + b"\n")
            os._exit(0)
        there.close()
        answer = here.makefile().readline()
        os.waitpid(child, 0)
        return json.loads(answer) if answer else {"error": "died"}

    def use_producer(self) -> int:
        counter = self.producers[0].core(0).time_in_use
        counter.add(1)
        return int(counter.get())

    def close_producer(self) -> None:
        self.producers[0].close()

    def fork_stays(self) -> int:
        """A forked child that outlives this process; it holds whatever a child inherits."""
        child = os.fork()
        if child == 0:
            threading.Event().wait(60)
            os._exit(0)
        return child

    def exec_sleep(self) -> None:
        """Another program in this process. Only an error comes back."""
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)"])

    def maps(self) -> list[list[str]]:
        """[permissions, flags] of the mappings of slabs."""
        found, current = [], ""
        with open("/proc/self/smaps") as f:
            for line in f:
                first = line.split()[0]
                if "-" in first and not first.endswith(":"):
                    low, high = (int(x, 16) for x in first.split("-"))
                    current = line.split()[1] if high - low == layout.SLAB_SIZE else ""
                elif first == "VmFlags:" and current.endswith("s"):
                    found.append([current, line.partition(":")[2].strip()])
        return found

        """The stand-ins' ioctl for tests: roll-ups; pid, tick and first device counter of each slot."""

    def node_open(self, device: int = 0, flags: int = os.O_RDWR) -> int:
        """Open the node beside the driver's own descriptor; closed again only by node_close."""
        from neuron_ds.driver.kernel import dev_root

        self.fds.append(os.open(f"{dev_root()}/neuron{device}", flags | os.O_CLOEXEC))
        return self.fds[-1]

    def fd(self) -> int:
        return self.fds[-1]

    def inherited_acquire(self) -> list[int]:
        """Acquire through the descriptor that the parent opened: an owner that never attached."""
        return list(_core.kernel_acquire(self.fds[-1], 0))

    def node_stamp(self, fd: int) -> None:
        """Publish as a runtime of its own would: map and stamp, without the driver's knowledge."""
        offset, size = _core.kernel_acquire(fd, 0)
        mapping = _core.map(fd, offset, size, True, None)
        mapping.stamp_header()
        mapping.close()

    def node_close(self, fd: int) -> None:
        os.close(fd)

    def node_dup_close(self, fd: int) -> None:
        os.close(os.dup(fd))

    def node_acquire(self, fd: int, pid: int = 0) -> list[int]:
        return list(_core.kernel_acquire(fd, pid))

    def node_release(self, fd: int, pid: int) -> None:
        _core.kernel_release(fd, pid)

    def node_ioctl(self, fd: int, number: int) -> None:
        fcntl.ioctl(fd, number, bytearray(24))

    def node_map(self, fd: int, offset: int, size: int, write: bool) -> None:
        _core.map(fd, offset, size, write, None).close()

    def descriptor(self, device: int = 0) -> int:
        from neuron_ds.driver.kernel import _descriptors, dev_root

        return _descriptors[f"{dev_root()}/neuron{device}"]

    def node_table(self, fd: int) -> dict[str, Any]:
        """The stand-ins' ioctl for tests: roll-ups, and (pid, tick, first device counter) of each slot."""
        data = bytearray(8 + 24 * layout.SLOTS_PER_DEVICE)
        fcntl.ioctl(fd, 0x80084EFA, data)
        slots = [struct.unpack_from("<i4xQQ", data, 8 + 24 * i) for i in range(layout.SLOTS_PER_DEVICE)]
        return {"roll_ups": struct.unpack_from("<Q", data)[0], "slots": slots}

    # --- recordings --------------------------------------------------------------------------------------------------

    def record_begin(self, path: str) -> None:
        """Begin to record whatever there is; on a clock of its own, so that each tick looks at everything anew."""
        from neuron_ds.record import Recorder
        from neuron_ds.record.container import FileSink

        self.times = itertools.count(10**12, 1_100_000_000)
        self.sink = FileSink(path)
        self.recorder = Recorder(self.sink, rate_hz=1, now_ns=lambda: next(self.times))
        self.record_tick()

    def record_tick(self) -> None:
        self.recorder.tick()
        self.recorder.cut()
        self.sink.flush()
        deadline = time.monotonic() + 20
        while os.path.getsize(self.sink.path) < self.sink.size_bytes and time.monotonic() < deadline:
            time.sleep(0.001)

    def catch_up(self) -> None:
        """Go to the end of the recording as it is by now."""
        get_driver().catch_up()

    # --- serving -----------------------------------------------------------------------------------------------------

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        do = request.pop("do")
        try:
            return {"value": getattr(self, do)(**request)}
        except OSError as e:
            return {"error": type(e).__name__, "errno": e.errno, "text": str(e), "ours": isinstance(e, NeuronDSError)}


def serve(channel: socket.socket) -> None:
    """Answer until the other side closes; then exit without cleaning up, as a program that is killed would."""
    agent, stream = Agent(), channel.makefile("rw")
    for line in stream:
        stream.write(json.dumps(agent.run(json.loads(line))) + "\n")
        stream.flush()
    os._exit(0)
