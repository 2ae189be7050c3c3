"""The tutorial, followed to the letter in an empty folder.

Its files written, its commands run, their output compared.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.packaging.test_installation import ROOT, surroundings, wheel

__all__ = ["wheel"]

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(600)]

BLOCK = re.compile(r"^```\{code-block\} (\w+)\n(?::caption: ([^\n]+)\n\n?)?(.*?)^```$", re.MULTILINE | re.DOTALL)
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
PATIENCE = 60


@dataclass(kw_only=True)
class Reader:
    """Somebody who does what the page says."""

    folder: Path
    programs: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def follow(self, kind: str, caption: str, text: str) -> None:
        if kind == "python":
            self.write(caption, text)
        elif caption == "in a second terminal":
            self.start(text)
        else:
            self.run(text)

    def write(self, caption: str, text: str) -> None:
        path = self.folder / caption.split(" (")[0]
        with path.open("a" if "(add" in caption else "w") as file:
            file.write(f"\n{text}")

    def start(self, text: str) -> None:
        (command,) = re.findall(r"^\$ (.+)$", text, re.MULTILINE)
        log = self.folder / f"terminal-{len(self.running)}.log"
        with log.open("wb") as output:
            self.running.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.env(), stdout=output, stderr=output,
                    start_new_session=True,
                )
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while b" ready." not in log.read_bytes():
            assert self.running[-1].poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def run(self, text: str) -> None:
        for command, expected in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            if command.startswith("pkill"):
                self.pull_the_plug()
                continue
            done = subprocess.run(
                ["bash", "-c", command], cwd=self.folder, env=self.env(), capture_output=True, text=True, check=False
            )
            output = done.stdout + done.stderr
            assert done.returncode == 0, f"$ {command}\n{output}"
            for line in filter(None, expected.splitlines()):
                assert line in output, f"$ {command}\nexpected {line!r} in:\n{output}"

    def pull_the_plug(self) -> None:
        """What the page's pkill does, but to this project's worker alone."""
        self.running[-1].kill()
        os.killpg(self.running[-1].pid, signal.SIGKILL)
        self.running[-1].wait()

    def env(self) -> dict[str, str]:
        return surroundings(self.programs)


@pytest.fixture
def reader(wheel: Path, tmp_path: Path) -> Iterator[Reader]:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    folder = tmp_path / "tutorial"
    folder.mkdir()
    made = Reader(folder=folder, programs=tmp_path / "venv" / "bin")
    subprocess.run([str(made.programs / "python"), "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    yield made
    for process in made.running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_the_tutorial_works_as_it_is_written(reader: Reader) -> None:
    blocks = BLOCK.findall(TUTORIAL)
    assert len(blocks) >= 14
    for kind, caption, text in blocks:
        reader.follow(kind, caption, text)
    log = (reader.folder / "orders.log").read_text().split("\n")
    assert sum(line == "reserve 1" for line in log) == 1
    assert sum(line.startswith("capture 1 ") for line in log) == 1
    assert sorted(line for line in log if line.startswith("release")) == ["release 2", "release 3"]
