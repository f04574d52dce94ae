"""Fetch what the web page uses of others, and put it where it is packaged: ``make web``.

The archive comes through npm's own client and is held to the hash written here, so that the result is the same bytes
everywhere. tests/web/test_vendor.py compares the files with their hashes below; a new version changes this file alone.
"""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PLACE = Path(__file__).parent.parent / "src" / "neuron_ds" / "web" / "static" / "vendor"
PACKAGE = "uplot@1.6.32"
#: Of the archive, as npm writes it.
INTEGRITY = "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
#: In the archive -> here, with the SHA-256 of the file.
FILES = {
    "package/dist/uPlot.esm.js": ("uPlot.esm.js", "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba"),
    "package/dist/uPlot.min.css": ("uPlot.min.css", "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"),
    "package/LICENSE": ("uPlot.LICENSE.txt", "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"),
}


def integrity(data: bytes) -> str:
    """The hash of an archive as npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def fetch() -> bytes:
    """The archive, if it is the one that is meant."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        except FileNotFoundError:
            sys.exit("no npm: install it (Debian's package npm) to fetch what the page uses")
        except subprocess.CalledProcessError as e:
            sys.exit(f"npm pack {PACKAGE} ended with status {e.returncode}")
        (archive,) = Path(folder).glob("*.tgz")
        data = archive.read_bytes()
    if integrity(data) != INTEGRITY:
        sys.exit(f"{PACKAGE} is {integrity(data)}, not {INTEGRITY}: nothing was changed")
    return data


def main() -> None:
    """Fetch, compare, write."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(fetch())) as archive:
        for name, (here, expected) in FILES.items():
            member = archive.extractfile(name)
            assert member is not None
            data = member.read()
            found = hashlib.sha256(data).hexdigest()
            if found != expected:
                sys.exit(f"{name} of {PACKAGE} is {found}, not {expected}: nothing more was written")
            (PLACE / here).write_bytes(data)
            print(f"{here}  {len(data)} bytes")


if __name__ == "__main__":
    main()
