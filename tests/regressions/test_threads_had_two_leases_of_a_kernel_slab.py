"""Threads that published first at the same time on a real device each mapped the slab and had a lease of their own: the
first close released it, and the others went on writing to what was nobody's."""

import os
import subprocess
import sys

from tests.standin.build import build, environment, make_folder

SOURCE = """
import sys, threading
from neuron_ds import datastore
from neuron_ds.driver.kernel import KernelDriver
from tests.processes import run_threads

sys.setswitchinterval(1e-6)
driver = KernelDriver()
for _ in range(40):
    producers = []
    errors = run_threads(lambda: producers.append(datastore.publish(0, driver=driver)), 6)
    assert errors == [], errors
    producers[0].close()
    assert [p.closed for p in producers] == [True] * 6
    for producer in producers:
        producer.close()
"""


def test_the_first_close_ends_all(tmp_path):
    library = build()
    make_folder(tmp_path, devices=1, cores=8, library=library)
    done = subprocess.run(
        [sys.executable, "-c", SOURCE], env=os.environ | environment(library, tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
