"""Slabs for the tests of the C core; each is gone when its test is."""

from collections.abc import Callable, Iterator

import pytest

from tests.core.helpers import Slab


@pytest.fixture
def make_slab() -> Iterator[Callable[..., Slab]]:
    made: list[Slab] = []

    def make(*args, **kwargs) -> Slab:
        made.append(Slab(*args, **kwargs))
        return made[-1]

    yield make
    for slab in made:
        slab.close()


@pytest.fixture
def slab(make_slab) -> Slab:
    return make_slab()
