"""Type checkers know what a workflow gets, reject each planted mistake, and accept what the documentation shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Page

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = ("sample", "mistakes")
STRICT = ["--strict", "--enable-error-code", "unused-awaitable", "--config-file", "/dev/null"]
FORGOTTEN = "unused-awaitable"  # mypy's alone
# Of an example's test the fixtures need no types; the rest of the page is strict.
UNTYPED = re.compile(r"error: (Function is missing a type annotation|Call to untyped function \"test_)")


def planted(name: str, what: str) -> dict[int, str]:
    """By line: the type that the comment names, or the error."""
    lines = (HERE / f"{name}.txt").read_text().splitlines()
    return {number: m[1] for number, line in enumerate(lines, 1) if (m := re.search(rf"# {what} (.+)$", line))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The planted files and the pages, as modules."""
    path = tmp_path_factory.mktemp("typing")
    for name in FILES:
        (path / f"{name}.py").write_text((HERE / f"{name}.txt").read_text())
    for page in PAGES:
        (path / f"{page.name}.py").write_text(page.code)
    return path


@pytest.fixture(scope="module")
def mypy(folder: Path) -> list[str]:
    """What mypy says of all of them, its types shortened."""
    files = [str(path) for path in sorted(folder.glob("*.py"))]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *STRICT, "--cache-dir", str(folder / "cache"), *files],
        capture_output=True, text=True, env={"MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def pyright(folder: Path) -> list[dict[str, object]]:
    """What pyright says of them."""
    return pyright_of(folder)


def pyright_of(path: Path) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(path)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 0
    return [
        {"file": Path(each["file"]).stem, "line": each["range"]["start"]["line"] + 1, "text": each["message"],
         "severity": each["severity"]}
        for each in found["generalDiagnostics"]
    ]  # fmt: skip


def short(text: str) -> str:
    return re.sub(r"\b[a-z_]+\.(?=[A-Za-z])", "", text)


@pytest.mark.parametrize("name", FILES)
def test_mypy_infers_every_type_and_rejects_every_mistake(name: str, folder: Path, mypy: list[str]) -> None:
    mine = [line for line in mypy if line.startswith(f"{folder / name}.py:")]
    revealed = [m for line in mine if (m := re.search(r":(\d+): note: Revealed type is \"(.+)\"", line))]
    wrong = [m for line in mine if (m := re.search(r":(\d+): error: .*\[([a-z-]+)\]", line))]
    assert {int(m[1]): short(m[2]) for m in revealed} == planted(name, "is")
    expected = planted(name, "error")
    assert {int(m[1]) for m in wrong} == set(expected)
    assert set(expected.items()) <= {(int(m[1]), m[2]) for m in wrong}


@pytest.mark.parametrize("name", FILES)
def test_pyright_does_so_too_but_for_the_forgotten_yield(name: str, pyright: list[dict[str, object]]) -> None:
    mine = [each for each in pyright if each["file"] == name]
    types = {
        each["line"]: short(re.search(r' is "(.+)"', str(each["text"]))[1])  # type: ignore[index]
        for each in mine
        if each["severity"] == "information"
    }
    assert types == planted(name, "is")
    wrong = {each["line"] for each in mine if each["severity"] == "error"}
    assert wrong == {line for line, code in planted(name, "error").items() if code != FORGOTTEN}


def test_there_are_mistakes_of_each_kind() -> None:
    codes = list(planted("mistakes", "error").values())
    assert len(codes) >= 75
    assert codes.count(FORGOTTEN) >= 12
    assert {"arg-type", "call-arg", "assignment", "attr-defined", "return-value", FORGOTTEN} <= set(codes)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_both_accept_the_page(page: Page, folder: Path, mypy: list[str], pyright: list[dict[str, object]]) -> None:
    mine = [line for line in mypy if line.startswith(f"{folder / page.name}.py:") and ": error: " in line]
    assert [line for line in mine if not UNTYPED.search(line)] == []
    assert [each for each in pyright if each["file"] == page.name and each["severity"] == "error"] == []


def test_pyright_accepts_the_example_project() -> None:
    """So does mypy, by the project's own settings: `make check`."""
    found = pyright_of(ROOT / "example_project")
    assert [each for each in found if each["severity"] == "error"] == []
