"""A copy of the tree in which a guard is taken away, and the run of the tests there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.mutations.guard import Guard, without

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "durable_celery",
    "django_app",
    "example_project",
    "tests",
    "benchmarks",
    "docs",
    "pyproject.toml",
    "README.md",
)
A_TEST = 300  # seconds for one test: without its guard it may wait for ever
OF_THE_RUN = ("TEST_DB", "TEST_BROKER", "TEST_BROKER_URL", "TEST_RUN", "PYTEST_ADDOPTS")


class Unusable(Exception):  # noqa: N818 - says why a run proves nothing
    """No test ran, or the tree without the guard cannot even be imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """``failed`` is the first test that failed, "" if none did; ``ran`` counts those that ran."""

    failed: str
    ran: int
    seconds: float


class Scratch:
    """The copy, without a trace of an edit between two runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._written = int(time.time())

    @contextmanager
    def lacking(self, guard: Guard) -> Iterator[None]:
        """The tree without this guard, while the block is open."""
        path = self.root / guard.path
        changed, before = without(guard, self.root), path.read_text(encoding="utf-8")
        self._write(path, changed)
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        """Each time with a later second: bytecode is known by size and second of its source."""
        path.write_text(text, encoding="utf-8")
        self._written += 2
        os.utime(path, (self._written, self._written))

    def test(self, tests: Sequence[str], pair: str, *, stop_at_first: bool = True) -> Run:
        """Run these tests of the copy on one pair of database and broker; ``Unusable`` if that says nothing."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder, "figures.xml")
            options = ["-q", "-p", "no:cacheprovider", f"--timeout={A_TEST}", f"--junitxml={figures}"]
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *(["-x"] if stop_at_first else []), *tests],
                cwd=self.root,
                env=self._environment(pair),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            seconds = time.monotonic() - began
            if done.returncode not in (0, 1) or not figures.exists():
                tail = done.stdout.decode(errors="replace")[-3000:]
                raise Unusable(f"pytest {' '.join(tests)} on {pair} ended with {done.returncode}:\n{tail}")
            cases = list(ElementTree.parse(figures).getroot().iter("testcase"))
        broken = [case for case in cases if case.find("error") is not None and case.find("failure") is None]
        failed = [case for case in cases if case.find("failure") is not None]
        if broken and not failed:
            raise Unusable(f"{_name(broken[0])} on {pair} could not begin or be cleared up: {_said(broken[0])}")
        ran = sum(case.find("skipped") is None for case in cases)
        return Run(failed=_name(failed[0]) if failed else "", ran=ran, seconds=seconds)

    def _environment(self, pair: str) -> dict[str, str]:
        database, broker = pair.split("+")
        inherited = {name: value for name, value in os.environ.items() if name not in OF_THE_RUN}
        fixed = {
            "PYTHONPATH": str(self.root),
            "HYPOTHESIS_PROFILE": "unshrunk",
            "TEST_DB": database,
            "TEST_BROKER": broker,
        }
        return {**inherited, **fixed}


@contextmanager
def scratch() -> Iterator[Scratch]:
    """A copy of what the tests need; ``Unusable`` if Python would take the package from elsewhere."""
    with tempfile.TemporaryDirectory(prefix="durable-mutations-") as folder:
        root = Path(folder).resolve()
        ignored = shutil.ignore_patterns("__pycache__", "_build", "*.sqlite3*")
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, root / part, ignore=ignored)
            else:
                shutil.copy2(source, root / part)
        copy = Scratch(root)
        asked = [sys.executable, "-c", "import durable_celery; print(durable_celery.__file__)"]
        environment = copy._environment("sqlite+memory")
        found = subprocess.run(
            asked, cwd=root, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
        if not found.startswith(str(root)):
            raise Unusable(f"durable_celery is imported from {found}, expected from the copy in {root}")
        yield copy


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name', '')}"


def _said(case: ElementTree.Element) -> str:
    error = case.find("error")
    return (error.get("message") or "") if error is not None else ""
