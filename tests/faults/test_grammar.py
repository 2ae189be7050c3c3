"""What DURABLE_CELERY_FAULT may say, what each kind does in this process, and the table of points."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from durable_celery import faults, runtime
from durable_celery.faults.grammar import Fault, parse

ROOT = Path(__file__).parents[2]
FOREVER = float("inf")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("claim.before:kill", Fault(text="claim.before:kill", point="claim.before", kind="kill")),
        ("body.*:stop=2m:3", Fault(text="body.*:stop=2m:3", point="body.*", kind="stop", seconds=120, first=3, last=3)),
        ("app.mine:raise:2+", Fault(text="app.mine:raise:2+", point="app.mine", kind="raise", first=2, last=FOREVER)),
        (
            "message.step:delay=500ms:2.5%",
            Fault(text="message.step:delay=500ms:2.5%", point="message.step", kind="delay", seconds=0.5, last=FOREVER,
                  chance=0.025),
        ),
        ("clock=-1.5h", Fault(text="clock=-1.5h", point="", kind="clock", seconds=-5400)),
    ],
)  # fmt: skip
def test_a_fault_is_read(text: str, expected: Fault) -> None:
    assert parse(f" {text} ;, ") == (expected,)


def test_several_are_separated() -> None:
    assert [fault.kind for fault in parse("body.before:raise, claim.*:cut;message.*:drop:*")] == [
        "raise",
        "cut",
        "drop",
    ]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("turn.begins", "there is no kind ''"),
        ("turn.begins:explode", "there is no kind 'explode'"),
        (":kill", "there is no point ''"),
        ("nowhere:kill", "there is no point 'nowhere'"),
        ("turn.*x:kill", "there is no point 'turn.*x'"),
        ("turn.begins:kill:x", "'x' says no time"),
        ("turn.begins:kill:0", "'0' says no time"),
        ("turn.begins:kill=3", "kill takes no duration"),
        ("turn.begins:stop", "stop needs a duration, got ''"),
        ("turn.begins:stop=-3", "stop needs a duration, got '-3'"),
        ("message.turn:delay=3d", "delay needs a duration, got '3d'"),
        ("clock=soon", "clock needs a duration, got 'soon'"),
        ("turn.begins:drop", "no message is sent at turn.begins, and drop is for those"),
        ("*.*:drop", r"no message is sent at *.*, and drop is for those"),
    ],
)
def test_anything_else_is_refused_with_what_was_expected(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is no fault: {wrong}")) as refused:
        parse(text)
    assert "Expected POINT:KIND[=DURATION][:WHEN]" in str(refused.value)


# -- at points ---------------------------------------------------------------------------------------------------------


def test_a_hook_sees_each_point_until_it_is_taken_away() -> None:
    seen: list[str] = []
    faults.set_hook(seen.append)
    faults.reach("a")
    faults.set_hook(None)
    faults.reach("b")
    assert seen == ["a"]


def test_raise_is_due_when_it_says_and_no_longer_than_its_block() -> None:
    with faults.injected("body.before:raise:2") as injection:
        faults.reach("body.before")
        faults.reach("body.after")
        with pytest.raises(faults.InjectedFault, match=r"body\.before:raise:2 at body\.before"):
            faults.reach("body.before")
        faults.reach("body.before")
    assert injection.struck == {"body.before:raise:2": 1}
    with faults.injected("body.before:raise:2+"):
        faults.reach("body.before")
        for _ in range(2):
            with pytest.raises(faults.InjectedFault):
                faults.reach("body.before")
    faults.reach("body.before")


def test_the_clock_is_off_from_the_start_or_from_a_point_on() -> None:
    clock = runtime.Clock(None)  # type: ignore[arg-type]
    minutes = timedelta(minutes=1)

    def off() -> float:
        return round((clock.local() - datetime.now(timezone.utc)) / minutes)

    with faults.injected("clock=5m, tick.begins:clock=-7m:2"):
        assert off() == 5
        faults.reach("tick.begins")
        assert off() == 5
        faults.reach("tick.begins")
        assert off() == -7
    assert off() == 0


# -- to messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sent", "told"),
    [
        ("drop", ["a", "c"], [True, False, True]),
        ("lose", ["a", "c"], [True, True, True]),
        ("unconfirmed", ["a", "b", "c"], [True, False, True]),
        ("double", ["a", "b", "b", "c"], [True, True, True]),
        ("delay=3", ["a", "b 3.0 later", "c"], [True, True, True]),
        ("reorder", ["a", "c", "b"], [True, True, True]),
    ],
)
def test_a_message_fault_changes_what_is_sent_and_what_its_sender_believes(
    kind: str, sent: list[str], told: list[bool]
) -> None:
    out: list[str] = []

    def send(message: Any, later: float) -> None:
        out.append(f"{message} {later} later" if later else message)

    with faults.injected(f"message.turn:{kind}:2, message.step:raise"):
        answers = [faults.post("message.turn", message, send) for message in "abc"]
    assert (out, answers) == (sent, told)
    assert faults.post("message.turn", "d", send)
    assert out[-1] == "d"


def test_a_message_is_a_point_as_well() -> None:
    out: list[str] = []
    with faults.injected("message.step:cut"), pytest.raises(ConnectionResetError):
        faults.post("message.step", "a", lambda message, later: out.append(message))
    assert out == []


# -- the table ---------------------------------------------------------------------------------------------------------


def strings(path: Path) -> Iterator[tuple[bool, str]]:
    """Every text in a module, and whether it is what ``faults.reach`` or ``faults.post`` is given."""
    tree = ast.parse(path.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    given = {id(call.args[0]) for call in calls if call.func.attr in ("reach", "post") and call.args}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield id(node) in given, node.value


def test_the_table_holds_the_points_that_the_code_reaches_and_no_other() -> None:
    files = [path for package in ("durable_celery", "django_app") for path in (ROOT / package).rglob("*.py")]
    found = [each for path in files if path.parent.name != "faults" for each in strings(path)]
    reached = {text for is_point, text in found if is_point}
    assert len(reached) > 30
    assert reached - set(faults.POINTS) == set()
    assert set(faults.POINTS) - {text for _, text in found} == set(), "nothing reaches these"


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs/faults.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z]+\.[a-z_]+)` \| (.+) \|$", page, re.MULTILINE))
    assert rows == faults.POINTS
