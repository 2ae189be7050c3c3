"""The benchmark of the edited loan, small: both checkouts, both workers, every rule of its report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import EXAMPLE

ROOT = EXAMPLE.parent
DATABASE, BROKER = os.environ.get("TEST_DB", "sqlite"), os.environ.get("TEST_BROKER", "memory")

pytestmark = [pytest.mark.engine, pytest.mark.kill]


@pytest.mark.timeout(400)
def test_an_edit_goes_out_under_open_loans_and_blocks_none(tmp_path: Path) -> None:
    output = tmp_path / "report.txt"
    command = [sys.executable, str(ROOT / "benchmarks" / "loan_deploy.py"), "--instances", "40", "--deadline", "360"]
    command += ["--database", DATABASE, "--broker", BROKER, "--concurrency", "1", "--output", str(output)]
    own = {"DJANGO_SETTINGS_MODULE", "TEST_RUN", "TEST_BROKER_URL"}
    env = {name: value for name, value in os.environ.items() if name not in own}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=390)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    report = output.read_text()
    figures = {line[:44].strip(): line[44:].strip() for line in report.splitlines() if len(line) > 44}
    assert figures["instances started"] == "40"
    assert figures["blocked, ever"] == "0"
    assert figures["lost"] == "0"
    assert int(figures["with the new step"]) + int(figures["without it by rule"]) == 40
    assert int(figures["with the new step"]) >= 8, "those approved after the old workers had gone"
    assert int(figures["without it by rule"]) >= 8, "those paid out before the new workers came"
    assert "BROKEN" not in report
    assert '+    if patched("2026-11-compliance-check"):' in report
