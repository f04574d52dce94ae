"""What was chosen beyond the right edge of a very narrow terminal ended ``top`` with a traceback."""

import pytest

from tests.top.frames import fleet
from tests.top.stage import plays


@pytest.mark.parametrize("width", [1, 2, 5, 6, 7, 12])
@pytest.mark.parametrize("keys", [["tab"], ["shift+tab"], ["z"], ["tab", "z", "right", "f"], ["2", "i"]])
@plays(fleet(), size=(80, 24))
async def test_something_chosen_out_of_sight(stage, width, keys):
    stage.focus("cores")
    await stage.press(*keys)
    await stage.pilot.resize_terminal(width, 12)
    await stage.pilot.pause()
    for key in ("right", "end", "tab", "down"):
        await stage.press(key)
    assert all(len(line) <= width for line in stage.screen)
