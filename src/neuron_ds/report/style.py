"""The report's style sheet: light, dark and on paper. Nothing else."""

from __future__ import annotations

_SHADES_LIGHT = "#f1f4f8 #e0eaf5 #cbddf0 #b0cdea #93bce2 #74a9d9 #5594cd #3a7ebd #2567a6 #16508a #0b3a6b".split()
_SHADES_DARK = "#1b2129 #1c2d40 #1d3957 #1f466d #235484 #2b659c #3978b3 #4e8cc7 #6ca2d8 #92bce7 #c2dbf5".split()
_LINES_LIGHT = "#0b62a8 #b54708 #0f766e #86198f #4d5b1a #b91c1c #4338ca #57534e".split()
_LINES_DARK = "#6cb6ff #f2a65a #5fd3c4 #e39cf0 #bfd46a #ff8f8f #a6a1ff #bdb7b1".split()
_DASHES = ("none", "6 3", "2 2", "8 3 2 3", "none", "6 3", "2 2", "8 3 2 3")


def _variables(shades: list[str], lines: list[str]) -> str:
    parts = [f"--h{i}:{c}" for i, c in enumerate(shades)] + [f"--l{i}:{c}" for i, c in enumerate(lines)]
    return ";".join(parts)


_LIGHT = (
    "--fg:#1a1f26;--dim:#4d5966;--bg:#fff;--line:#d5dbe2;--card:#f6f8fa;--critical:#b42318;--warning:#a15c00;"
    "--info:#3b5b86;--life:#7d94ad;--blank:#e7e2da;" + _variables(_SHADES_LIGHT, _LINES_LIGHT)
)
_DARK = (
    "--fg:#e8ecf1;--dim:#a9b4c0;--bg:#12161b;--line:#333c47;--card:#1a2027;--critical:#ff8a80;--warning:#ffb74d;"
    "--info:#9dbbe3;--life:#5d7288;--blank:#3a352c;" + _variables(_SHADES_DARK, _LINES_DARK)
)

CSS = (
    f":root{{color-scheme:light dark;{_LIGHT}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    + """
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg)}
body{margin:0 auto;max-width:1200px;padding:1rem}
h1{font-size:1.5rem;margin:.2rem 0 .6rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .4rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1rem 0 .2rem}
p,.note{max-width:75ch}
dl.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.4rem 1.2rem;margin:.6rem 0}
dl.facts div{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.4rem .7rem}
dt{color:var(--dim);font-size:.85rem}
dd{margin:0;overflow-wrap:anywhere}
.note{border-left:4px solid var(--warning);background:var(--card);padding:.4rem .8rem;margin:.5rem 0}
.note{overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.88rem;margin:.4rem 0}
th,td{text-align:left;padding:.2rem .7rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td{overflow-wrap:anywhere;max-width:32rem}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.t{white-space:nowrap;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--dim)}
.critical{color:var(--critical);font-weight:600}
.warning{color:var(--warning);font-weight:600}
.info{color:var(--info)}
.dim{color:var(--dim)}
details{margin:.3rem 0}
summary{cursor:pointer;color:var(--dim)}
svg{display:block;width:100%;height:auto;margin:.3rem 0}
svg text{fill:var(--fg);font:11px system-ui,sans-serif}
svg text.tick,svg text.row{text-anchor:end}
svg text.time,svg text.tick{fill:var(--dim)}
svg .grid{stroke:var(--line);fill:none}
svg .hx,svg rect.blank{fill:var(--blank)}
svg .mark{stroke:var(--critical);stroke-width:1.5;fill:none}
svg rect.life{fill:var(--life)}
svg rect.critical{fill:var(--critical)}
svg rect.warning{fill:var(--warning)}
svg rect.info{fill:var(--info)}
ul.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;margin:.2rem 0;padding:0;font-size:.88rem}
ul.legend svg{display:inline-block;width:26px;height:8px;margin:0 .4rem 0 0;vertical-align:middle}
@media print{body{max-width:none;padding:0;font-size:11px}h2{break-after:avoid}svg,tr{break-inside:avoid}\
svg path,svg rect{print-color-adjust:exact}details:not([open]){display:none}}
"""
    + "".join(f"svg .h{i}{{fill:var(--h{i})}}" for i in range(len(_SHADES_LIGHT)))
    + "".join(
        f"svg .l{i}{{stroke:var(--l{i});stroke-dasharray:{dash};stroke-width:1.6;fill:none}}"
        for i, dash in enumerate(_DASHES)
    )
)
