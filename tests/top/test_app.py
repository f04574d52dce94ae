"""The application under the hands of a user: every key, the mouse, the filter, and what is on the screen after it."""

import re
from pathlib import Path

import pytest

from neuron_ds.errors import TableBusy
from neuron_ds.top import keys
from neuron_ds.top.pane import Pane
from neuron_ds.top.screens import DetailScreen
from tests.top.frames import Still, cell, device, event, fleet, frame, later, many, process, slab
from tests.top.stage import plays

#: Keys, the pane to look at, what stands there then, and what doesn't.
KEY_CASES = [
    ("?", ["question_mark"], "detail", "the whole memory tree, open or folded", ""),
    ("d", ["d"], "tabs", "2 bert-serving", ""),
    ("d goes to the process", ["d"], "cores", "average 50%", "HUNG"),
    ("d behind the last is the first", ["d"] * 6, "cores", "average 70%", ""),
    ("a", ["a"], "cores", "average -", "ND0"),
    ("1", ["d", "1"], "cores", "average 70%", ""),
    ("2", ["2"], "cores", "average 50%", ""),
    ("3", ["3"], "cores", "average 100%", ""),
    ("4", ["4"], "cores", "average 90%", "ND0"),
    ("5", ["5"], "vcpu", "runtime: user 5.0%  system 1.0%", ""),
    ("6", ["6"], "cores", "average -", "ND0"),
    ("7 is no tab", ["7"], "cores", "average 70%", ""),
    ("8 is no tab", ["8"], "cores", "average 70%", ""),
    ("9 is no tab", ["9"], "cores", "average 70%", ""),
    ("f", ["f"], "cores", "TFLOP/s  total 164.0", "%"),
    ("f again", ["f", "f"], "cores", "average 70%", "TFLOP"),
    ("x", ["x"], "tree", "▼ NC3", "▶"),
    ("x again", ["x", "x"], "tree", "▶ ND1", "NC0"),
    ("enter", ["home", "enter"], "tree", "▶ ND0", ""),
    ("left", ["home", "left"], "tree", "▶ ND0", ""),
    ("right", ["home", "left", "right"], "tree", "▼ ND0", ""),
    ("down", ["home", "down", "enter"], "tree", "▼ NC0", ""),
    ("up", ["home", "down", "up", "enter"], "tree", "▶ ND0", ""),
    ("end", ["end", "up", "enter"], "tree", "▼ NC3", ""),
    ("home", ["end", "home", "enter"], "tree", "▶ ND0", ""),
    ("pagedown", ["pagedown", "up", "enter"], "tree", "▼ NC3", ""),
    ("pageup", ["end", "pageup", "enter"], "tree", "▶ ND0", ""),
    ("s", ["s"], "processes", "by tag ↑", ""),
    ("S", ["S"], "processes", "by device ↓", ""),
    ("slash", ["slash", *"gpt", "enter"], "processes", "1  of 5 with 'gpt'", "bert"),
    ("escape", ["slash", *"gpt", "enter", "escape"], "processes", "bert", "with"),
    ("escape leaves the tab", ["2", "escape"], "cores", "average 70%", ""),
    ("space", ["space"], "header", "PAUSED", ""),
    ("space again", ["space", "space"], "header", "every 1 s", "PAUSED"),
    ("plus", ["plus"], "header", "every 0.5 s", ""),
    ("equals_sign", ["equals_sign"], "header", "every 0.5 s", ""),
    ("minus", ["minus"], "header", "every 2 s", ""),
    ("minus no further", ["minus"] * 20, "header", "every 60 s", ""),
    ("plus no further", ["plus"] * 20, "header", "every 0.1 s", ""),
    ("i", ["2", "i"], "detail", "Process bert-serving  pid 101", ""),
    ("tab", ["tab", "home", "enter"], "detail", "Process bert-serving", ""),
    ("shift+tab", ["shift+tab", "home", "right", "right", "enter"], "detail", "Core ND0 NC2", ""),
]


@pytest.mark.parametrize(("keys", "pane", "there", "gone"), [c[1:] for c in KEY_CASES], ids=[c[0] for c in KEY_CASES])
@plays(fleet(), size=(120, 60))
async def test_a_key(stage, keys, pane, there, gone):
    await stage.press(*keys)
    text = stage.text(pane)
    assert there in text
    if gone:
        assert gone not in text


def test_every_key_is_pressed():
    pressed = {name for case in KEY_CASES for name in case[1]} | {
        "q",
        "ctrl+c",
        "ctrl+z",
        "h",
        "z",
    }  # these: further down
    assert {name for key in keys.KEYS for name in key.names} <= pressed


def test_every_key_is_bound():
    """What the help tells is what is bound, and the other way round."""
    from neuron_ds.top.app import Top
    from neuron_ds.top.main import MainScreen

    bound = {k for where in (Top, MainScreen, Pane) for b in where.BINDINGS for k in b.key.split(",")}
    assert bound | {"tab", "shift+tab"} == {name for key in keys.KEYS for name in key.names}


def test_every_key_is_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "top.md").read_text()
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", page.split("## Keys")[1].split("## ")[0], re.MULTILINE)
    assert rows == [(key.shown, key.what) for key in keys.KEYS]


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
@plays(fleet())
async def test_quit(stage, key):
    await stage.pilot.press(key)
    await stage.pilot.pause()
    assert stage.app.return_value == 0
    assert not stage.app.is_running or stage.app._exit


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
@plays(fleet())
async def test_quit_from_the_help(stage, key):
    await stage.press("question_mark")
    await stage.pilot.press(key)
    assert stage.app._exit


@plays(fleet(), size=(80, 24))
async def test_h_shows_histories_where_there_is_no_room(stage):
    many_cores = device(0, [cell(0, i, utilization=0.5) for i in range(8)])
    stage.app._live.frames = [frame([many_cores], [])]
    await stage.look()
    assert "█" in stage.lines("cores")[2]
    await stage.press("h")
    assert "▃▅  50%" in stage.lines("cores")[2]
    await stage.press("h")
    assert "▃▅  50%" not in stage.lines("cores")[2]


@plays(many(), size=(80, 24))
async def test_z_shows_one_block_alone(stage):
    stage.focus("cores")
    await stage.press("z")
    assert [line[:4] for line in stage.lines("cores")[2:]] == [f"ND{i}".ljust(4) for i in range(16)]
    assert not stage.pane("processes").display
    await stage.press("z")
    assert stage.pane("processes").display
    await stage.press("z", "escape")
    assert stage.pane("processes").display


# --- focus and choosing


@plays(fleet())
async def test_the_tree_has_the_arrows_at_first(stage):
    assert stage.app.screen.focused.id == "tree"
    await stage.press("tab")
    assert stage.app.screen.focused.id == "processes"


@plays(fleet())
async def test_left_on_a_folded_branch_goes_to_its_parent(stage):
    await stage.press("home", "down", "left")
    assert stage.pane("tree").chosen == "0"


@plays(many(), size=(80, 24))
async def test_what_is_chosen_stays_in_sight(stage):
    stage.focus("processes")
    await stage.press(*["down"] * 12)
    pane = stage.pane("processes")
    assert pane.chosen == "1012"
    assert "worker-012" in stage.text("processes")
    assert "↑" in stage.lines("processes")[0]
    await stage.press("home")
    assert "worker-000" in stage.text("processes")


@plays(fleet())
async def test_a_core_is_chosen_with_all_four_arrows(stage):
    stage.focus("cores")
    await stage.press("right", "down", "right", "right", "left", "up")
    assert stage.pane("cores").chosen == "0/2"
    await stage.press("enter")
    assert isinstance(stage.app.screen, DetailScreen)
    assert "Core ND0 NC2  trn2  physical 4, 5" in stage.text("detail")
    assert "hung" in stage.text("detail")
    await stage.press("escape")
    assert stage.app.screen.focused.id == "cores"


# --- the mouse


@plays(fleet())
async def test_a_click_on_a_tab_chooses_it(stage):
    await stage.click("tabs", "gpt2")
    assert "average 90%" in stage.text("cores")
    await stage.click("tabs", "All")
    assert "average 70%" in stage.text("cores")


@plays(fleet())
async def test_a_click_on_a_branch_folds_it(stage):
    await stage.click("tree", "ND0")
    assert "▶ ND0" in stage.text("tree")


@plays(fleet())
async def test_a_second_click_on_a_process_opens_it(stage):
    await stage.click("processes", "vit-hung")
    assert stage.pane("processes").chosen == "202"
    await stage.click("processes", "vit-hung")
    assert "Process vit-hung  pid 202" in stage.text("detail")


@plays(fleet())
async def test_a_second_click_on_a_core_opens_it(stage):
    await stage.click("cores", "HUNG", times=2)
    assert "Core ND0 NC2" in stage.text("detail")


@plays(many(), size=(80, 24))
async def test_the_wheel_scrolls(stage):
    pane = stage.pane("processes")
    assert pane.lines[2].split()[0] == "worker-000"
    pane.on_mouse_scroll_down(type("Wheel", (), {"stop": lambda self: None})())
    await stage.pilot.pause()
    assert pane.lines[2].split()[0] == "worker-003"


# --- the filter


@plays(fleet())
async def test_the_filter_narrows_while_it_is_written(stage):
    await stage.press("slash", *"30")
    assert "gpt2" in stage.text("processes")
    assert "bert" not in stage.text("processes")
    await stage.press("backspace", "backspace")
    assert "bert" in stage.text("processes")


@plays(fleet())
async def test_letters_in_the_filter_are_no_keys(stage):
    await stage.press("slash", *"qfx")
    assert not stage.app._exit
    assert stage.app.view.filter == "qfx"
    assert "no process has 'qfx' in its tag" in stage.text("processes")
    await stage.press("escape")
    assert stage.app.view.filter == ""
    assert "TFLOP" not in stage.text("cores")


@plays(fleet())
async def test_tabs_and_events_follow_the_filter(stage):
    await stage.press("slash", *"gone", "enter")
    assert "2 gone" in stage.text("tabs")
    assert "bert" not in stage.text("tabs") + stage.text("events")
    assert "died without" in stage.text("events")
    assert "1 of 5 processes" in stage.text("header")
    assert "average 70%" in stage.text("cores")  # a core is never hidden


# --- frames that come and go


@plays(fleet())
async def test_the_tab_of_a_process_that_leaves_gives_way(stage):
    await stage.press("2")
    stage.app._live.frames = [later(fleet(), processes=fleet().processes[1:])]
    await stage.look()
    assert "average 70%" in stage.text("cores")
    assert "bert" not in stage.text("tabs")


@plays(fleet())
async def test_a_held_picture_goes_on_where_it_is_by_then(stage):
    await stage.press("space")
    news = later(fleet(), seconds=5, events=(event(9, "error", "oob +1: out of bounds", 101, "bert", counter="oob"),))
    stage.app._live.frames = [news]
    await stage.look()
    assert "oob" not in stage.text("events")
    await stage.press("space")
    assert "oob +1" in stage.text("events")


@plays(fleet())
async def test_a_detail_screen_lives(stage):
    await stage.press("2", "i")
    assert "200.5" in stage.text("detail")
    faster = process(101, "bert-serving", [slab(101, 0, 0, [cell(0, 0, executions_s=777.0)])])
    stage.app._live.frames = [later(fleet(), processes=(faster,))]
    await stage.look()
    assert "777.0" in stage.text("detail")
    stage.app._live.frames = [later(fleet(), processes=())]
    await stage.look()
    assert "not there any more" in stage.text("detail")


@plays(frame([], [], empty="no device; start a producer (neuron-ds simulate is one)"), size=(80, 24))
async def test_why_it_is_empty(stage):
    assert "no device; start a producer" in stage.text("cores")
    assert "neuron-ds simulate" in stage.text("processes")
    for name in [name for key in keys.KEYS for name in key.names if name not in ("q", "ctrl+c", "ctrl+z")]:
        await stage.press(name)  # nothing to do is no reason to fall over
    assert not stage.app._exit


@plays(fleet())
async def test_only_lines_that_changed_are_drawn(stage):
    drawn = []
    for name in ("cores", "processes", "tree", "events", "memory"):
        pane = stage.pane(name)
        paint = pane.render_line
        pane.render_line = lambda y, name=name, paint=paint: (drawn.append((name, y)), paint(y))[1]
    one = process(101, "bert-serving", fleet().processes[0].slabs, errors=8)
    stage.app._live.frames = [later(fleet(), processes=(one, *fleet().processes[1:]))]
    await stage.look()
    assert drawn == [("processes", 2)]


@plays(fleet())
async def test_a_source_that_breaks_ends_it_with_one_line(stage):
    def breaks():
        raise TableBusy("is locked", device=3)

    stage.app._live.frame = breaks
    assert await stage.app.look() is False
    assert stage.app.return_value == 2
    assert re.fullmatch("device 3: is locked", stage.app.problem)


def test_it_looks_by_itself():
    import asyncio

    from neuron_ds.top.app import Top

    async def main():
        still = Still(*(later(fleet(), i) for i in range(4)))
        app = Top(still, period_s=0.1)
        async with app.run_test() as pilot:
            async with asyncio.timeout(20):
                while still.looks < 4:
                    await pilot.pause(0.01)

    asyncio.run(main())


# --- sizes


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (60, 16), (40, 10), (20, 5), (300, 100)])
@plays(fleet(), size=(80, 24))
async def test_it_can_be_resized(stage, size):
    await stage.pilot.resize_terminal(*size)
    await stage.pilot.pause()
    await stage.look()
    screen = stage.screen
    assert (len(screen[0]), len(screen)) == size
    assert screen[0].startswith("neuron-ds top"[: size[0] - 12])
    assert screen[-1].startswith("q quit")


@plays(many(), size=(80, 24))
async def test_no_core_is_hidden_at_80_by_24(stage):
    """What is not on the screen can be scrolled to, and the title says how much that is."""
    assert "↓" in stage.lines("cores")[0]
    stage.focus("cores")
    seen = set()
    for _ in range(16):
        for line in stage.lines("cores")[2:]:
            assert len(re.findall(r"\d+%", line)) == 4
            seen.add(line.split()[0])
        await stage.press("down")
    assert seen == {f"ND{i}" for i in range(16)}
