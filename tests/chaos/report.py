"""What a run of the chaos suite prints, and whether it passes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.faults import Kill
from tests.chaos.ledger import Line
from tests.chaos.oracle import Finding

KILLS = ("kill worker", "kill child", "kill Beat")
WORKFLOWS, FAULTS, OF_A_KIND = 300, 40, 3  # at least, in 120 seconds
SHOWN, WIDTH = 40, 300  # findings, and characters of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    duration: float
    workflows: int
    kinds: Sequence[str]
    effective: Mapping[str, int]
    kills: int
    findings: Sequence[Finding]
    recovered: Sequence[float] = field(default_factory=tuple)

    def too_little(self) -> Iterator[str]:
        """What the run fell short of; a shorter one has to do in proportion."""
        share = min(1.0, self.duration / 120)
        faults = sum(self.effective.values())
        if self.workflows < WORKFLOWS * share:
            yield f"{self.workflows} workflows, expected {WORKFLOWS * share:g}"
        if faults < FAULTS * share:
            yield f"{faults} effective faults, expected {FAULTS * share:g}"
        for kind in self.kinds:
            if self.effective.get(kind, 0) < max(1, math.floor(OF_A_KIND * share)):
                yield f"{kind}: {self.effective.get(kind, 0)} effective, expected {max(1, int(OF_A_KIND * share))}"

    def passes(self) -> bool:
        return not self.findings and not any(self.too_little())

    def lines(self) -> Iterator[str]:
        yield "effective faults:"
        for kind in self.kinds:
            yield f"  {self.effective.get(kind, 0):4} {kind}"
        for finding in self.findings[:SHOWN]:
            yield f"{finding.kind}: {finding.text[:WIDTH]}"
        if len(self.findings) > SHOWN:
            yield f"... and {len(self.findings) - SHOWN} more"
        for missing in self.too_little():
            yield f"too little: {missing}"
        yield self.last()

    def last(self) -> str:
        found = Counter(finding.kind for finding in self.findings)
        times = "/".join(f"{1000 * at(self.recovered, share):.0f}" for share in (0.5, 0.95, 1.0))
        return (
            f"chaos: {self.workflows} workflows, {sum(self.effective.values())} faults ({self.kills} kills), "
            f"{found['lost']} lost, {found['stuck']} stuck, {found['doubled']} doubled, recovered {times} ms"
        )


def at(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not exceed; 0 of none."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else 0.0


def recoveries(kills: Sequence[Kill], lines: Sequence[Line]) -> list[float]:
    """Seconds from each kill to the next claim of each step it hit; none where the step was wanted no longer."""
    starts: dict[str, list[Line]] = {}
    for line in lines:
        starts.setdefault(line.key, []).append(line)
    found = []
    for kill in kills:
        for key, attempt in kill.claims:
            later = [line.at for line in starts.get(key, ()) if line.attempt > attempt]
            if later:
                found.append(max(0.0, min(later) - kill.at))
    return found
