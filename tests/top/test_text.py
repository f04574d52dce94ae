"""Text for character cells: widths, bars, sparklines, compact figures."""

import pytest

from neuron_ds.top import text as t


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("", 0), ("日本", 4), ("e\u0301", 1), ("█▏", 2), ("a\u200bb", 2)]
)
def test_a_width_is_that_of_the_cells(text, width):
    assert t.width_of(text) == width


@pytest.mark.parametrize("text", ["", "tag", "a long tag of a process", "日本語のタグ", "ma\u0301s"])
@pytest.mark.parametrize("width", [0, 1, 2, 5, 12, 30])
def test_columns_are_exactly_so_wide(text, width):
    assert t.width_of(t.left(text, width)) == width
    assert t.width_of(t.right(text, width)) == width
    assert t.width_of(t.cut(text, width)) <= width


def test_what_is_cut_off_is_told():
    assert t.cut("bert-serving", 6) == "bert-…"
    assert t.cut("bert", 4) == "bert"
    assert t.cut("日本語", 4) == "日…"


def test_parts_flow_over_lines():
    parts = [[("aaaa", "")], [("bbbb", "dim")], [("cccc", "")]]
    lines = t.flow(parts, width=14, indent=4)
    assert [t.plain(tuple(line)) for line in lines] == ["aaaa  bbbb", "cccc"]


@pytest.mark.parametrize(
    ("part", "drawn"), [(0, "    "), (1, "████"), (0.5, "██  "), (0.01, "▏   "), (7, "████"), (-1, "    ")]
)
def test_a_bar_is_a_part_of_its_width(part, drawn):
    assert t.bar(part, 4) == drawn


def test_a_sparkline_tells_zero_and_nothing_apart():
    assert t.spark((None, 0.0, 0.5, 1.0), 6, 1.0) == "   ▁▅█"
    assert t.spark((0.001,), 1, 1.0) == "▂"
    assert t.spark((1.0, 2.0, 4.0), 2) == "▅█"
    assert t.spark((0.0, 0.0), 2) == "▁▁"
    assert t.spark((), 3) == "   "


def test_a_chart_stands_on_its_lowest_line():
    assert t.chart((None, 0.0, 0.5, 1.0), 4, 2, 1.0) == ["   █", " ▁██"]


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (t.share(None), "   -"),
        (t.share(0.374), " 37%"),
        (t.share(1.0), "100%"),
        (t.fine_share(0.0214), "2.1%"),
        (t.fine_share(None), "-"),
        (t.rate(None), "-"),
        (t.rate(0), "0.0"),
        (t.rate(9999.94), "9999.9"),
        (t.rate(12_345), "12.3k"),
        (t.rate(398_700_000), "398.7M"),
        (t.tera(None), "-"),
        (t.tera(0), "0"),
        (t.tera(1e8), "<0.001"),
        (t.tera(8.3261e12), "8.326"),
        (t.tera(91.25e12), "91.2"),
        (t.size(0), "0"),
        (t.size(None), "-"),
        (t.size(1023), "1K"),
        (t.size(1536), "1.5K"),
        (t.size(157 << 20), "157M"),
        (t.size(96 << 30), "96G"),
        (t.size((1 << 64) - 1), "16E"),
        (t.latency(None), "-"),
        (t.latency(0), "0us"),
        (t.latency(999), "999us"),
        (t.latency(16_700), "16.7ms"),
        (t.latency(116_100), "116ms"),
        (t.latency(1_200_000), "1.2s"),
        (t.plural(1, "process"), "1 process"),
        (t.plural(2, "process"), "2 processes"),
        (t.plural(0, "device"), "0 devices"),
    ],
)
def test_figures_are_short(figure, text):
    assert figure == text


def test_plain_signs_are_ascii():
    drawn = t.bar(0.43, 9) + t.spark([i / 7 for i in range(8)], 8, 1.0) + "▼▶…·↑↓"
    assert drawn.translate(t.PLAIN_SIGNS).isascii()
