"""A process that closed all its descriptors locked, and mapped, whatever file had got their numbers."""

import os

from neuron_ds import datastore, layout
from neuron_ds.driver.software import SoftwareDriver
from tests.processes import result_of


def close_all_and_publish(root: str, folder) -> dict:
    driver = SoftwareDriver(root)
    first = datastore.publish(0, driver=driver)
    os.closerange(3, 64)
    logs = [os.open(folder / f"log{i}", os.O_RDWR | os.O_CREAT) for i in range(20)]
    for log in logs:
        os.truncate(log, 8 << 20)
    second = datastore.publish(0, driver=driver)
    second.core(0).inference_count.add(5)
    seen = result_of(lambda talk: [[o.pid, o.alive] for o in SoftwareDriver(root).owners(0) if o.alive])
    sizes = [any(os.pread(log, 8 << 20, 0)) for log in logs]
    answer = {"first": first._lease.mapping.state, "owners": seen, "pid": os.getpid(), "written": sizes}
    second.close()
    return answer


def test_a_process_that_became_a_daemon_claims_anew_and_writes_nowhere_else(root, tmp_path):
    SoftwareDriver(root).probe(0)

    def work(talk):
        # The pipe of this very conversation must survive the closing.
        return close_all_and_publish(root, tmp_path)

    answer = None
    pid = os.fork()
    if pid == 0:
        import json

        (tmp_path / "answer").write_text(json.dumps(work(None)))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    import json

    answer = json.loads((tmp_path / "answer").read_text())
    assert answer["first"] == "closed"
    assert answer["owners"] == [[answer["pid"], True]]
    assert not any(answer["written"])
    totals = SoftwareDriver(root).totals(0)
    assert totals.nc(0, layout.NC_BY_NAME["inference_count"].index) == 5
