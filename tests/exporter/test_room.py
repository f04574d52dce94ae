"""Room for connections: who gives way, and that every place is given back."""

import socket
import threading
from collections.abc import Iterator

import pytest

from neuron_ds.exporter import room


class Guest:
    """A connection with its thread, which does what it is told."""

    def __init__(self, place: room.Room) -> None:
        self.here, self.there = socket.socketpair()
        self.there.settimeout(20)
        self._place, self._calls = place, []
        self._do, self._done = threading.Semaphore(0), threading.Semaphore(0)
        assert place.enter()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self("use", self.here)

    def _run(self) -> None:
        while self._do.acquire():
            name, arguments = self._calls.pop()
            getattr(self._place, name)(*arguments)
            self._done.release()
            if name == "leave":
                return

    def __call__(self, name: str, *arguments: object) -> None:
        self._calls.append((name, arguments))
        self._do.release()
        assert self._done.acquire(timeout=20)

    @property
    def ended(self) -> bool:
        self.there.setblocking(False)
        try:
            return self.there.recv(1) == b""
        except BlockingIOError:
            return False

    def leave(self) -> None:
        self("leave")
        self._thread.join()
        self.here.close()
        self.there.close()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def place(told: list[str], monkeypatch: pytest.MonkeyPatch) -> room.Room:
    monkeypatch.setattr(room, "SAID_S", 0.0)
    return room.Room(2, told.append)


@pytest.fixture
def guests(place: room.Room) -> Iterator[list[Guest]]:
    made = [Guest(place), Guest(place)]
    yield made
    for guest in made:
        guest.leave()


def entering(place: room.Room, guests: list[Guest]) -> bool:
    """Whether one more is let in, when whoever was ended has left."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(place.enter()))
    thread.start()
    while thread.is_alive():
        for guest in [g for g in guests if g.ended]:
            guests.remove(guest)
            guest.leave()
    return found[0]


def test_the_longest_idle_is_ended(place, guests, told):
    first, _ = guests
    first("serving", True)
    first("serving", False)
    assert entering(place, guests)
    assert guests == [first]
    assert told == ["2 connections are open; the longest idle gives way to the next"]
    place.leave()


def test_one_that_is_served_stays(place, guests):
    first, second = guests
    first("serving", True)
    second("serving", True)
    second("serving", False)
    assert entering(place, guests)
    assert guests == [first]
    place.leave()


def test_where_all_are_served_nobody_is_let_in(place, guests, told):
    for guest in guests:
        guest("serving", True)
    assert not entering(place, guests)
    assert len(guests) == 2
    assert told == ["2 connections are open and being served; others are turned away"]


def test_one_that_is_served_for_too_long_is_ended(place, guests, monkeypatch):
    monkeypatch.setattr(room, "LONGEST_S", 0.0)
    first, second = guests
    second("serving", True)
    first("serving", True)
    assert entering(place, guests)
    assert guests == [first]
    place.leave()


def test_every_place_is_given_back(place):
    for _ in range(20):
        guests = [Guest(place), Guest(place)]
        for guest in guests:
            guest.leave()
    assert place.enter()
    assert place.enter()
    assert not place.enter()


def test_the_same_is_said_seldom(told):
    crowded = room.Room(1, told.append)
    assert crowded.enter()
    for _ in range(5):
        assert not crowded.enter()
    assert told == ["1 connections are open and being served; others are turned away"]
