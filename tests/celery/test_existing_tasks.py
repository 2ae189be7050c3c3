"""Existing tasks and canvases do the same as under plain Celery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import chain, chord, group
from celery.canvas import _chain

from tests.celery import existing as t
from tests.celery.existing_parts import seen
from tests.celery.existing_runs import (
    STATE,
    Told,
    durable_fixture,  # noqa: F401
    watched,
    worker_app_fixture,  # noqa: F401
)
from tests.processes import eventually


@pytest.fixture
def plain(worker_app: Any) -> Callable[[Callable[[], Any]], Told]:
    """Runs a canvas by the worker, and waits for its end."""

    def start(make: Callable[[], Any]) -> Told:
        seen.clear()
        with watched() as told, using(worker_app):
            result = make().apply_async()
            try:
                outcome = ("value", None if result is None else result.get(timeout=10, interval=0.01))
            except Exception as error:  # noqa: BLE001 - that is what is compared
                outcome = ("error", type(error).__name__)
            eventually(
                lambda: count(told, "task_postrun") == count(told, "task_prerun"), "the end of each run", seconds=5
            )
        return Told(outcome, list(seen), told)

    return start


@contextmanager
def using(app: Any) -> Iterator[None]:
    """`app` as the current one of this thread."""
    before, STATE._tls.current_app = STATE._tls.current_app, app
    try:
        yield
    finally:
        STATE._tls.current_app = before


def count(told: list[tuple[str, str]], name: str) -> int:
    return sum(1 for one in told if one[0] == name)


def only_ours(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [one for one in told if one[1].startswith("tests.")]


# -- one task ----------------------------------------------------------------------------------------------------------


SINGLE: dict[str, Callable[[], Any]] = {
    "a value": lambda: t.add.s(1, 2),
    "arguments by name": lambda: t.add.s(1, b=2),
    "no arguments": lambda: t.echo.s(),
    "a mapping as value": lambda: t.echo.s({"a": [1, None, True]}),
    "arguments the task does not name": lambda: t.echo.s(1, colour="red"),
    "an error": lambda: t.fail.s(),
    "an error it throws as expected": lambda: t.fail_as_expected.s(),
    "bind, and what the request says": lambda: t.look.s(1, second=2),
    "no limits, as the request has them": lambda: t.limits.s(),
    "limits, as the request has them": lambda: t.limits.s().set(time_limit=9, soft_time_limit=5),
    "the same id on every attempt": lambda: t.same_id.s(),
    "self.retry until it succeeds": lambda: t.retry_until.s(2),
    "self.retry beyond max_retries with an error": lambda: t.retry_with_error.s(),
    "self.retry beyond max_retries without one": lambda: t.retry_without_error.s(),
    "self.retry beyond the default of max_retries": lambda: t.retry_until.s(9),
    "max_retries in the call of self.retry": lambda: t.retry_as_often_as_asked.s(),
    "max_retries=None": lambda: t.retry_for_ever.s(6),
    "max_retries=0": lambda: t.retry_never.s(),
    "self.retry with other arguments": lambda: t.halve.s(100, by=3),
    "self.retry with other named arguments": lambda: t.renamed.s(),
    "self.retry with an eta": lambda: t.retry_at.s(0.05),
    "self.retry with an eta gone by": lambda: t.retry_at.s(-5),
    "another error after a retry": lambda: t.retry_then_other_error.s(),
    "autoretry_for": lambda: t.auto.s(2),
    "autoretry_for, used up": lambda: t.auto.s(9),
    "dont_autoretry_for": lambda: t.auto_but_not_declined.s(),
    "autoretry_for and another error": lambda: t.auto_other_error.s(),
    "hooks of a success": lambda: t.hooked.s("succeed"),
    "hooks of a failure": lambda: t.hooked.s("fail"),
    "hooks of a retry": lambda: t.hooked.s("retry"),
    "hooks of retries used up": lambda: t.hooked.s("retry for ever"),
    "before_start raises": lambda: t.never_started.s(),
    "a custom __call__": lambda: t.counted.s(7),
    "pydantic": lambda: t.take_order.s({"number": 1, "lines": ["tea"]}),
    "a message that goes back": lambda: t.rejected_once.s(),
    "immutable": lambda: t.add.si(1, 2),
    "a countdown": lambda: t.add.s(1, 2).set(countdown=0.02),
}


@pytest.mark.parametrize("behaviour", SINGLE)
def test_a_task_does_the_same_as_under_plain_celery(behaviour: str, plain: Any, durable: Any) -> None:
    expected, got = plain(SINGLE[behaviour]), durable(SINGLE[behaviour])
    assert got.outcome == expected.outcome
    assert without_ids(got.seen) == without_ids(expected.seen)
    assert only_ours(got.signals) == only_ours(expected.signals)
    assert got.signals == only_ours(got.signals), "the message that carries it is nobody's business"


def without_ids(seen: list[Any]) -> list[Any]:
    return [one for one in seen if one[0] != "id"]


# -- canvases ----------------------------------------------------------------------------------------------------------


CANVASES: dict[str, Callable[[], Any]] = {
    "a chain passes results on": lambda: chain(t.add.s(1, 2), t.add.s(10), t.add.s(100)),
    "a pipe": lambda: t.add.s(1, 2) | t.add.s(10),
    "an immutable member of a chain": lambda: chain(t.add.s(1, 2), t.add.si(4, 4), t.add.s(1)),
    "a chain of one": lambda: chain(t.add.s(1, 2)),
    "the first error ends a chain": lambda: chain(t.add.s(1, 2), t.fail.si(), t.add.s(1)),
    "a chain with a member that is run again": lambda: chain(t.retry_until.s(1), t.add.s(1)),
    "a group": lambda: group(t.add.s(1, 1), t.add.s(2, 2)),
    "a group of a generator": lambda: group(t.add.s(n, n) for n in range(3)),
    "a group of one": lambda: group(t.add.s(1, 1)),
    "a group in a group": lambda: group(group(t.add.s(1, 1), t.add.s(2, 2)), t.add.s(3, 3)),
    "a group of chains": lambda: group(t.add.s(1, 1) | t.add.s(1), t.add.s(2, 2) | t.add.s(2)),
    "a chain that ends in a group": lambda: chain(t.add.s(1, 1), group(t.add.s(10), t.add.s(20))),
    "a group of one chain that ends in a group": lambda: group(chain(t.add.s(1, 1), group(t.add.s(10), t.add.s(20)))),
    "an empty group within a chain": lambda: chain(t.add.s(1, 1), group([]), t.add.s(5)),
    "a chord": lambda: chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()),
    "a chord of a generator": lambda: chord((t.add.s(n, n) for n in range(3)), t.total.s()),
    "a chord of one": lambda: chord([t.add.s(1, 1)], t.total.s()),
    "an empty chord": lambda: chord([], t.total.s()),
    "a chord with an immutable body": lambda: chord([t.add.s(1, 1), t.add.s(2, 2)], t.add.si(5, 5)),
    "a group piped into a task": lambda: group(t.add.s(1, 1), t.add.s(2, 2)) | t.total.s(),
    "a chain with a group in the middle": lambda: chain(t.add.s(1, 1), group(t.add.s(1), t.add.s(2)), t.total.s()),
    "a chord goes on": lambda: group(t.add.s(1, 1), t.add.s(2, 2)) | t.total.s() | t.add.s(100),
    "a chord in a group": lambda: group(chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()), t.add.s(5, 5)),
    "a chord in a chord": lambda: chord(
        [chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()), t.add.s(5, 5)], t.total.s()
    ),
    "map": lambda: t.total.map([[1, 2], [3, 4]]),
    "starmap": lambda: t.add.starmap([(1, 2), (3, 4)]),
    "chunks": lambda: t.add.chunks(zip(range(5), range(5), strict=True), 2),
}


@pytest.mark.parametrize("behaviour", CANVASES)
def test_a_canvas_does_the_same_as_under_plain_celery(behaviour: str, plain: Any, durable: Any) -> None:
    expected, got = plain(CANVASES[behaviour]), durable(CANVASES[behaviour])
    assert got.outcome == expected.outcome
    assert sorted(map(repr, got.seen)) == sorted(map(repr, expected.seen))


def test_a_chord_whose_header_fails_runs_no_body_and_ends_with_the_error_of_the_header(durable: Any) -> None:
    got = durable(lambda: chord([t.add.s(1, 1), t.fail.s(), t.add.s(2, 2)], t.total.s()))
    assert got.outcome == ("error", "Declined")
    assert sorted(got.seen) == [("ran", "add", 1, 1), ("ran", "add", 2, 2), ("ran", "fail")]


def test_a_chord_in_which_chains_end_in_groups_gets_one_flat_list(durable: Any) -> None:
    tail = chain(t.add.s(1, 1), group(t.add.s(10), t.add.s(20)))
    assert durable(lambda: chord([tail, t.add.s(5, 5)], t.echo.s())).outcome == ("value", [12, 22, 10])


def test_empty_canvases_have_a_value_too(durable: Any) -> None:
    assert durable(lambda: group([])).outcome == ("value", [])
    assert durable(lambda: _chain()).outcome == ("value", None)
    assert durable(lambda: group(t.add.s(1, 1), _chain())).outcome == ("value", [2])
    assert durable(lambda: t.add.chunks([], 2)).outcome == ("value", [])


# -- what plain Celery leaves without a result -------------------------------------------------------------------------


def test_a_task_that_is_ignored_has_the_value_none(durable: Any) -> None:
    got = durable(t.ignored.s)
    assert got.outcome == ("value", None)
    assert got.seen == [("ran", "ignored")]
    assert [name for name, _ in got.signals] == ["task_prerun", "task_postrun"]


def test_autoretry_leaves_an_ignored_task_alone(durable: Any) -> None:
    assert durable(t.auto_ignores.s).seen == [("ran", "auto_ignores")]


def test_a_chain_ends_with_a_member_that_was_ignored(durable: Any) -> None:
    got = durable(lambda: chain(t.add.s(1, 2), t.ignored.si(), t.add.si(3, 4)))
    assert got.outcome == ("value", None)
    assert got.seen == [("ran", "add", 1, 2), ("ran", "ignored")]


def test_a_task_that_rejects_its_message_for_good_has_failed(durable: Any) -> None:
    got = durable(t.rejected.s)
    assert got.outcome == ("error", "Reject")
    assert got.seen == [("ran", "rejected")]
