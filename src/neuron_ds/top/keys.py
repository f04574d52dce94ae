"""The keys of ``top``, each declared once: bindings, help screen and bottom bar come from here, and the docs are held
to it."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """names: as Textual has them. shown: as people write them. action: what the main screen does, "" where the chosen
    block does it. short: for the bottom bar, "" where it isn't there."""

    names: tuple[str, ...]
    shown: str
    action: str
    what: str
    short: str = ""


KEYS = (
    Key(("q", "ctrl+c"), "q", "app.quit", "quit", "quit"),
    Key(("question_mark",), "?", "app.help", "this help", "help"),
    Key(("a",), "a", "tab(-1)", "the tab before", ""),
    Key(("d",), "d", "tab(1)", "the next tab", ""),
    Key(("1", "2", "3", "4", "5", "6", "7", "8", "9"), "1-9", "tab_number({})", "a tab by its number; 1 is all", "tab"),
    Key(("up", "down", "left", "right"), "arrows", "", "move in the block; left and right fold the tree"),
    Key(("pageup", "pagedown", "home", "end"), "page up/down, home, end", "", "move further"),
    Key(("tab",), "tab", "app.focus_next", "to the next block", "block"),
    Key(("shift+tab",), "shift+tab", "app.focus_previous", "to the block before"),
    Key(("enter",), "enter", "", "open what is chosen: a process, a core, a branch of the tree", "open"),
    Key(("escape",), "esc", "back", "back from a detail screen; clear the filter"),
    Key(("x",), "x", "tree", "the whole memory tree, open or folded", "tree"),
    Key(("f",), "f", "flops", "cores in TFLOP/s or in percent", "FLOP/s"),
    Key(("h",), "h", "history", "bars or histories, where there is no room for both"),
    Key(("i",), "i", "info", "details of the tab's process"),
    Key(("slash",), "/", "filter", "show only processes with this in their tag, or a pid that begins so", "filter"),
    Key(("s",), "s", "sort", "order processes by the next thing", "sort"),
    Key(("S",), "S", "reverse", "the other way round"),
    Key(("z",), "z", "zoom", "the block alone on the screen, and back", "zoom"),
    Key(("space",), "space", "app.pause", "hold the picture; what happens meanwhile is not lost", "pause"),
    Key(("plus", "equals_sign"), "+", "app.period(-1)", "look more often", ""),
    Key(("minus",), "-", "app.period(1)", "look less often", ""),
    Key(("ctrl+z",), "ctrl+z", "app.suspend_process", "to the background; fg brings it back"),
)

HELP_NOTES = (
    "Mouse: click a tab, a branch, a process or a core; click it again to open it. The wheel scrolls.",
    "Cores are logical ones. ! and HUNG: in use, and nothing completes. ~ and SLOW: lags the others of its process.",
    "- means that it is not known yet, or can't be; it is not 0. K M G T are powers of 1024.",
    "Latencies are of the executions seen since the last look. Rates are over the time between two looks.",
    "runtime vCPU: the share of all processors of the host that the runtimes' processes use.",
)


def bar_keys() -> list[tuple[str, str]]:
    """Key and word of the bottom bar, the most useful first."""
    order = ("q", "?", "1-9", "tab", "enter", "x", "f", "/", "s", "space", "z")
    shown = {key.shown: key.short for key in KEYS if key.short}
    named = [(name, shown[name]) for name in order]
    named.insert(3, ("a/d", "tabs"))
    return named
