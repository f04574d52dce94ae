"""A signal handler's exception behind a lock-taking call left the mutex, the table lock or a slot taken for good."""

import signal
import time

import pytest

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from tests.processes import result_of


class Alarm(Exception):
    pass


def interrupted_rounds(root: str, seconds: float) -> int:
    """Publish and close while a timer raises every half millisecond or so; how often it did."""

    def handler(number, frame):
        raise Alarm

    signal.signal(signal.SIGALRM, handler)
    driver, interrupts, deadline = SoftwareDriver(root), 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + (interrupts % 17) * 0.00003, 0.0005)
                while True:
                    datastore.publish(0, driver=driver).close()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Alarm:
            interrupts += 1
    datastore.publish(0, driver=driver).close()  # raises TableBusy if a lock was left
    assert [o.slot for o in driver.owners(0) if o.alive] == []
    return interrupts


def test_interrupted_claims_and_closes_leave_nothing_taken(root):
    SoftwareDriver(root).probe(0)
    assert result_of(lambda talk: interrupted_rounds(root, 1.5)) > 50
    with datastore.publish(0, driver=SoftwareDriver(root)) as producer:
        assert producer.slot is not None


@pytest.mark.parametrize("call", ["publish", "close"])
def test_a_call_from_within_the_lock_says_so_at_once(root, hook, call):
    """A finalizer that closes while its own thread is in the table lock would wait for itself."""
    driver = SoftwareDriver(root)
    producer = datastore.publish(0, driver=driver)
    caught = []

    def inside(name):
        if name == "table.locked" and not caught:
            caught.append(None)
            began = time.monotonic()
            with pytest.raises(Exception, match="this process") as e:
                datastore.publish(0, driver=driver) if call == "publish" else producer.close()
            caught[0] = (type(e.value).__name__, time.monotonic() - began)

    hook.append(inside)
    datastore.publish(0, driver=driver)
    assert caught[0][0] == "TableBusy"
    assert caught[0][1] < 1
    hook.clear()
    datastore.publish(0, driver=driver).close()
    assert driver.owners(0) == []
