"""The ways an execution can fail, by kind, and how a healthy series of executions is disturbed by them.

Every status, error class, software subtype and API failure of the runtime's facade is in one kind at least. Which
counters that moves is not known here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from neuron_ds.errors import BadValue
from neuron_ds.runtime import ApiFailure, ErrorClass, SoftwareError, Status
from neuron_ds.simulate.events import ApiFailed, Event, Executed


class Fault(NamedTuple):
    """One way to fail: an execution that ends so, or a call of the API."""

    status: Status | None = None
    error_class: ErrorClass | None = None
    software_error: SoftwareError | None = None
    api: ApiFailure | None = None

    def instead_of(self, healthy: Executed) -> Event:
        """The event that takes the place of a healthy execution."""
        if self.api is not None:
            return ApiFailed(healthy.at_us, healthy.device, healthy.core, self.api)
        assert self.status is not None
        if self.status in _NEVER_RAN:
            return Executed(healthy.at_us, healthy.device, healthy.core, self.status)
        return healthy._replace(
            status=self.status, error_class=self.error_class, software_error=self.software_error, cc_us=None
        )


_NEVER_RAN = (Status.BAD_INPUT, Status.QUEUE_FULL)

KINDS: dict[str, tuple[Fault, ...]] = {
    "generic": (
        Fault(Status.COMPLETED_WITH_ERR),
        Fault(Status.COMPLETED_WITH_ERR, ErrorClass.GENERIC),
    ),
    "numerical": (
        Fault(Status.COMPLETED_WITH_NUM_ERR),
        Fault(Status.COMPLETED_WITH_NUM_ERR, ErrorClass.NUMERICAL),
    ),
    "model": (Fault(Status.COMPLETED_WITH_ERR, ErrorClass.MODEL),),
    "transient": (Fault(Status.COMPLETED_WITH_ERR, ErrorClass.TRANSIENT),),
    "runtime": (Fault(Status.COMPLETED_WITH_ERR, ErrorClass.RUNTIME),),
    "hardware": (
        Fault(Status.COMPLETED_WITH_ERR, ErrorClass.HARDWARE),
        Fault(Status.HW_ERROR),
        Fault(Status.NC_UE),
    ),
    "hbm": (Fault(Status.HBM_UE), Fault(Status.REPAIRABLE_HBM_UE)),
    "dma": (Fault(Status.DMA_ABORT),),
    "collectives": (Fault(Status.COLLECTIVES),),
    "timeout": (Fault(Status.TIMEOUT),),
    "input": (Fault(Status.BAD_INPUT),),
    "queue": (Fault(Status.QUEUE_FULL), Fault(Status.NQ_OVERFLOW)),
    "software": (
        Fault(Status.OOB),
        Fault(Status.TIMEOUT, software_error=SoftwareError.SEMAPHORE),
        Fault(Status.COMPLETED_WITH_ERR, ErrorClass.RUNTIME, SoftwareError.EVENT),
        Fault(Status.COMPLETED_WITH_NUM_ERR, ErrorClass.NUMERICAL, SoftwareError.PSUM_COLLISION),
        Fault(Status.HW_ERROR, software_error=SoftwareError.SEQUENCER),
    ),
    "api": tuple(Fault(api=kind) for kind in ApiFailure),
}


def faults_of(kinds: str) -> tuple[Fault, ...]:
    """The faults of ``all`` kinds, or of those joined by ``+``. Raises BadValue (EINVAL) for a kind there is not."""
    names = KINDS if kinds == "all" else kinds.split("+")
    if unknown := [name for name in names if name not in KINDS]:
        raise BadValue(f"{unknown[0]!r} is no kind of error; they are all, or some of {', '.join(KINDS)} joined by +")
    return tuple(dict.fromkeys(fault for name in names for fault in KINDS[name]))


def disturb(
    healthy: Iterable[Executed], faults: tuple[Fault, ...], share: float, from_us: int, rng: random.Random
) -> Iterator[Event]:
    """From some time on, a share of the executions fails.

    Faults are drawn like cards: none comes twice before all have come once.
    """
    deck: list[Fault] = []
    for event in healthy:
        if event.at_us < from_us or rng.random() >= share:
            yield event
            continue
        if not deck:
            deck = list(faults)
            rng.shuffle(deck)
        yield deck.pop().instead_of(event)
