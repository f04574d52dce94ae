"""The page: well formed, self-contained, its data those of the survey, and what processes wrote in it only text."""

import json
import re
from html.parser import HTMLParser

import pytest

from neuron_ds.record import Recording
from neuron_ds.report import page, survey
from neuron_ds.report.charts import Time, heatmap, lines
from neuron_ds.report.columns import MOST_COLUMNS
from tests.cli.helpers import run
from tests.recordings import record
from tests.report.conftest import HOSTILE

VOID = {"meta", "link", "img", "br"}
#: All elements that a report may have.
ELEMENTS = set(
    "html head meta title style body main h1 h2 h3 p dl div dt dd table caption thead tbody tr th td details summary "
    "ul li span script svg g path rect text".split()
)


class Parsed(HTMLParser):
    """A page as a parser sees it: its elements, its attributes, and the text in each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, dict]] = []
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop()[0] == name

    def handle_data(self, text):
        if self.open:
            self.texts.append((self.open[-1][0], text))

    def handle_comment(self, text):
        raise AssertionError("a comment that nobody wrote")

    @property
    def data(self) -> dict:
        return json.loads(next(text for name, text in self.texts if name == "script"))

    def said(self, name: str) -> list[str]:
        return [text for of, text in self.texts if of == name]


@pytest.fixture(scope="module")
def text(data) -> str:
    return page(data, HOSTILE[0])


@pytest.fixture(scope="module")
def parsed(text) -> Parsed:
    return Parsed(text)


def test_the_data_are_in_the_page(parsed, data):
    assert parsed.data == json.loads(json.dumps(data))


def test_it_holds_nothing_but_what_a_report_is_made_of(parsed):
    assert {name for name, _ in parsed.elements} <= ELEMENTS
    names = {key for _, attributes in parsed.elements for key in attributes}
    assert not [key for key in names if key.startswith("on") or key in ("src", "href", "style", "action", "xlink:href")]


def test_only_the_data_are_in_a_script_and_they_do_not_run(parsed):
    scripts = [attributes for name, attributes in parsed.elements if name == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}]


def test_the_policy_allows_styles_and_nothing_else(parsed):
    policies = [a["content"] for name, a in parsed.elements if name == "meta" and "http-equiv" in a]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


def test_it_names_no_other_place(text):
    assert re.findall(r"https?://|//\w|url\(|@import", text.replace("\\/", "")) == []


def test_what_a_process_wrote_is_text(parsed, data):
    for process in data["processes"]:
        assert any(process["tag"] in cell for cell in parsed.said("td"))
    assert "\x1b" not in "".join(text for _, text in parsed.texts)


def test_every_picture_has_a_name_and_numbers_behind_it(parsed):
    pictures = [a for name, a in parsed.elements if name == "svg" and a.get("aria-hidden") != "true"]
    assert len(pictures) >= 6
    assert all(a["role"] == "img" and a["aria-label"] for a in pictures)
    assert sum(name == "table" for name, _ in parsed.elements) >= len(pictures)


def test_tables_show_the_numbers_of_the_data(parsed, data):
    cells = parsed.said("td")
    for core in data["cores"]:
        assert f"{100 * core['mean_utilization']:.1f} %" in cells
    for process in data["processes"]:
        assert f"{process['executions']:,}" in cells
        assert process["end"] in cells or process["end"] in parsed.said("span")
    for finding in data["findings"]:
        assert finding["message"] in cells


def test_times_are_those_of_the_wall_clock(parsed, data):
    start = data["recording"]["start"]
    assert start[:19].replace("T", " ") in parsed.said("dd")
    hung = next(f for f in data["findings"] if f["kind"] == "hung-core")
    assert hung["from"][11:19] in parsed.said("td")


def test_gaps_and_late_ticks_are_said(parsed):
    said = " ".join(parsed.said("p"))
    assert "1 gap without ticks, the longest of 6 s" in said
    assert "1 were late by a millisecond or more, the worst by 0.04 s" in said


def test_what_is_not_whole_is_said(made, tmp_path):
    with open(made.path, "rb") as file:
        data = file.read()
    (tmp_path / "a.mcap").write_bytes(data[: len(data) // 2])
    with Recording(str(tmp_path / "a.mcap")) as recording:
        found = survey(recording)
    assert found["recording"]["damage"]
    assert 0 < found["recording"]["ticks"] < 36
    notes = " ".join(Parsed(page(found, "a")).said("p"))
    assert f"The recording is not whole: {found['recording']['damage'][0]}" in notes


def test_a_recording_without_processes_says_so(root, tmp_path):
    made = record(str(tmp_path / "a.mcap"), root, {}, 2)
    with Recording(made.path) as recording:
        parsed = Parsed(page(survey(recording), "a"))
    assert any("No process published" in text for text in parsed.said("p"))


def test_one_tick_is_enough_for_a_page(root, tmp_path):
    made = record(str(tmp_path / "a.mcap"), root, {"inference": {}}, 0)
    with Recording(made.path) as recording:
        parsed = Parsed(page(survey(recording), "a"))
    assert parsed.data["recording"]["ticks"] == 1


def test_an_hour_is_no_larger_than_ten_minutes(root, tmp_path):
    sizes = []
    for seconds, name in ((600, "a"), (3600, "b")):
        made = record(str(tmp_path / name), f"{root}-{name}", {"idle": {}}, seconds, rate_hz=1)
        with Recording(made.path) as recording:
            found = survey(recording)
        assert found["columns"]["count"] <= MOST_COLUMNS
        sizes.append(len(page(found, name)))
    assert sizes[1] < sizes[0] * 1.1


def test_the_command(made, tmp_path):
    done = run("report", made.path, "-o", tmp_path / "r.html", directory=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    parsed = Parsed((tmp_path / "r.html").read_text())
    assert parsed.said("h1") == ["Report: a.mcap"]
    assert len(parsed.data["cores"]) == 8


# --- Pictures


def test_neighbours_that_look_alike_are_one_shape():
    time = Time(600, lambda s: f"{s:.0f}")
    svg = heatmap("x", [("core", "core", [0.5] * 300 + [None] * 10 + [0.51] * 290)], time)
    assert len(re.findall(r"M\d", svg)) == 3 + 7  # three stretches, and the ticks of the axis
    assert svg.count('class="hx"') == 1


def test_unknown_values_leave_a_gap_in_a_line():
    svg = lines("x", [("a", [1.0, 1.0, None, 2.0])], Time(4, str), str)
    (path,) = re.findall(r'class="l0" d="([^"]*)"', svg)
    assert re.findall("[MHV]", path) == ["M", "H", "M", "H"]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_labels_are_escaped(hostile):
    svg = heatmap(hostile, [(hostile, hostile, [1.0])], Time(1, lambda s: hostile))
    svg += lines(hostile, [(hostile, [1.0])], Time(1, str), lambda v: hostile)
    assert {name for name, _ in Parsed(f"<main>{svg}</main>").elements} <= {"main", "svg", "g", "title", "path", "text"}
