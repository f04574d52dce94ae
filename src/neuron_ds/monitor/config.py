"""The configuration file of neuron-monitor: which metric groups, of which runtimes, how often.

A file becomes a Config or one error that names the place. This module knows names of groups and Go's way to write
durations; it knows nothing of what is in a group.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neuron_ds.errors import BadValue

RUNTIME_GROUPS = ("neuroncore_counters", "execution_stats", "memory_used", "neuron_runtime_vcpu_usage")
SYSTEM_GROUPS = ("memory_info", "vcpu_usage", "neuron_hw_counters")

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "\u03bcs": 1_000,  # the Greek letter, which Go takes too
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
DEFAULT_PERIOD_NS = 5 * _NANOSECONDS["s"]
#: A shorter period would measure the monitor, a longer one is a slip.
MIN_PERIOD_NS, MAX_PERIOD_NS = 10 * _NANOSECONDS["ms"], 24 * _NANOSECONDS["h"]

#: A longer file is no configuration; one without an end is none either.
MAX_FILE_BYTES = 1 << 20
#: Digits that a number of a duration may have before and behind its point; no duration needs so many.
_MAX_DIGITS = 40
_SHOWN = 60

_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|\u03bcs|ms|s|m|h)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


@dataclass(frozen=True, slots=True)
class RuntimeRule:
    """What is wanted of the runtimes whose tag the filter finds. periods_ns: by group."""

    tag_filter: re.Pattern[str] | None
    periods_ns: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Config:
    """What to report, and how often. A runtime follows the first rule that matches its tag, and is left out without.

    unknown: places of the file that mean nothing to us, for a warning. kubernetes_ns: how often ``neuron_k8s_info``
    is wanted, None for never.
    """

    period_ns: int
    runtimes: tuple[RuntimeRule, ...]
    system_ns: Mapping[str, int]
    unknown: tuple[str, ...] = ()
    kubernetes_ns: int | None = None

    @property
    def periods_ns(self) -> list[int]:
        """Every period that occurs, ascending; the general one if no group is wanted at all."""
        found = {p for rule in self.runtimes for p in rule.periods_ns.values()} | set(self.system_ns.values())
        found |= {self.kubernetes_ns} if self.kubernetes_ns else set()
        return sorted(found or {self.period_ns})

    @property
    def wants_latencies(self) -> bool:
        return any("execution_stats" in rule.periods_ns for rule in self.runtimes)

    def rule_of(self, tag: str) -> RuntimeRule | None:
        return next((r for r in self.runtimes if r.tag_filter is None or r.tag_filter.search(tag)), None)


def everything(period_ns: int = DEFAULT_PERIOD_NS) -> Config:
    """The configuration without a file."""
    every = RuntimeRule(None, dict.fromkeys(RUNTIME_GROUPS, period_ns))
    return Config(period_ns, (every,), dict.fromkeys(SYSTEM_GROUPS, period_ns))


def duration_ns(text: str) -> int:
    """Nanoseconds in a Go duration: ``5s``, ``1m30s``, ``1.5h``, ``300ms``. Raises BadValue (EINVAL)."""
    unsigned = text.removeprefix("+")
    if not _DURATION.fullmatch(unsigned):
        raise BadValue(f"{_shown(text)} is no duration; write a number and a unit, as in 5s, 500ms or 1m30s")
    parts = [(number, _NANOSECONDS[unit]) for number, unit in _PART.findall(unsigned)]
    total = 0
    if all(len(number) <= _MAX_DIGITS for number, _ in parts):
        total = sum(round(float(number) * unit) if "." in number else int(number) * unit for number, unit in parts)
    if not MIN_PERIOD_NS <= total <= MAX_PERIOD_NS:
        raise BadValue(f"{_shown(text)} is no period to report at; it can be 10ms to 24h")
    return total


def load(path: str | None, period_ns: int | None = None) -> Config:
    """The configuration in a file, or everything; ``period_ns`` takes the place of the file's general period.

    Raises BadValue (EINVAL) naming file and place, and OSError where the file can't be read.
    """
    if path is None:
        return everything(period_ns or DEFAULT_PERIOD_NS)
    with open(path, "rb") as f:
        data = f.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise BadValue(f"more than {MAX_FILE_BYTES >> 20} MiB are no configuration", path=path)
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as e:
        raise BadValue(f"byte {e.start} is not UTF-8; the file is JSON in UTF-8", path=path) from None
    except json.JSONDecodeError as e:
        raise BadValue(f"line {e.lineno}, column {e.colno}: no JSON: {e.msg}", path=path) from None
    except RecursionError:
        raise BadValue("no configuration: it is nested too deeply", path=path) from None
    except ValueError:  # Python refuses numbers of thousands of digits
        raise BadValue("no configuration: a number in it is too long", path=path) from None
    try:
        return _Reader().config(value, period_ns)
    except BadValue as e:
        raise BadValue(e.message, path=path) from None


@dataclass(slots=True)
class _Reader:
    """From parsed JSON to a Config. Places are written as in ``neuron_runtimes[0].metrics[1].type``."""

    unknown: list[str] = field(default_factory=list)

    def config(self, value: Any, period_ns: int | None) -> Config:
        top = self._object(value, "", ("period", "neuron_runtimes", "system_metrics", "neuron_k8s_info"))
        own = self._period(top, "", DEFAULT_PERIOD_NS)
        period = own if period_ns is None else period_ns
        all_of_it = everything(period)
        runtimes, system = all_of_it.runtimes, all_of_it.system_ns
        if top.get("neuron_runtimes") is not None:
            items = self._list(top["neuron_runtimes"], "neuron_runtimes")
            runtimes = tuple(self._rule(item, f"neuron_runtimes[{i}]", period) for i, item in enumerate(items))
        if top.get("system_metrics") is not None:
            system = self._metrics(top["system_metrics"], "system_metrics", SYSTEM_GROUPS, period)
        kubernetes = None
        if top.get("neuron_k8s_info") is not None:
            item = self._object(top["neuron_k8s_info"], "neuron_k8s_info", ("period",))
            kubernetes = self._period(item, "neuron_k8s_info", period)
        return Config(period, runtimes, system, tuple(self.unknown), kubernetes)

    def _rule(self, value: Any, place: str, period_ns: int) -> RuntimeRule:
        item = self._object(value, place, ("tag_filter", "metrics", "period"))
        period = self._period(item, place, period_ns)
        text = item.get("tag_filter")
        if text is not None and not isinstance(text, str):
            raise BadValue(f"{place}.tag_filter: {_kind(text)} where a regular expression belongs")
        try:
            pattern = _pattern(text) if text else None
        except ValueError as e:
            raise BadValue(f"{place}.tag_filter: {_shown(text)} is no regular expression: {e}") from None
        if item.get("metrics") is None:
            return RuntimeRule(pattern, dict.fromkeys(RUNTIME_GROUPS, period))
        return RuntimeRule(pattern, self._metrics(item["metrics"], f"{place}.metrics", RUNTIME_GROUPS, period))

    def _metrics(self, value: Any, place: str, known: tuple[str, ...], period_ns: int) -> dict[str, int]:
        found = {}
        for i, each in enumerate(self._list(value, place)):
            here = f"{place}[{i}]"
            item = self._object(each, here, ("type", "period"))
            if "type" not in item:
                raise BadValue(f"{here}: has no type; it is one of {', '.join(known)}")
            if item["type"] not in known:
                raise BadValue(f"{here}.type: {_shown(item['type'])} is none of {', '.join(known)}")
            found[item["type"]] = self._period(item, here, period_ns)
        return found

    def _period(self, item: dict[str, Any], place: str, inherited_ns: int) -> int:
        value = item.get("period")
        if value is None or value == "":
            return inherited_ns
        here = f"{place}.period".removeprefix(".")
        if not isinstance(value, str):
            raise BadValue(f'{here}: {_kind(value)} where a text like "5s" belongs')
        try:
            return duration_ns(value)
        except BadValue as e:
            raise BadValue(f"{here}: {e.message}") from None

    def _object(self, value: Any, place: str, known: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise BadValue(f"{place or 'the file'}: {_kind(value)} where an object belongs")
        self.unknown += [f"{place}.{key}".removeprefix(".") for key in value if key not in known]
        return value

    @staticmethod
    def _list(value: Any, place: str) -> list[Any]:
        if not isinstance(value, list):
            raise BadValue(f"{place}: {_kind(value)} where an array belongs")
        return value


def _pattern(text: str) -> re.Pattern[str]:
    """A regular expression. Raises ValueError, also where Python only warns that it means something else elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(text)
        except (re.error, OverflowError, Warning) as e:
            raise ValueError(e) from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def _kind(value: Any) -> str:
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "true or false"),
        (str, "a text"),
        (int, "a number"),
        (float, "a number"),
        (list, "an array"),
        (dict, "an object"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


def _shown(value: Any) -> str:
    """A text in quotes, shortened; of anything else what it is."""
    if not isinstance(value, str):
        return _kind(value)
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
