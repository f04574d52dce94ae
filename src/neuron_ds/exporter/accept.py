"""What a client wants, as its headers say: the form of the metrics, and whether they may be zipped.

Whatever stands in a header, there is an answer. This module knows the words of HTTP; it knows no server and no family.
"""

from __future__ import annotations

from collections.abc import Iterator

OPENMETRICS = "application/openmetrics-text"


def weighed(header: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """What a header of preferences lists: name, parameters, and weight from 0 to 1; 0 where it can't be understood."""
    for each in header.lower().split(","):
        name, *rest = (part.strip() for part in each.split(";"))
        pairs = (part.partition("=") for part in rest)
        given = {key.strip(): value.strip().strip('"') for key, _, value in pairs}
        try:
            weight = float(given.pop("q", "1"))
        except ValueError:
            weight = 0.0
        yield name, given, weight if 0 < weight <= 1 else 0.0


def form(accept: str) -> str:
    """The form that is liked best, in words that the library understands; "" for the classic text."""
    found = [(0.0, False, "")]
    for name, given, weight in weighed(accept):
        is_openmetrics, version = name == OPENMETRICS, given.get("version", "")
        escaping = f"; version=1.0.0; escaping={given.get('escaping', 'underscores')}"
        if is_openmetrics and version in ("", "0.0.1", "1.0.0") and weight:
            found.append((weight, True, name + (escaping if version == "1.0.0" else "")))
        elif name == "text/plain" and weight:
            found.append((weight, False, name + escaping if version == "1.0.0" else ""))
    return max(found, key=lambda each: each[:2])[2]


def takes_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header lets an answer be zipped."""
    weights = {name: weight for name, _, weight in weighed(header)}
    return weights.get("gzip", weights.get("*", 0.0)) > 0
