"""Draw a picture of the demo for README and docs: run it on a pseudo-terminal, keep its last frame, write an SVG.

``python tools/picture.py docs/pictures/demo.svg`` (``make pictures``). Needs nothing beyond the package.
"""

from __future__ import annotations

import os
import pty
import re
import sys
from html import escape
from pathlib import Path

COLUMNS, ROWS = 128, 40
CHAR_W, LINE_H, MARGIN, FONT = 8.0, 18.0, 16.0, 13.3
COLORS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "2": "#8b949e"}
SGR = re.compile(r"\x1b\[([0-9;]*)m")
OTHER = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FRAME = re.compile(r"\x1b\[\d+F")


def run(argv: list[str]) -> str:
    """All that a program writes to a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(COLUMNS=str(COLUMNS), LINES=str(ROWS), TERM="xterm-256color")
        os.environ.pop("NO_COLOR", None)
        os.execvp(argv[0], argv)
    chunks = []
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:  # the other side of a terminal is gone
            break
        if not data:
            break
        chunks.append(data)
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(argv)} ended with status {status}")
    return b"".join(chunks).decode()


def spans(line: str) -> str:
    """One line with its colours as tspans."""
    out, style, at = [], "", 0
    for match in [*SGR.finditer(line), None]:
        text = OTHER.sub("", line[at : match.start() if match else len(line)])
        if text:
            out.append(f"<tspan{style}>{escape(text)}</tspan>")
        if match:
            at, code = match.end(), match.group(1)
            bold = ' font-weight="bold"' if code == "1" else ""
            style = f' fill="{COLORS[code]}"' if code in COLORS else bold
    return "".join(out)


def svg(lines: list[str]) -> str:
    """The lines as a dark terminal."""
    width = 2 * MARGIN + COLUMNS * CHAR_W
    height = 2 * MARGIN + len(lines) * LINE_H
    body = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + (i + 0.75) * LINE_H:.1f}" xml:space="preserve">{spans(line)}</text>'
        for i, line in enumerate(lines)
        if line.strip()
    )
    font = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
        f'<g font-family="{font}" font-size="{FONT}" fill="#e6edf3">\n{body}\n</g>\n</svg>\n'
    )


def main(target: str) -> None:
    command = Path(sys.executable).with_name("neuron-ds")
    last = FRAME.split(run([str(command), "demo", "--seconds", "8"]))[-1]
    lines = [line.rstrip("\r") for line in last.split("\n")]
    while lines and not OTHER.sub("", lines[-1]).strip():
        lines.pop()
    Path(target).write_text(svg(lines))


if __name__ == "__main__":
    main(sys.argv[1])
