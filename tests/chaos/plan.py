"""What happens in a run of the chaos suite, and when: a pure function of its seed, its length and what can break."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.scripts import SCRIPTS

WORKFLOWS = 2.6  # started each second
FAULTS = 0.4  # a second
OF_A_KIND = 4 / 120  # of each kind, a second
QUIET = 3.0  # seconds at the start without a fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    at: float
    script: str
    run: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something sent to a run: "signal", "update" or "cancel". ``number`` counts those of a kind to one run, from 0."""

    at: float
    kind: str
    run: str
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``choice`` and ``share``, both from 0 to 1, say which process it hits and how hard."""

    at: float
    kind: str
    choice: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    starts: Sequence[Start]
    acts: Sequence[Act]
    faults: Sequence[Fault]


def make(seed: int, duration: float, kinds: Sequence[str]) -> Plan:
    """Starts and acts do not depend on ``kinds``; without any nothing breaks."""
    starts, acts = _work(random.Random(f"work {seed}"), seed, duration)
    return Plan(starts=starts, acts=acts, faults=_faults(random.Random(f"faults {seed}"), duration, kinds))


def _work(dice: random.Random, seed: int, duration: float) -> tuple[list[Start], list[Act]]:
    """Each script at least three times, then by weight, spread evenly; all of it within the duration."""
    count = round(duration * WORKFLOWS)
    names = [name for name in SCRIPTS for _ in range(3)]
    names += dice.choices(list(SCRIPTS), [script.weight for script in SCRIPTS.values()], k=max(0, count - len(names)))
    dice.shuffle(names)
    starts: list[Start] = []
    acts: list[Act] = []
    for index, name in enumerate(names):
        at = duration * 0.95 * index / len(names)
        args, sends = SCRIPTS[name].make(dice)
        run = f"{seed}-{index:04}"
        starts.append(Start(at=at, script=name, run=run, args=args))
        acts += [Act(at=at + delay, kind=kind, run=run, number=number) for delay, kind, number in sends]
    return starts, sorted(acts, key=lambda act: (act.at, act.run, act.number))


def _faults(dice: random.Random, duration: float, kinds: Sequence[str]) -> list[Fault]:
    """As often of one kind as of another, shuffled, with gaps that differ by half."""
    if not kinds:
        return []
    each = max(2, round(duration * OF_A_KIND), round(duration * FAULTS / len(kinds)))
    order = [kind for kind in kinds for _ in range(each)]
    dice.shuffle(order)
    gap = (duration - QUIET) / len(order)
    return [
        Fault(at=QUIET + gap * (index + dice.uniform(0, 0.5)), kind=kind, choice=dice.random(), share=dice.random())
        for index, kind in enumerate(order)
    ]
