"""What DURABLE_CELERY_FAULT may say, as values; anything else is refused with what was expected. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from durable_celery.faults.points import MESSAGES, OWN, POINTS

AT_POINTS = ("raise", "kill", "stop", "cut", "deadlock", "clock")
OF_MESSAGES = ("drop", "lose", "unconfirmed", "double", "delay", "reorder")
TIMED = ("stop", "delay", "clock")  # these have a duration
UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"([+-]?)(\d+(?:\.\d+)?)(ms|s|m|h|)")
FORM = (
    "POINT:KIND[=DURATION][:WHEN], several separated by ',' or ';', such as turn.before_commit:kill:3. "
    "POINT: a name of docs/faults.md, or several by '*'. "
    f"KIND: {', '.join(AT_POINTS)}; at {' and '.join(MESSAGES)} also {', '.join(OF_MESSAGES)}. "
    "DURATION, of stop, delay and clock: 2, 500ms, 30s, -5m. WHEN: 3 (the third time; 1 by default), 3+ (from then "
    "on), * (each time) or 5% (by chance). clock=-5m alone holds from the start"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: ``kind`` with ``seconds``, at each point that ``point`` matches, from the ``first`` to the ``last``
    time, each with ``chance``. No ``point``: at once."""

    text: str
    point: str
    kind: str
    seconds: float = 0.0
    first: int = 1
    last: float = 1
    chance: float = 1.0

    def matches(self, name: str) -> bool:
        """Whether it is for this point."""
        return name == self.point or fnmatchcase(name, self.point)


def parse(text: str) -> tuple[Fault, ...]:
    """The faults that ``text`` asks for; ``ValueError`` says what is wrong and what was expected."""
    parts = [part.strip() for part in re.split("[,;]", text)]
    return tuple(_fault(part) for part in parts if part)


def _fault(text: str) -> Fault:
    if text.partition("=")[0] == "clock":
        return Fault(text=text, point="", kind="clock", seconds=_duration(text, "clock", text.partition("=")[2]))
    point, _, rest = text.partition(":")
    what, _, when = rest.partition(":")
    kind, _, value = what.partition("=")
    _check_kind(text, kind)
    _check_point(text, point, kind)
    if kind not in TIMED and "=" in what:
        raise _wrong(text, f"{kind} takes no duration")
    seconds = _duration(text, kind, value) if kind in TIMED else 0.0
    first, last, chance = _when(text, when)
    return Fault(text=text, point=point, kind=kind, seconds=seconds, first=first, last=last, chance=chance)


def _check_kind(text: str, kind: str) -> None:
    if kind not in AT_POINTS + OF_MESSAGES:
        raise _wrong(text, f"there is no kind {kind!r}")


def _check_point(text: str, point: str, kind: str) -> None:
    known = [name for name in POINTS if fnmatchcase(name, point)]
    if not known and not point.startswith(OWN):
        near = get_close_matches(point, POINTS, n=3)
        raise _wrong(text, f"there is no point {point!r}" + (f" (but {', '.join(near)})" if near else ""))
    if kind in OF_MESSAGES and not (known and set(known) <= set(MESSAGES)):
        raise _wrong(text, f"no message is sent at {point}, and {kind} is for those")


def _duration(text: str, kind: str, value: str) -> float:
    found = DURATION.fullmatch(value)
    if found is None or (found[1] and kind != "clock"):
        raise _wrong(text, f"{kind} needs a duration, got {value!r}")
    return float(f"{found[1]}{found[2]}") * UNITS[found[3]]


def _when(text: str, when: str) -> tuple[int, float, float]:
    if when == "*":
        return 1, float("inf"), 1.0
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)%", when):
        return 1, float("inf"), float(found[1]) / 100
    found = re.fullmatch(r"([1-9]\d*)(\+?)", when or "1")
    if found is None:
        raise _wrong(text, f"{when!r} says no time")
    return int(found[1]), float("inf") if found[2] else int(found[1]), 1.0


def _wrong(text: str, what: str) -> ValueError:
    return ValueError(f"DURABLE_CELERY_FAULT: {text!r} is no fault: {what}. Expected {FORM}")
