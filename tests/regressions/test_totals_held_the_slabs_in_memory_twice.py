"""Who read slabs and their device's totals had each slab in its resident memory twice, 17 MiB of a full machine."""

from neuron_ds import layout
from neuron_ds.collect import Collector
from neuron_ds.datastore import publish
from tests.processes import resident_kib, result_of


def test_totals_leave_no_slab_behind(driver):
    with publish(0, driver=driver) as producer:
        producer.core(0).inference_count.add(5)

        def read(talk):
            driver.totals(0)
            totals = resident_kib("/slabs")
            with Collector(driver) as collector:
                sample = collector.collect()
                assert sample.devices[0].totals.nc(0, layout.NC_BY_NAME["inference_count"].index) == 5
                return totals, resident_kib("/slabs")

        totals, both = result_of(read)
    assert totals == 0
    assert 0 < both < 2 * layout.REQUIRED_SIZE / 1024
