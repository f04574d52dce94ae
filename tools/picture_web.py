"""Draw pictures of the web page for README and docs: simulated processes, the server, a headless Chromium.

``python tools/picture_web.py docs/pictures`` (``make pictures``) writes web-light.png, and web-dark.png narrowed to a
process. Needs the extras ``web`` and ``test`` and Debian's package ``chromium``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

WIDTH, HEIGHT = 1280, 1000
#: So long the graphs go back.
PAST_MS = 90_000
ITEMS = (
    "inference@0-3/0-3,model=llama-3.2-1b,tag=llama-chat",
    "training@4-11/0-7,model=llama-3.2-1b,tag=pretraining",
    "inference@0-1/4-7,model=bert-base,tag=embedding",
    "hung@2/4-7,after_s=30,tag=ranking",
    "erring@12/0-1,share=0.1,tag=vision",
    "straggling@13/0-7,tag=finetune",
    "idle@14,tag=notebook",
)


def shoot(browser: Browser, url: str, file: Path, scheme: str, tag: str | None) -> None:
    """One picture; ``tag``: of the process that it is narrowed to."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(url)
    page.wait_for_selector("#processes tbody tr")
    if tag:
        page.get_by_role("button", name=tag, exact=True).click()
        page.wait_for_selector("#details .figures tbody tr")
        page.mouse.move(0, 0)
    page.wait_for_timeout(3_000)
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=file)
    page.close()


def main(folder: Path) -> None:
    """Run all of it in a directory of its own, and take the pictures."""
    chromium = shutil.which("chromium") or sys.exit("no chromium: install Debian's package chromium")
    command = [sys.executable, "-m", "neuron_ds"]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        env = os.environ | {"NEURON_DS_DIR": f"{place}/devices", "NEURON_DS_DRIVER": "software"}
        items = [word for item in ITEMS for word in ("-p", item)]
        simulate = [*command, "simulate", "-d", "16", "--seed", "7", *items]
        serve = [*command, "web", "--listen", "127.0.0.1:0", "--no-imds"]
        with (
            subprocess.Popen(simulate, env=env, stdout=subprocess.PIPE, text=True) as fleet,
            subprocess.Popen(serve, env=env, stderr=subprocess.PIPE, text=True) as server,
        ):
            try:
                assert fleet.stdout is not None
                assert server.stderr is not None
                for _ in ITEMS:
                    if not fleet.stdout.readline():
                        sys.exit("the simulated processes did not start")
                said = server.stderr.readline()
                found = re.search(r"http://\S+", said)
                if found is None:
                    sys.exit(f"the server did not start: {said}")
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                    watching = browser.new_page()
                    watching.goto(found[0])
                    watching.wait_for_timeout(PAST_MS)
                    shoot(browser, found[0], folder / "web-light.png", "light", None)
                    shoot(browser, found[0], folder / "web-dark.png", "dark", "llama-chat")
                    browser.close()
            finally:
                server.terminate()
                fleet.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
