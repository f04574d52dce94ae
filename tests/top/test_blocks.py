"""What the blocks say of a Frame: figures, marks, order, filter. No terminal and no Textual."""

import json
import re

import pytest

from neuron_ds.live.frame import Frame
from neuron_ds.top import blocks, details, plain, tables
from neuron_ds.top.blocks import View
from neuron_ds.top.text import plain as text_of
from neuron_ds.top.text import width_of
from tests.top.frames import MIB, cell, device, event, fleet, frame, idle, many, process, slab


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def lines(block):
    return [text_of(line) for line in block.fixed] + [text_of(row.line) for row in block.rows]


# --- cores


def test_a_line_per_device_and_a_column_per_core():
    title, heading, nd0, nd1, error = lines(blocks.cores(fleet(), View(), 100))
    assert title == "NeuronCore utilization  average 70%  ! 1 hung  ~ 1 slow"
    assert heading.split() == ["NC0", "NC1", "NC2", "NC3"]
    assert re.findall(r"\d+%", nd0) == ["25%", "75%", "100%", "0%"]
    assert re.findall(r"\d+%", nd1) == ["90%"] * 4
    assert nd0.startswith("ND0  ")
    assert error == "     ! 2 slabs can't be read"


def test_marks_are_there_without_colours():
    _, _, nd0, nd1, _ = lines(blocks.cores(fleet(), View(), 100))
    assert "!HUNG" in nd0
    assert nd1.count("~SLOW") == 1


@pytest.mark.parametrize(("width", "cores"), [(80, 4), (80, 8), (45, 8), (80, 16), (24, 8), (40, 2)])
def test_no_core_is_left_out_and_no_line_too_long(width, cores):
    cells = [cell(0, c, utilization=1.0) for c in range(cores)]
    block = blocks.cores(frame([device(0, cells)], []), View(), width)
    drawn = "".join(lines(block)[2:])
    assert drawn.count("100%") == cores
    assert all(width_of(line) <= width for line in lines(block)[1:])
    assert [spot.key for row in block.rows for spot in row.spots] == [f"0/{c}" for c in range(cores)]


def test_a_spot_is_where_its_core_is_drawn():
    block = blocks.cores(fleet(), View(), 80)
    for row in block.rows[:2]:
        for spot in row.spots:
            assert "%" in text_of(row.line)[spot.start : spot.end]


def test_histories_stand_beside_bars_where_there_is_room():
    assert "▁▄▆" in lines(blocks.cores(fleet(), View(), 80))[2]
    assert "▁▄" not in lines(blocks.cores(fleet(), View(), 40))[2]


def test_flops_are_in_tera():
    title, _, nd0, nd1, _ = lines(blocks.cores(fleet(), View(flops=True), 100))
    assert title.startswith("NeuronCore TFLOP/s  total 164.0")
    assert re.findall(r"\d\S*", nd0)[1:] == ["2.000", "2.000", "0", "0"]
    assert nd1.count("40.0") == 4


def test_a_process_has_its_cores_and_the_others_stay_in_their_places():
    title, _, nd0 = lines(blocks.cores(fleet(), View(process="202"), 100))
    assert title == "NeuronCore utilization  average 100%  ! 1 hung"
    assert re.findall(r"\d+%|(?<= )-", nd0) == ["-", "-", "100%", "-"]


def test_what_is_not_known_is_no_zero():
    unknown = cell(0, 0)._replace(state="unknown", utilization=None, flops_s=None)
    block = blocks.cores(frame([device(0, [unknown])], []), View(), 80)
    assert lines(block)[0] == "NeuronCore utilization  average -"
    assert "%" not in lines(block)[2]


def test_a_device_without_cores_says_why():
    block = blocks.cores(frame([device(3, [], "may not be read")], []), View(), 80)
    assert lines(block)[2] == "ND3  ! may not be read"


# --- vCPU, memory, header, tabs


def test_vcpu_of_the_host_and_of_the_runtimes():
    assert text_of(blocks.vcpu(fleet(), View())) == (
        "vCPU (16)  system: user 12.3%  system 2.1%   runtime: user 25.0%  system 5.0%"
    )
    assert text_of(blocks.vcpu(fleet(), View(process="101"))).endswith("runtime: user 5.0%  system 1.0%")


def test_memory_of_all_and_of_one():
    host, dev = (text_of(line) for line in blocks.memory(fleet(), View(), 120))
    assert host == "Host mem   total 768M  tensors 600M  constants 120M  DMA buffers 48M  application 0"
    assert dev.removeprefix("Device mem ").split("  ") == [
        "total 33.9G", "tensors 31.4G", "constants 1.7G", "model code 424M", "runtime memory 212M", "scratchpad 206M",
    ]  # fmt: skip
    host, dev = (text_of(line) for line in blocks.memory(fleet(), View(process="202"), 120))
    assert "total 128M" in host
    assert "total 110M" in dev


def test_memory_fits_80_columns():
    assert all(width_of(text_of(line)) <= 80 for line in blocks.memory(fleet(), View(), 80))


def test_the_header():
    view = View(period_s=0.5, paused=True, filter="bert")
    line = text_of(blocks.header(fleet(), view, "software driver", 120))
    assert line.startswith(
        "neuron-ds top  software driver  2 devices  1 of 5 processes  every 0.5 s  PAUSED  /bert  1 finding"
    )
    assert line.endswith(" 08:03:22")
    assert width_of(line) == 120


def test_tabs_show_the_chosen_one():
    crowd = many(processes=200)
    for number in (0, 7, 150, 199):
        row = blocks.tabs(crowd, View(process=f"{1000 + number}"), 80)
        assert f"worker-{number:03}" in text_of(row.line)
        assert width_of(text_of(row.line)) <= 80
        assert "reverse" in [look for text, look in row.line if f"worker-{number:03}" in text]
        for spot in row.spots[1:]:
            assert f"worker-{int(spot.key) - 1000:03}" in text_of(row.line)[spot.start : spot.end] or not spot.key


def test_the_first_nine_tabs_have_their_key():
    assert text_of(blocks.tabs(fleet(), View(), 120).line) == (
        "  1 All  2 bert-serving  3 vit-hung  4 gpt2-training  5 embedder  6 gone "
    )
    assert "10 worker-008" not in text_of(blocks.tabs(many(), View(), 300).line)


# --- processes


def test_what_a_process_does():
    _, heading, bert, *_ = lines(tables.processes(fleet(), View(), 80))
    assert heading.split() == ["TAG", "PID", "DEV", "UTIL", "EXEC/S", "P50", "P99", "ERRORS", "DEVMEM"]
    assert bert.split() == ["bert-serving", "101", "0", "50%", "200.5", "4.1ms", "16.7ms", "7", "220M"]


def test_more_columns_where_there_is_room():
    _, heading, bert, *_ = lines(tables.processes(fleet(), View(), 150))
    assert heading.split()[-6:] == ["HOSTMEM", "MODELS", "EXEC/S", "HISTORY", "P50", "HISTORY"]
    assert bert.split()[-4:] == ["128M", "2", "▃▅█", "███"]


def test_dead_and_unreadable_are_told_in_words():
    drawn = lines(tables.processes(fleet(), View(), 120))
    assert next(line for line in drawn if "gone" in line).split("  ")[-1] == "DEAD: its producer died"
    assert "    ! ND1 slot 2 UNREADABLE: another version: 9" in drawn
    assert drawn[3].startswith("! vit-hung")
    assert any(line.startswith("~ gpt2-training") for line in drawn)


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("device", "bert-serving"),
        ("tag", "bert-serving"),
        ("pid", "bert-serving"),
        ("utilization", "vit-hung"),
        ("executions", "bert-serving"),
        ("latency", "gpt2-training"),
        ("errors", "bert-serving"),
        ("memory", "gpt2-training"),
    ],
)
def test_order(sort, first):
    ordered = tables.ordered(fleet().processes, View(sort=sort))
    assert ordered[0].tag == first
    backwards = tables.ordered(fleet().processes, View(sort=sort, descending=True))
    key = tables.SORTS[sort]
    assert [key(p) for p in backwards] == [key(p) for p in ordered][::-1]


def test_every_order_comes_in_turn():
    seen, sort = [], "device"
    for _ in tables.SORTS:
        sort = tables.next_sort(sort)
        seen.append(sort)
    assert sorted(seen) == sorted(tables.SORTS)


@pytest.mark.parametrize(
    ("wanted", "pids"), [("bert", [101]), ("SERV", [101]), ("30", [303]), ("4", [404]), ("01", [])]
)
def test_a_filter_is_part_of_a_tag_or_the_beginning_of_a_pid(wanted, pids):
    assert [p.pid for p in blocks.processes_of(fleet(), View(filter=wanted))] == pids


def test_tags_of_two_cells_a_letter_stay_in_their_column():
    wide = process(7, "日本語のサービス名はとても長いです", [slab(7, 0, 0, [cell(0, 0)])])
    for line in lines(tables.processes(frame([], [wide, *fleet().processes[:1]]), View(), 80))[2:]:
        assert width_of(line) == 80


# --- the tree


def test_a_parent_is_the_sum_of_its_children():
    view = View(expanded=frozenset({"0", "0/0"}))
    nodes = tables.nodes_of(fleet(), view)
    nd0 = nodes[0]
    assert nd0.device_bytes == sum(child.device_bytes for child in nd0.children) == 330 * MIB
    assert nd0.host_bytes == sum(child.host_bytes for child in nd0.children)
    assert nd0.host_bytes == 384 * MIB  # three processes' slabs
    folded = tables.nodes_of(fleet(), View())
    assert [(n.key, n.device_bytes, n.host_bytes) for n in folded] == [
        (n.key, n.device_bytes, n.host_bytes) for n in tables.nodes_of(fleet(), View(expanded=frozenset({"0", "1"})))
    ]


def test_the_tree_of_a_process_is_its_own():
    for expanded in (frozenset(), frozenset({"0"})):
        nodes = tables.nodes_of(fleet(), View(process="202", expanded=expanded))
        assert [(n.label, n.device_bytes, n.host_bytes) for n in nodes] == [("ND0", 110 * MIB, 128 * MIB)]


# --- events


def test_events_the_newest_first():
    title, *rows = lines(blocks.events(fleet(), View(), 120))
    assert title == "Events  4  with 3 errors counted"
    assert rows[0] == "08:03:26 ! 505 gone          ND1       died without giving its slot back"
    assert rows[1].startswith("08:03:25 ! 202 vit-hung      ND0 NC2   hung-core")
    assert rows[2].startswith("08:03:24 ! 101 bert-serving  ND0 NC1   infer_timed_out +3: executions that")
    assert rows[3].startswith("08:03:23   101 bert-serving  ND0       began to publish")


def test_no_text_of_others_commands_the_terminal():
    evil = event(1, "error", "\x1b[2Joob", 101, "a\ttag")
    made = frame([device(0, [cell(0, 0)], "\x1b]0;title\x07")], [], [evil])
    assert all(line.isprintable() for line in plain.lines(made, "hand-made", 100))


def test_events_of_a_tab_are_its_process():
    rows = lines(blocks.events(fleet(), View(process="101"), 120))[1:]
    assert len(rows) == 2
    assert all("bert" in row for row in rows)


def test_nothing_happened():
    assert lines(blocks.events(frame([], []), View(), 80)) == ["Events", "nothing happened since the start"]


def test_what_is_over_says_so():
    over = event(1, "cleared", "hung-core: NC2", 202, "vit", severity="critical")
    assert "over: hung-core" in lines(blocks.events(frame([], [], [over]), View(), 80))[1]


# --- details


def test_a_process_in_detail():
    text = "\n".join(lines(details.process_block(fleet(), "202", 120)))
    found = "nothing; next: see its stack"
    for said in ("pid 202", "running", "! hung-core", found, "tag", "executions/s      0.0", "of 1 cores"):
        assert said in text
    assert re.search(r"^0 +1  2 +2$", text, re.MULTILINE), text  # its slab: device, slot, cores, models
    assert "not there any more" in "\n".join(lines(details.process_block(fleet(), "999", 120)))


def test_an_unreadable_slab_in_detail():
    assert "UNREADABLE: another version: 9" in "\n".join(lines(details.process_block(fleet(), "404", 120)))


def test_a_core_in_detail():
    text = "\n".join(lines(details.core_block(fleet(), 0, 2, 120)))
    for said in ("Core ND0 NC2  trn2  physical 4, 5", "hung", "! hung-core", "100.0%", "total 110M", "hung-core: NC2"):
        assert said in text
    assert "not there any more" in "\n".join(lines(details.core_block(fleet(), 7, 2, 120)))


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("made", [fleet(), many(2), frame([], [], empty="nothing"), frame([device(0, [])], [])])
def test_nothing_falls_over_at_any_width(made: Frame, width):
    for view in (View(), View(flops=True), View(history=True), View(process="101"), View(filter="x")):
        blocks.cores(made, view, width)
        blocks.tabs(made, view, width)
        tables.processes(made, view, width)
        tables.tree(tables.nodes_of(made, view), view.expanded, width)
        assert width_of(text_of(blocks.header(made, view, "software driver", width))) == width
        for block in (blocks.events(made, view, width), details.core_block(made, 0, 0, width)):
            assert block.height


# --- plain


def test_a_plain_picture_has_it_all():
    text = "\n".join(plain.lines(fleet(), "hand-made", 120))
    said = (
        "neuron-ds top  hand-made|average 70%|!HUNG|~SLOW|vCPU (16)|Host mem|▼ ND1|bert-serving|DEAD: its producer died"
    )
    for part in [*said.split("|"), "! hung-core: NC2 is in use", "infer_timed_out +3"]:
        assert part in text
    assert "\x1b" not in text


def test_a_plain_picture_in_ascii():
    assert "\n".join(plain.lines(fleet(), "hand-made", 120, signs=False)).isascii()


def test_a_plain_picture_of_nothing_is_the_reason():
    made = list(plain.lines(frame([], [], empty="no device; start a producer"), "software driver", 80))
    assert made[2:] == ["no device; start a producer"]


def test_the_picture_as_json():
    made = json.loads(json.dumps(plain.as_dict(fleet())))
    assert made["period_s"] == 1.0
    assert made["devices"][0]["cells"][2] | {"memory": None} == {
        "device": 0, "core": 2, "physical": [4, 5], "state": "hung", "utilization": 1.0, "flops_s": 0.0,
        "executions_s": 0.0, "errors_s": 0.0, "memory": None,
    }  # fmt: skip
    assert made["findings"][0]["kind"] == "hung-core"
    assert made["events"][1]["counter"] == "infer_timed_out"
    assert not {"sample", "look", "earlier"} & made.keys()
    assert idle(0, 3).core == made["devices"][0]["cells"][3]["core"]
