"""What ``crash_everywhere`` has done, and where."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SHOWN = 5  # differences in the message


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A place that the straight run has passed: its name, which time that was, and over what."""

    name: str
    nth: int
    over: str = ""

    def __str__(self) -> str:
        return f"{self.name}, time {self.nth}" + (f" ({self.over})" if self.over else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What ``crash_everywhere`` did. ``differences`` are by point; it returns none without raising."""

    workflow: str
    points: tuple[Point, ...]
    runs: int
    crashes: int
    seconds: float
    differences: Mapping[Point, str]

    @property
    def all_equal(self) -> bool:
        """Whether no crash has changed anything."""
        return not self.differences

    def __str__(self) -> str:
        how = "all equal" if self.all_equal else f"{len(self.differences)} different"
        head = f"{self.workflow}: {len(self.points)} points, {self.runs} runs, {how} ({self.seconds:.1f} s)"
        by_name = Counter(point.name for point in self.points)
        lines = [f"  {name:<32}{count:>5}" for name, count in sorted(by_name.items())]
        shown = list(self.differences.items())[:SHOWN]
        lines += [f"  after a crash at {point}:\n    {what}" for point, what in shown]
        if len(self.differences) > len(shown):
            lines.append(f"  and after {len(self.differences) - len(shown)} other crashes")
        return "\n".join([head, *lines])


def sample_of(points: Sequence[Point], count: int | None, seed: int) -> Sequence[Point]:
    """So many of the points in their order, chosen by ``seed``: one of each name, then any; all by default."""
    if count is None or count >= len(points):
        return points
    dice = random.Random(seed)
    mixed = dice.sample(points, len(points))
    first_of_each = list({point.name: point for point in mixed}.values())
    others = [point for point in mixed if point not in first_of_each]
    chosen = {*first_of_each, *others[: max(0, count - len(first_of_each))]}
    return [point for point in points if point in chosen]
