"""What replay leaves out: arguments whose row is there are not encoded again; whatever is new is as it was built."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import Workflow, calls, step
from tests.core.bodies import blocked
from tests.core.driver import Driver, a, b


@step(name="cost.two")
def two(first: Any, second: Any = None) -> Any: ...


def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []
    plain = calls.encode_values

    def note(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        seen.append(args)
        return plain(name, args, kwargs)

    monkeypatch.setattr(calls, "encode_values", note)
    return seen


def test_arguments_of_recorded_steps_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = encoded(monkeypatch)

    def body() -> Workflow[None]:
        for number in range(20):
            yield from a(number, f"row {number}", True, None)

    Driver(body, twice=False).play()

    assert seen == [(number, f"row {number}", True, None) for number in range(20)]


def test_what_somebody_could_change_is_encoded_where_it_is_built() -> None:
    def body() -> Workflow[None]:
        yield from a()
        names = ["ann"]
        later = b(names, 7)
        names.append("bea")
        yield from a()
        yield from later

    run = Driver(body)
    run.play()

    assert run.entries["3"].args == '[[["ann"],7],{}]'


def test_a_command_built_while_replaying_and_yielded_later_has_its_arguments() -> None:
    def body() -> Workflow[None]:
        later = b(7, "ann")
        yield from a()
        yield from later

    run = Driver(body)
    run.play()

    assert run.entries["2"].args == '[[7,"ann"],{}]'


@pytest.mark.parametrize("value", [1.5, "x" * 300, 10**30, float("nan"), object()])
def test_what_might_be_refused_is_encoded_at_once(value: Any) -> None:
    assert not calls.never_change((value,), {})
    assert not calls.never_change((1,), {"named": 1})


def test_a_call_the_body_would_refuse_is_refused_each_time() -> None:
    def body() -> Workflow[None]:
        yield from two(1, 2)
        yield from two(1, second=2)
        yield from two(1, 2, 3)  # type: ignore[call-arg]

    run = Driver(body)
    for position in ("1", "2"):
        run.turn()
        run.succeed(position)

    assert "cost.two(first: 'Any', second: 'Any' = None)" in blocked(run)
    assert "too many positional arguments" in blocked(run)
