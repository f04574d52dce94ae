"""What the page uses of others is what was fetched, byte for byte, with its licence; it brings along all it needs."""

import hashlib
import importlib.util
import re
from pathlib import Path

from neuron_ds.web.app import STATIC

ROOT = Path(__file__).parent.parent.parent


def vendor():
    spec = importlib.util.spec_from_file_location("vendor_web", ROOT / "tools" / "vendor_web.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_those_that_were_fetched():
    tool = vendor()
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tool.PLACE.iterdir()}
    assert found == dict(tool.FILES.values())


def test_the_licence_is_there():
    text = (STATIC / "vendor" / "uPlot.LICENSE.txt").read_text()
    assert "MIT License" in text
    assert "Copyright" in text


def test_nothing_is_named_that_is_elsewhere_or_missing():
    """Every import and every link of the page leads to a file beside it; text never becomes markup."""
    for path in [p for p in STATIC.iterdir() if p.suffix in (".js", ".html", ".css")]:
        text = path.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/)|//cdn", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=\"|style=\"|<style", text), path
        named = re.findall(r"from \"\./([^\"]+)\"|(?:href|src)=\"([^#\"]+)\"", text)
        for name in filter(None, (a or b for a, b in named)):
            assert (STATIC / name).is_file(), f"{path.name} names {name}"


def test_modules_stay_short():
    for path in STATIC.glob("*.js"):
        assert len(path.read_text().splitlines()) <= 400, path
        assert path.read_text().startswith("//"), f"{path} says what it is for"
