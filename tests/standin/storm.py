"""Processes that are killed at random instants while they use a node, and threads that use one at once.

Run with a node and, for the storm, a number of kills; prints what the test compares. Knows the calls of the driver;
knows nothing of what is behind the node.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import signal
import sys
import threading
import time

from replay import Agent

from neuron_ds import layout

CHILDREN = 6
PROBE = layout.nc_index(1, layout.NC_BY_NAME["infer_completed"].index)


def churn(node: str, intent: ctypes.c_uint64, done: ctypes.c_uint64) -> None:
    """Count one in each slab that it gets, until killed; the ledger is told before and after."""
    agent = Agent()
    for round in range(1 << 30):
        fd = agent.open(node)
        for _ in range(3):
            offset, size = agent.acquire(fd)
            address = agent.map(fd, offset, size)
            intent.value += 1
            agent.store(address, PROBE, agent.load(address, PROBE) + 1)
            done.value += 1
            agent.unmap(address, size)
            if round % 3:
                agent.release(fd)
        agent.close(fd)


def storm(node: str, kills: int) -> dict[str, int]:
    """Sums of the ledger after that many kills, with several processes at work all the time."""
    ledger = mmap.mmap(-1, 16 * kills)
    cells = (ctypes.c_uint64 * (2 * kills)).from_buffer(ledger)
    at_work: list[int] = []
    for i in range(kills):
        pid = os.fork()
        if pid == 0:
            places = [ctypes.c_uint64.from_buffer(cells, 16 * i + 8 * which) for which in range(2)]
            churn(node, *places)
        at_work.append(pid)
        if len(at_work) == CHILDREN or i == kills - 1:
            time.sleep(random.uniform(0, 0.004))  # the random instant, not a wait for anything
            random.shuffle(at_work)
            while len(at_work) > (0 if i == kills - 1 else CHILDREN // 2):
                victim = at_work.pop()
                os.kill(victim, signal.SIGKILL)
                os.waitpid(victim, 0)
    return {"intent": sum(cells[::2]), "done": sum(cells[1::2])}


def threads(node: str) -> dict[str, int]:
    """Opens and closes by eight threads at once, all counted for one process."""
    agent, failed = Agent(), []
    kept = agent.open(node)
    agent.acquire(kept)

    def work() -> None:
        try:
            for _ in range(100):
                fd = agent.open(node)
                agent.acquire(fd)
                agent.close(fd)
        except OSError as e:
            failed.append(e)

    running = [threading.Thread(target=work) for _ in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    owners = [slot[0] for slot in agent.table(kept)["slots"]]
    answer = {
        "failed": len(failed),
        "attached": agent.apps(kept).count(os.getpid()),
        "slots": owners.count(os.getpid()),
    }
    agent.close(kept)
    fd = agent.open(node, os.O_WRONLY)
    return answer | {"left": sum(slot[0] == os.getpid() for slot in agent.table(fd)["slots"])}


if __name__ == "__main__":
    print(json.dumps(storm(sys.argv[1], int(sys.argv[2])) if sys.argv[2:] else threads(sys.argv[1])))
