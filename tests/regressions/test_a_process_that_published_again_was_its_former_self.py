"""On a driver without generations a process that gave its slab back and published again went on from its old counts."""

AGAIN = """
import neuron_ds
def publish(completed):
    producer = neuron_ds.publish(0, tag="again")
    producer.core(0).infer_completed.add(completed)
    return producer
producer = publish(100)
say(os.getpid())
hear()
producer.close()
producer = publish(150)
say("again")
hear()
"""
EXPORTER = """
from neuron_ds.collect import Collector
from neuron_ds.exporter.watch import Watch
from neuron_ds.instance import InstanceInfo
from neuron_ds.rates import deltas
watch = Watch(window_s=3600, sample_hz=0, instance=InstanceInfo(ask=False, environ={}))
collector = Collector()
first = collector.collect()
say("ready")
while True:
    hear()
    families = {block.family.name: block for block in watch.report()}
    counts = families["execution_status"]
    exported = [v for labels, v in zip(counts.rows.values, counts.values) if "completed" in labels]
    now = collector.collect()
    say([exported, [delta.nc_rows(0)[1][1] - delta.nc_rows(0)[0][1] for delta in deltas(first, now).values()]])
"""


def test_it_counts_from_its_own_zero(nodes):
    process, exporter = nodes.program(AGAIN), nodes.program(EXPORTER)
    assert exporter.ask(None) == [[0], [0]]
    assert process.ask(None) == "again"
    exporter.ask(None)  # the look at which the old slab turns out to be gone
    exported, since_the_first_look = exporter.ask(None)
    assert exported == [150]
    assert since_the_first_look == [150]
