"""Runs the tests on each pair of database and broker, and prints how many ran on each.

    python tests/run.py [--pair DATABASE+BROKER ...] [pytest arguments]

SQLite and memory come first, with everything that needs neither; then the others, at once. MariaDB and RabbitMQ are
used where they are installed; with CI set, a missing service, a skipped test or a pair without tests is a failure.

Many of these tests start and kill real processes, on a machine that others use too. Where few of those fail and nothing
else does, they run once more, alone; those that pass then are listed, in the figures and by name: each is a test or a
race to look into.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.services import SERVICES, Service, variable  # noqa: E402

PAIRS = ("sqlite+memory", "postgres+redis", "mariadb+rabbitmq")
NO_TESTS = 5  # pytest's exit status
FEW = 5  # tests of a pair; where more fail, it is no chance


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one run of pytest came to."""

    pair: str
    status: int
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    failures: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    @property
    def ran(self) -> int:
        return self.passed + self.failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", action="append", help=f"instead of {', '.join(PAIRS)}")
    chosen, arguments = parser.parse_known_args()
    strict = bool(os.environ.get("CI"))
    services: dict[str, Service | None] = {}
    outcomes: list[Outcome] = []
    missing: list[str] = []
    later: list[str] = []
    try:
        for pair in chosen.pair or PAIRS:
            usable = with_what_is_here(pair, services)
            if usable != pair:
                missing.append(pair)
            if usable is None or usable in later or any(outcome.pair == usable for outcome in outcomes):
                continue
            if outcomes:
                later.append(usable)
            else:
                outcomes.append(run(usable, arguments, first=True))
        outcomes += side_by_side(later, arguments)
    finally:
        for service in services.values():
            if service is not None:
                service.stop()
    report(outcomes, missing)
    return status(outcomes, missing, strict)


def with_what_is_here(pair: str, services: dict[str, Service | None]) -> str | None:
    """The pair itself; with SQLite's or memory's stand-ins PostgreSQL and Redis where one half is not installed.

    None if both halves are missing. What is found is started here once, for this pair and those after it.
    """
    database, broker = pair.split("+")
    for name in {database, broker} & set(SERVICES):
        if name not in services:
            services[name] = SERVICES[name].find()
    if database in services and services[database] is None:
        if database == "postgres" or services.get(broker, True) is None:
            return None
        return with_what_is_here(f"postgres+{broker}", services)
    if broker in services and services[broker] is None:
        return None if broker == "redis" else with_what_is_here(f"{database}+redis", services)
    for name in {database, broker} & set(SERVICES):
        service = services[name]
        assert service is not None
        os.environ[variable(name)] = service.url
    return pair


def side_by_side(pairs: list[str], arguments: list[str]) -> list[Outcome]:
    """The pairs at once, each on services of its own: they wait for processes most of the time."""
    if len(pairs) < 2:
        return [run(pair, arguments, first=False) for pair in pairs]
    with ThreadPoolExecutor(len(pairs)) as pool:
        return list(pool.map(lambda pair: run(pair, arguments, first=False, shown_at_the_end=True), pairs))


def run(pair: str, arguments: list[str], *, first: bool, shown_at_the_end: bool = False) -> Outcome:
    """One run of pytest; what failed of it, if little, runs again alone, and ``again`` names what passed then."""
    print(f"\n==> {pair}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log") if shown_at_the_end else None
        options = [*arguments, "-o", f"cache_dir={folder}/cache", *(() if first else ("--engine-only",))]
        outcome = run_pytest(pair, options, Path(folder, "figures.xml"), log)
        if not outcome.failures or len(outcome.failures) > FEW or outcome.status != 1:
            return outcome
        print(f"\n==> {pair}, what failed, alone", flush=True)
        again = [*options, "--last-failed", "--last-failed-no-failures=none", "-m", "prefork or kill"]
        alone = run_pytest(pair, again, Path(folder, "again.xml"), log)
    return together(outcome, alone)


def run_pytest(pair: str, options: list[str], figures: Path, log: Path | None) -> Outcome:
    """What it prints goes where ours does, or into ``log``, which is printed when it has ended."""
    database, broker = pair.split("+")
    command = [sys.executable, "-m", "pytest", f"--junitxml={figures}", *options]
    env = {**os.environ, "TEST_DB": database, "TEST_BROKER": broker}
    began = time.monotonic()
    with log.open("wb") if log else nullcontext() as printed:
        done = subprocess.run(command, cwd=ROOT, env=env, check=False, stdout=printed, stderr=printed)
    if log:
        print(f"\n==> {pair}\n{log.read_text(errors='replace')}", flush=True)
    return read(figures, pair=pair, status=done.returncode, seconds=time.monotonic() - began)


def read(figures: Path, *, pair: str, status: int, seconds: float) -> Outcome:
    if not figures.exists():
        return Outcome(pair=pair, status=status or 1, seconds=seconds)
    root = ElementTree.parse(figures).getroot()
    total, failed, errors, skipped = (
        sum(int(suite.get(name, "0")) for suite in root.iter("testsuite"))
        for name in ("tests", "failures", "errors", "skipped")
    )
    failures = (
        f"{case.get('classname')}.{case.get('name')}"
        for case in root.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    )
    return Outcome(
        pair=pair,
        status=status,
        passed=total - failed - errors - skipped,
        failed=failed + errors,
        skipped=skipped,
        seconds=seconds,
        failures=tuple(failures),
    )


def together(outcome: Outcome, alone: Outcome) -> Outcome:
    """What both runs say; a test that failed and did not run again stays a failure."""
    passed = () if alone.passed + alone.failed < outcome.failed else set(outcome.failures) - set(alone.failures)
    left = tuple(name for name in outcome.failures if name not in passed)
    return dataclasses.replace(
        outcome,
        status=outcome.status if left or alone.status else 0,
        passed=outcome.passed + len(passed),
        failed=outcome.failed - len(passed),
        seconds=outcome.seconds + alone.seconds,
        failures=left,
        again=tuple(sorted(passed)),
    )


def report(outcomes: list[Outcome], missing: list[str]) -> None:
    print(f"\n{'backends':<20}{'ran':>7}{'passed':>9}{'failed':>9}{'skipped':>9}{'again':>9}{'seconds':>10}")
    for outcome in outcomes:
        counts = (outcome.passed, outcome.failed, outcome.skipped, len(outcome.again))
        figures = "".join(f"{count:>9}" for count in counts)
        print(f"{outcome.pair:<20}{outcome.ran:>7}{figures}{outcome.seconds:>10.0f}")
    for pair in missing:
        print(f"{pair:<20}not as asked for: a service is not installed here")
    passed, failed, skipped = (
        sum(getattr(outcome, name) for outcome in outcomes) for name in ("passed", "failed", "skipped")
    )
    for outcome in outcomes:
        for name in outcome.again:
            print(f"failed once, passed alone, on {outcome.pair}: {name}")
    print(f"\ntotal: {passed} passed, {failed} failed, {skipped} skipped", flush=True)


def status(outcomes: list[Outcome], missing: list[str], strict: bool) -> int:
    """1 if anything failed; under CI also for what was missing, skipped or empty."""
    failed = [outcome.pair for outcome in outcomes if outcome.status not in (0, NO_TESTS)]
    if not outcomes or all(outcome.status == NO_TESTS for outcome in outcomes):
        failed.append("no test ran")
    if strict:
        failed += [f"{pair}: a service is missing" for pair in missing]
        failed += [f"{outcome.pair}: {outcome.skipped} skipped" for outcome in outcomes if outcome.skipped]
        failed += [f"{outcome.pair}: no test ran" for outcome in outcomes if outcome.status == NO_TESTS]
    for reason in failed:
        print(f"failed: {reason}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
