"""A few kilobytes that unpack to gigabytes, whatever their head said, filled the memory of whoever opened them; so did
millions of empty messages. Bytes of nothing were read one by one."""

import struct
import zlib

import lz4.frame
import pytest
import zstandard

from neuron_ds.errors import FormatError
from neuron_ds.record import Recording, container

MANY = 64 << 20


def record(code: int, data: bytes) -> bytes:
    return struct.pack("<BQ", code, len(data)) + data


def chunk(packed: bytes, size: int, crc: int, name: bytes) -> bytes:
    head = struct.pack("<QQQII", 1, 2, size, crc, len(name)) + name
    return record(6, head + struct.pack("<Q", len(packed)) + packed)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(data)


#: What a reader would have to hold of it, in bytes, if it did.
MESSAGES = record(5, struct.pack("<HIQQ", 2, 0, 1, 1)) * (container.MOST_MESSAGES + 1)
CASES = {
    "zstd": (zstd(bytes(MANY)), 1000, 0, b"zstd"),
    "lz4": (lz4.frame.compress(bytes(MANY)), 1000, 0, b"lz4"),
    "nothing": (zstd(bytes(MANY)), MANY, 0, b"zstd"),
    "large": (zstd(bytes(1000)), container.MOST_BYTES + 1, 0, b"zstd"),
    "messages": (zstd(MESSAGES), len(MESSAGES), zlib.crc32(MESSAGES), b"zstd"),
    "plain": (b"x" * 100, 10, 0, b""),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_damage_and_soon_found_out(case, tmp_path, monkeypatch):
    path = tmp_path / "a.mcap"
    path.write_bytes(b"\x89MCAP0\r\n" + chunk(*CASES[case]))
    with pytest.raises(FormatError, match="is damaged"):
        Recording(str(path))


def test_no_more_is_unpacked_than_the_head_says(monkeypatch):
    for case in ("zstd", "lz4"):
        packed, size, crc, name = CASES[case]
        whole = chunk(packed, size, crc, name)[9:]
        with pytest.raises(ValueError, match="not what was written"):
            container._unpacked(whole)


def test_so_many_damages_are_told_in_a_hundred(tmp_path):
    path = tmp_path / "a.mcap"
    path.write_bytes(b"\x89MCAP0\r\n" + (chunk(b"x" * 8, 8, 1, b"zstd") + b"\xff" * 5) * 2000)
    file = container.File(str(path))
    assert len(file.spans) == 2000
    assert len(file.damage) == container.MOST_HURT + 1 + bool(file._end)
    assert "and more of this kind" in file.damage
    file.close()
