"""A publish beside a close in another thread claimed a second slot before the first was given back."""

import threading

from neuron_ds import datastore
from neuron_ds.errors import Closed


def test_one_process_has_one_slot_whatever_its_threads_do(root, driver, switching):
    driver.probe(0)
    most, stop = 0, threading.Event()

    def churn():
        while not stop.is_set():
            try:
                datastore.publish(0, driver=driver).close()
            except Closed:  # another thread's close came first
                continue

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(400):
        most = max(most, sum(o.state == "owned" for o in driver.owners(0)))
    stop.set()
    for thread in threads:
        thread.join()
    assert most <= 1
    datastore.publish(0, driver=driver).close()
    assert driver.owners(0) == []


def test_two_directories_with_the_same_slot_and_pid_can_both_be_read(root):
    from neuron_ds.collect import Collector
    from neuron_ds.driver.software import SoftwareDriver

    roots = [f"{root}-a", f"{root}-b"]
    producers = [datastore.publish(0, driver=SoftwareDriver(r), tag=r[-1]) for r in roots]
    both = SoftwareDriver(":".join(roots))
    owners = both.owners(0)
    assert len({(o.slot, o.pid) for o in owners}) == 1
    tags = [datastore.attach(o.pid, 0, slot=o.slot, path=o.path, driver=both).snapshot().tag for o in owners]
    assert tags == ["a", "b"]
    with Collector(both) as collector:
        assert [p.error for p in collector.collect().processes] == ["", ""]
    for producer in producers:
        producer.close()
