"""Numbers of thousands of digits, and expressions that Python's ``re`` refuses in other ways, ended in a traceback."""

import json
import os

import pytest

from neuron_ds.errors import BadValue
from neuron_ds.monitor.config import MAX_FILE_BYTES, duration_ns, load

DIGITS = "9" * 5000


def rule(expression: str) -> str:
    return json.dumps({"neuron_runtimes": [{"tag_filter": expression}]})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'{{"period": {DIGITS}}}', "a number in it is too long"),
        (f'{{"period": "{DIGITS}s"}}', "period: '9+…' is no period"),
        (f'{{"period": "{DIGITS[:400]}.5s"}}', "period: '9+…' is no period"),
        (rule("a{99999999999999}"), r"\[0\].tag_filter: 'a\{9+\}' is no regular expression: the repetition number"),
        (rule("(" * 5000 + ")" * 5000), r"\[0\].tag_filter: '\(+…' is no regular expression: it is nested"),
        (rule("[[:alpha:]]"), r"\[0\].tag_filter: .* is no regular expression: Possible nested set"),
        (" " * (MAX_FILE_BYTES + 1), "more than 1 MiB"),
    ],
)
def test_one_line_that_names_file_and_place(tmp_path, text, told):
    path = tmp_path / "monitor.json"
    path.write_text(text)
    with pytest.raises(BadValue, match=told) as raised:
        load(str(path))
    assert str(path) in str(raised.value)
    assert len(str(raised.value)) < 300 + len(str(path))


def test_a_file_without_end():
    with pytest.raises(BadValue, match="more than 1 MiB"):
        load("/dev/zero")
    assert os.path.exists("/dev/zero")


def test_durations_as_long_as_they_can_be():
    assert duration_ns("0000000000000000000000000000000000000005s") == 5_000_000_000
    assert duration_ns("1.50000000000000000000s") == 1_500_000_000
    for text in (f"{DIGITS}h", f"{DIGITS}.{DIGITS}s", f".{DIGITS}s"):
        with pytest.raises(BadValue, match="is no period"):
            duration_ns(text)
