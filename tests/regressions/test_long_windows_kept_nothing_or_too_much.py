"""With windows of minutes the exporter kept one look, so that no rule could find anything, and every latency it saw."""

import pytest

from neuron_ds.collect import Latencies
from neuron_ds.datastore import publish
from neuron_ds.driver import Owner
from neuron_ds.exporter import accumulate, watch
from tests.diagnose.stage import look


@pytest.mark.parametrize("window_s", [0.1, 5.0, 60.0, 300.0, 400.0, 3600.0])
def test_several_windows_are_kept(window_s):
    history = watch._history(window_s)
    for i in range(40):
        history.add(look(i * window_s))
    assert len(history) >= 5
    assert history.span_s >= min(38 * window_s, max(300, 5 * window_s))


def test_latencies_of_a_window_are_bounded(driver, monkeypatch):
    monkeypatch.setattr(accumulate, "MOST_LATENCIES", 100)
    words = ((0,) * 95,)
    followed = accumulate.Followed(Owner(0, 0, 1, True), None, words, words, 0)
    with publish(0, driver=driver) as producer:
        snapshot = producer.snapshot()
    for _ in range(50):
        followed.read(words, snapshot, Latencies(tuple(range(30)), ()).total_us, 1)
    assert 100 <= len(followed.latencies_us()) < 130
    followed.end_window()
    followed.read(words, snapshot, (7,), 2)
    assert 100 <= len(followed.latencies_us()) < 130  # of the window that ended; the next one fills anew
    followed.end_window()
    assert list(followed.latencies_us()) == [7]
