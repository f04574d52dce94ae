"""The application on a stage: Frames made by hand or a Live, a screen of a size, keys and clicks, and what it shows."""

import asyncio
import functools
import inspect

from neuron_ds.top.app import Top
from neuron_ds.top.pane import Pane
from tests.top.frames import Still


class Stage:
    """A running application and who plays it."""

    def __init__(self, app, pilot):
        self.app, self.pilot = app, pilot

    async def look(self):
        """One look, drawn."""
        await self.app.look()
        await self.pilot.pause()

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def click(self, pane, text, times=1):
        """Click on the first place of a pane where a text stands."""
        y, line = next((y, line) for y, line in enumerate(self.lines(pane)) if text in line)
        for _ in range(times):
            assert await self.pilot.click(f"#{pane}", offset=(line.index(text), y))
            await self.pilot.pause()

    def pane(self, name):
        return self.app.screen.query_one(f"#{name}", Pane)

    def lines(self, name):
        return self.pane(name).lines

    def text(self, name):
        return "\n".join(self.lines(name))

    @property
    def screen(self):
        """The whole screen as lines, as the terminal gets it."""
        return ["".join(segment.text for segment in strip) for strip in self.app.screen._compositor.render_strips()]

    def focus(self, name):
        self.pane(name).focus()


def plays(*frames, size=(120, 40), live=None, **options):
    """Make a test of a coroutine that gets a Stage. Other arguments of it are the test's."""

    def decorate(scene):
        async def main(*args, **kwargs):
            app = Top(live or Still(*frames), looks=False, **options)
            async with app.run_test(size=size) as pilot:
                stage = Stage(app, pilot)
                await stage.look()
                await scene(stage, *args, **kwargs)

        @functools.wraps(scene)
        def test(*args, **kwargs):
            asyncio.run(main(*args, **kwargs))

        parameters = list(inspect.signature(scene).parameters.values())[1:]
        test.__signature__ = inspect.Signature(parameters)
        return test

    return decorate
