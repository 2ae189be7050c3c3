"""Examine the engine: exits with 1 if anything is wrong, and says what to do."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django_app import doctor
from django_app.verbs.console import Console, WrongUsage


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--patience",
        type=float,
        default=doctor.PATIENCE.total_seconds(),
        metavar="SECONDS",
        help="how long a tick, a due row or a step in a queue may be late (60)",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="FINDING",
        help="tell this alone, and what keeps the doctor from looking, for a probe or an alert; may be repeated: "
        + ", ".join(doctor.FINDINGS),
    )
    parser.add_argument(
        "--json", action="store_true", help='one JSON document: {"ok": ..., "findings": [...], "state": {...}}'
    )


def run(options: Any, console: Console) -> int:
    if not 0 < options.patience < 1e8:
        raise WrongUsage(f"--patience is {options.patience:g}, expected seconds, more than 0")
    patience = timedelta(seconds=options.patience)
    only = _known(options.only or ())
    told = doctor.findings(patience=patience, thorough=not only or "waker" in only)
    found = [finding for finding in told if not only or finding.id in only | doctor.ENDS]
    if options.json:
        console.document({"ok": not found, "findings": [asdict(finding) for finding in found],
                          "state": doctor.state(patience=patience)})  # fmt: skip
    else:
        for finding in found:
            console.line(f"{finding.id}: {finding.text}")
            for example in finding.examples:
                console.line(f"    {example}")
            console.line(f"    -> {finding.do}")
        if not found:
            console.line("fine")
    return 1 if found else 0


def _known(names: Sequence[str]) -> frozenset[str]:
    if unknown := sorted(set(names).difference(doctor.FINDINGS)):
        raise WrongUsage(f"--only {', '.join(unknown)}: no such finding, expected one of {', '.join(doctor.FINDINGS)}")
    return frozenset(names)
