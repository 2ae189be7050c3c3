"""Type checkers know what a workflow gets, and reject each planted mistake of sample.txt."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SAMPLE = (HERE / "sample.txt").read_text()
TYPES = {n: m[1] for n, line in enumerate(SAMPLE.splitlines(), 1) if (m := re.search(r"# is (.+)$", line))}
MISTAKES = {n: m[1] for n, line in enumerate(SAMPLE.splitlines(), 1) if (m := re.search(r"# error (\S+)$", line))}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typing") / "sample.py"
    path.write_text(SAMPLE)
    return path


def short(text: str) -> str:
    return re.sub(r"\b[a-z_]+\.(?=[A-Za-z])", "", text)


def test_mypy_infers_every_type_and_rejects_every_mistake(sample: Path) -> None:
    flags = ["--strict", "--enable-error-code", "unused-awaitable", "--config-file", "/dev/null"]
    out = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, "--cache-dir", str(sample.parent / "cache"), str(sample)],
        capture_output=True,
        text=True,
        env={"MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    ).stdout
    mine = [line for line in out.splitlines() if line.startswith(str(sample))]
    types = {
        int(m[1]): short(m[2]) for line in mine if (m := re.search(r":(\d+): note: Revealed type is \"(.+)\"", line))
    }
    errors = {int(m[1]): m[2] for line in mine if (m := re.search(r":(\d+): error: .*\[([a-z-]+)\]", line))}
    assert types == TYPES
    assert errors == MISTAKES


def test_pyright_infers_every_type_and_rejects_every_mistake_but_the_forgotten_yield(sample: Path) -> None:
    out = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", str(sample)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout
    found = json.loads(out)["generalDiagnostics"]
    types = {
        d["range"]["start"]["line"] + 1: short(re.search(r' is "(.+)"', d["message"])[1])  # type: ignore[index]
        for d in found
        if d["severity"] == "information"
    }
    errors = {d["range"]["start"]["line"] + 1 for d in found if d["severity"] == "error"}
    assert types == TYPES
    assert errors == {line for line, code in MISTAKES.items() if code != "unused-awaitable"}
