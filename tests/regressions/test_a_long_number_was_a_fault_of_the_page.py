"""A device or core of thousands of digits was a fault of the server, told in a line as long as that."""

import pytest

from tests.web.conftest import serve  # noqa: F401  # a fixture
from tests.web.helpers import Shown, cell, device, frame, get


@pytest.mark.parametrize(
    "path", ["/api/core/{}/0", "/api/core/0/{}", "/api/core/{}/0/history", "/api/core/0/{}/history"]
)
def test_there_is_none_of_that_number(serve, path):  # noqa: F811
    told = []
    port = serve(Shown(frame([device(0, [cell(0, 0)])])), told=told.append).port
    for number in ("9" * 5000, "9" * 20):
        assert get(port, path.format(number))[0] == 404
    assert get(port, path.format("0"))[0] == 200
    assert told == []
