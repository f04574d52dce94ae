"""Draw the picture of ``neuron-ds top`` for the docs: simulated producers, some looks, the last screen as an SVG.

``python tools/picture_top.py docs/pictures/top.svg`` (``make pictures``). Needs the extra ``top``.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from rich.style import Style

import picture
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.live.picture import Live
from neuron_ds.live.source import LiveSource
from neuron_ds.simulate import Fleet, plan
from neuron_ds.top.app import Top

FLEET = ("inference*2", "training@1/0-3", "hung@1/4-5,after_s=1", "straggling@1/6-7", "erring,share=0.005")
LOOKS, PERIOD_S = 16, 1.0
#: Colours, and what stands for them in picture.COLORS.
CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def code(style: Style | None) -> str:
    """The one attribute that a picture shows of a style."""
    if style is None:
        return "0"
    if style.color is not None and style.color.name in CODES:
        return CODES[style.color.name]
    return "1" if style.bold or style.reverse else "2" if style.dim else "0"


async def screen(live: Live) -> list[str]:
    """The lines of the screen after some looks, with their colours."""
    app = Top(live, looks=False)
    async with app.run_test(size=(picture.COLUMNS, picture.ROWS)) as pilot:
        for _ in range(LOOKS):
            await app.look()
            await asyncio.sleep(PERIOD_S)
        await app.look()
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        return ["".join(f"\x1b[{code(s.style)}m{s.text}" for s in strip).rstrip() for strip in strips]


def main(target: str) -> None:
    picture.COLORS["36"] = "#56d4dd"
    with (
        tempfile.TemporaryDirectory(prefix="neuron-ds-picture-") as directory,
        Fleet(plan(FLEET, devices=2, seed=7), directory=directory),
        Live(LiveSource(SoftwareDriver(directory))) as live,
    ):
        lines = asyncio.run(screen(live))
    Path(target).write_text(picture.svg(lines))


if __name__ == "__main__":
    main(sys.argv[1])
