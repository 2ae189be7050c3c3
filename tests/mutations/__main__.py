"""Takes each guard of the engine away in turn, in a copy of the tree, and runs the tests that should notice.

    python -m tests.mutations [--only WORD ...] [--pair DATABASE+BROKER ...] [--named] [--output FILE]

First the named tests run with every guard in place: a test that fails anyway notices nothing. A guard whose loss the
named tests let pass is tried with many more (not with --named). Exits with 1 if one survives: then a test is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.mutations.guard import Guard
from tests.mutations.guards import GUARDS
from tests.mutations.scratch import Scratch, scratch
from tests.services import SERVICES, Service, variable

WIDER = ("tests/store", "tests/core", "tests/engine", "tests/invariants", "tests/cases", "tests/celery")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="guards with one of these in the name")
    parser.add_argument("--pair", nargs="+", help="instead of all that the table names")
    parser.add_argument("--named", action="store_true", help="run the named tests alone")
    parser.add_argument("--output", type=Path, help="write the lines there too")
    chosen = parser.parse_args()
    tried = [
        (guard, pair)
        for guard in GUARDS
        if any(word in guard.name for word in chosen.only)
        for pair in guard.pairs
        if not chosen.pair or pair in chosen.pair
    ]
    services = start({pair for _, pair in tried})
    try:
        lines, survived = report(tried, () if chosen.named else WIDER)
    finally:
        for service in services:
            service.stop()
    if chosen.output:
        chosen.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if survived or not tried else 0


def report(tried: Sequence[tuple[Guard, str]], wider: Sequence[str]) -> tuple[list[str], int]:
    """Each line is printed as it comes; the lines, and how many guards could be lost unseen."""
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    survived = 0
    with scratch() as copy:
        say(f"{'taken away':<72}{'pair':<16}{'seconds':>8}  noticed by")
        for pair in dict.fromkeys(pair for _, pair in tried):
            with_every_guard(copy, pair, (guard for guard, its in tried if its == pair))
            for guard in (guard for guard, its in tried if its == pair):
                noticed_by, seconds = without_it(copy, guard, pair, wider)
                survived += not noticed_by
                say(f"{guard.name:<72}{pair:<16}{seconds:>8.1f}  {noticed_by or 'NOBODY: it survived'}")
    say(f"mutations: {len(tried)} tried, {len(tried) - survived} noticed, {survived} survived")
    return lines, survived


def with_every_guard(copy: Scratch, pair: str, guards: Iterable[Guard]) -> None:
    """The named tests pass while nothing is missing."""
    tests = sorted({test for guard in guards for test in guard.noticed_by})
    whole = copy.test(tests, pair)
    if whole.failed or not whole.ran:
        sys.exit(
            f"with every guard in place {whole.failed or 'no test'} {'failed' if whole.failed else 'ran'} on {pair}"
        )


def without_it(copy: Scratch, guard: Guard, pair: str, wider: Sequence[str]) -> tuple[str, float]:
    """The test that noticed, "" if none did, and the seconds it took to find out."""
    began = time.monotonic()
    with copy.lacking(guard):
        failed = copy.test(guard.noticed_by, pair).failed or (copy.test(wider, pair).failed if wider else "")
    return failed, time.monotonic() - began


def start(pairs: Iterable[str]) -> list[Service]:
    """The services of these pairs, for all runs together; what the environment names is used as it is."""
    started = []
    for name in sorted({part for pair in pairs for part in pair.split("+")} & set(SERVICES)):
        service = SERVICES[name].find()
        if service is None:
            sys.exit(f"{name} is not found here: install it, or leave its pairs out (--pair sqlite+memory)")
        os.environ[variable(name)] = service.url
        started.append(service)
    return started


if __name__ == "__main__":
    sys.exit(main())
