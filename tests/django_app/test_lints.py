"""What ``manage.py check`` finds in bodies: each id, with file and line, what to write, and no false alarm."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

import tests
from django_app import checks
from durable_celery import Signal, Workflow, gather, lints
from durable_celery.registry import registry
from tests.django_app import reach

ROOT = Path(tests.__file__).parents[1]
LINES = Path(reach.__file__).read_text().splitlines()
BODIES: list[Callable[..., Any]] = [
    reach.clocks, reach.throwing, reach.surroundings_, reach.reaching_out, reach.sending, reach.in_any_order,
    reach.leaving, reach.holding, reach.waiting, reach.listing, reach.fine,
]  # fmt: skip


def expected(function: Callable[..., Any]) -> Counter[tuple[int, str]]:
    """What the comments of a function ask for, line by line."""
    first = function.__code__.co_firstlineno
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(LINES[first:], first + 1):
        if line and not line.startswith((" ", ")")):
            break
        found.update((number, f"durable_celery.{id}") for id in re.findall(r"\bW1\d\d\b", line.partition("  # ")[2]))
    return found


def found(body: Callable[..., Any]) -> Counter[tuple[int, str]]:
    return Counter((finding.line, finding.id) for finding in lints.findings(body))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_each_line_gives_what_its_comment_says_and_no_other(body: Callable[..., Any]) -> None:
    assert found(body) == expected(body)


def test_every_rule_has_a_line_that_breaks_it() -> None:
    broken = {id for body in BODIES for _, id in expected(body)}
    assert broken == {rule.id for rule in lints.RULES}


def test_plain_functions_and_generators_of_the_package_are_followed() -> None:
    assert found(reach.through_helpers) == expected(reach.further) + expected(reach.by_chance)
    functions = {finding.function for finding in lints.findings(reach.through_helpers)}
    assert functions == {"further", "by_chance"}


class Clerk:
    def work(self) -> Workflow[None]:
        time.time()
        yield from gather()

    @classmethod
    def rest(cls) -> Workflow[None]:
        random.random()
        yield from gather()


def test_a_body_that_is_a_method_is_read_as_a_function_is() -> None:
    assert [finding.id for finding in lints.findings(Clerk().work)] == ["durable_celery.W101"]
    assert [finding.id for finding in lints.findings(Clerk.rest)] == ["durable_celery.W102"]


def test_a_finding_says_where_what_and_what_to_write() -> None:
    finding = next(f for f in lints.findings(reach.throwing) if "r.randint" in f.what)
    assert (finding.id, finding.file, finding.function) == ("durable_celery.W102", reach.__file__, "throwing")
    assert finding.what == "r.randint(...)"
    assert "random() of durable_celery" in finding.instead


def test_a_sleep_in_place_is_answered_by_a_durable_one() -> None:
    (finding,) = [f for f in lints.findings(reach.clocks) if "sleep" in f.what]
    assert "yield from sleep(...)" in finding.instead


def module_of(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module written there, of a package of its own."""
    (tmp_path / "linted.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("linted", None)
    import linted  # type: ignore[import-not-found]

    return linted


def test_conditions_without_a_time_out_wait_for_ever_unless_they_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linted = module_of(
        tmp_path,
        """
        from durable_celery import Signal
        go = Signal("linted.go")
        def body(ready):
            from durable_celery import race, sleep, wait_until
            yield from wait_until(lambda: ready)
            yield from wait_until(lambda: ready, 3)
            yield from wait_until(lambda: ready, timeout=3)
            yield from race(go=go.wait(), late=sleep(3), ready=wait_until(lambda: ready))
        """,
        monkeypatch,
    )
    assert found(linted.body) == Counter({(6, "durable_celery.W110"): 1})


def test_what_cannot_be_read_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, Any] = {}
    exec("import time\ndef body():\n    yield time.time()\n", scope)  # a body without a file
    assert lints.findings(scope["body"]) == []
    assert lints.findings(print) == []
    linted = module_of(tmp_path, "import time\ndef body():\n    yield time.time()\n", monkeypatch)
    (tmp_path / "linted.py").write_text("def (:\n")
    assert lints.findings(linted.body) == []


def test_a_source_that_was_changed_since_is_not_taken_for_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linted = module_of(tmp_path, "import time\ndef body():\n    yield time.time()\n", monkeypatch)
    (tmp_path / "linted.py").write_text("import time\n\n\ndef other():\n    yield time.time()\n")
    assert lints.findings(linted.body) == []


# -- manage.py check ---------------------------------------------------------------------------------------------------


def test_the_check_names_file_line_and_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_workflows", {("reach.fine", 1): Definition(reach.through_helpers)})
    monkeypatch.chdir(ROOT)
    first = run_checks(tags=["durable_celery"])[0]
    line = next(number for number, text in enumerate(LINES, 1) if "return clock()" in text)
    assert str(first) == (
        f"tests/django_app/reach.py:{line}: (durable_celery.W101) Workflow reach.fine, further(): clock(): on replay "
        "the body would see another value and no longer fit its journal.\n\tHINT: Write now() of durable_celery: the "
        "time of the turn, the same on replay. If it is fine as it is, end the line with '# durable: ok'."
    )


def test_what_several_workflows_share_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = {("one", 1): Definition(reach.through_helpers), ("two", 1): Definition(reach.helped)}
    monkeypatch.setattr(registry, "_workflows", shared)
    assert len(run_checks(tags=["durable_celery"])) == 2


class Definition:
    def __init__(self, body: Callable[..., Any]) -> None:
        self.body = body


def test_the_workflows_of_the_test_project_are_clean() -> None:
    files = [str(message.obj) for message in checks.check_bodies(None)]
    assert [file for file in files if "tests/project/" in file] == []


def test_the_example_project_is_clean() -> None:
    command = [sys.executable, "manage.py", "check", "--fail-level", "WARNING"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "project.settings"}
    done = subprocess.run(
        command, cwd=ROOT / "example_project", env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0, "System check identified no issues (0 silenced).\n", ""
    )  # fmt: skip


def test_a_body_in_the_documented_style_is_clean() -> None:
    assert lints.findings(fulfil_order) == []


approved = Signal("lints.approved")
LIMIT = 100


def fulfil_order(order_id: int) -> Workflow[Any]:
    order = yield from reach.work(order_id)
    receipt = yield from reach.work(order.id, order.total).compensate_with(reach.work)
    if order.total > LIMIT:
        yield from approved.wait(timeout=timedelta(days=3))
    parcel, _ = yield from gather(reach.work(order.id), reach.work(receipt))
    try:
        return (yield from reach.work(parcel))
    finally:
        yield from reach.work("tidy up")


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_lists_each_id_with_its_reason_and_its_replacement() -> None:
    page = (ROOT / "docs" / "checks.md").read_text()
    rows = {cells[1]: cells for line in page.splitlines() if len(cells := [c.strip() for c in line.split("|")]) == 7}
    for rule in lints.RULES:
        assert rows[f"`W{rule.number}`"][2::2] == [rule.name, rule.why, ""], rule.number
        assert rows[f"`W{rule.number}`"][5] == rule.instead
    ids = {f"W{rule.number}" for rule in lints.RULES}
    assert set(re.findall(r"^\| `(W1\d\d)`", page, re.MULTILINE)) == ids
    source = (ROOT / "django_app" / "checks.py").read_text()
    assert set(re.findall(r'id="durable_celery\.(\w+)"', source)) == set(re.findall(r"^\| `([EW]0\d\d)`", page, re.M))
    assert "checks\n" in (ROOT / "docs" / "index.md").read_text()
