"""Fingerprints of a body's code: the same in each process, another one after each change that matters."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from durable_celery.core.identity import fingerprint

SOURCE = """
from functools import wraps

from shop import helpers
from shop.helpers import imported

LIMIT = 3


def traced(function):
    @wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


def helper(order):
    yield order
    return deeper(order)


def deeper(order):
    return order in {"a", "b", "c", "d"}, (1, frozenset({"x", "y", "z"}))


@traced
def decorated(order):
    return order


class Money:
    def __call__(self):
        return 5


def make(inner_result):
    def inner():
        return inner_result

    def body(order, colours=("red", "blue")):
        yield from helper(order)
        decorated(order)
        helpers.through_module(order)
        imported(order)
        inner()
        return [x for x in order if x not in {"p", "q"}]

    return body


body = make(1)
"""

HELPERS = """
def through_module(order):
    return order + 1


def imported(order):
    return order + 2


def never_named(order):
    return order + 3
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    write(tmp_path)
    return tmp_path


def write(package: Path, old: str = "", new: str = "", *, name: str = "body.py") -> None:
    for file, source in (("body.py", SOURCE), ("helpers.py", HELPERS)):
        if old and file == name:
            assert old in source
            source = source.replace(old, new)
        (package / "shop" / file).write_text(source)


def printed(package: Path, **environment: str) -> str:
    """The fingerprint as a process of its own sees it."""
    script = """
        from durable_celery.core.identity import fingerprint
        from shop.body import body
        print(fingerprint(body))
    """
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(package), root]), "PYTHONDONTWRITEBYTECODE": "1"}
        | environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=package,
    )
    return done.stdout.strip()


def test_a_fingerprint_is_the_same_in_every_process(package: Path) -> None:
    seen = {printed(package, PYTHONHASHSEED=str(seed)) for seed in (0, 1, 2, 12345)}

    assert len(seen) == 1
    assert len(seen.pop()) == 16


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("body.py", "return [x for x in order", "return [x + 1 for x in order"),
        ("body.py", 'not in {"p", "q"}', 'not in {"p", "r"}'),
        ("body.py", '("red", "blue")', '("red", "green")'),
        ("body.py", "    yield order\n", "    yield order\n    yield order\n"),
        ("body.py", '{"a", "b", "c", "d"}', '{"a", "b", "c"}'),
        ("body.py", '{"x", "y", "z"}', '{"x", "y", "w"}'),
        ("body.py", "def decorated(order):\n    return order", "def decorated(order):\n    return -order"),
        ("body.py", "return inner_result", "return inner_result + 1"),
        ("helpers.py", "order + 1", "order - 1"),
        ("helpers.py", "order + 2", "order - 2"),
    ],
    ids=[
        "body",
        "set",
        "default",
        "helper",
        "helper-of-helper",
        "nested-set",
        "decorated",
        "closure",
        "module",
        "import",
    ],
)
def test_a_change_that_matters_makes_another_fingerprint(package: Path, name: str, old: str, new: str) -> None:
    before = printed(package)

    write(package, old, new, name=name)

    assert printed(package) != before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("body.py", "        decorated(order)\n", "        # a remark\n\n        decorated(order)  # another\n"),
        ("body.py", "LIMIT = 3", "LIMIT = 3\n\n\nUNUSED = 5"),
        ("helpers.py", "order + 3", "order - 3"),
        ("body.py", "        return 5", "        return 6"),
    ],
    ids=["comment", "moved", "function-not-named", "class-not-named"],
)
def test_a_change_that_does_not_matter_keeps_the_fingerprint(package: Path, name: str, old: str, new: str) -> None:
    before = printed(package)

    write(package, old, new, name=name)

    assert printed(package) == before


def test_functions_that_name_each_other_are_followed_once() -> None:
    assert fingerprint(even) == fingerprint(even)
    assert fingerprint(even) != fingerprint(odd)


def even(n: int) -> bool:
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n != 0 and even(n - 1)


def test_a_body_whose_closure_is_not_filled_yet_has_a_fingerprint() -> None:
    def body() -> int:
        return later()

    before = fingerprint(body)

    def later() -> int:
        return 7

    assert len(before) == 16
    assert fingerprint(body) != before
