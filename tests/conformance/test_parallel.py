from __future__ import annotations

from typing import Any

import pytest

from durable_celery import RetryPolicy, StepFailed, WorkflowFailed, gather, sleep, step
from tests.conformance.lives import fail, ran, run, say, start
from tests.pump import Pump

running: set[int] = set()
most: list[int] = []


@step(name="checklist.open", retry=None)
def count_open(number: int) -> int:
    """Others begin while this one runs, as on other workers, as far as the limit lets them."""
    running.add(number)
    most.append(len(running))
    pumps[0].drain()
    running.discard(number)
    return number


pumps: list[Pump] = []


@pytest.fixture(autouse=True)
def _nothing_runs(pump: Pump) -> None:
    running.clear()
    most.clear()
    pumps[:] = [pump]


def test_all_members_succeed(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(say("a"), say(2), say({"c": 3})))

    assert run(pump, body) == ("a", 2, {"c": 3})


def test_results_stand_in_the_order_of_the_members_whoever_ends_first(pump: Pump) -> None:
    pump.choose = lambda ready: len(ready) - 1

    def body() -> Any:
        return (yield from gather(*(say(n) for n in range(4))))

    assert run(pump, body) == (0, 1, 2, 3)
    assert ran == [3, 2, 1, 0]


def test_named_members_give_a_dict(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(parcel=say("p"), invoice=say("i")))

    assert run(pump, body) == {"parcel": "p", "invoice": "i"}


def test_no_members_give_nothing(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather()), (yield from gather(*[]))

    assert run(pump, body) == ((), ())


def test_one_member(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(say("alone")))

    assert run(pump, body) == ("alone",)


def test_members_of_every_kind(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(say("step"), sleep(10), gather(say("deep"), say("deeper"))))

    assert run(pump, body) == ("step", None, ("deep", "deeper"))


def test_members_nested_thrice(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(gather(gather(say(1)), say(2)), x_of(say(3))))

    def x_of(command: Any) -> Any:
        return gather(x=command)

    handle = start(body)
    pump.finish()
    assert handle.result(timeout=0) == (((1,), 2), {"x": 3})
    steps = [entry.position for entry in handle.history() if entry.kind == "step"]
    assert steps == ["1.0.0.0", "1.0.1", "1.1.0"]


def test_a_failure_is_raised_after_every_member_has_ended(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from gather(say("a"), fail("b"), say("c"))
        except StepFailed as error:
            return error.position, error.results, [e and e.message for e in error.errors]

    assert run(pump, body) == ("1.1", ["a", None, "c"], [None, "b", None])
    assert sorted(ran) == ["a", "b", "c"]


def test_the_error_of_the_lowest_failed_position_is_raised(pump: Pump) -> None:
    pump.choose = lambda ready: len(ready) - 1

    def body() -> Any:
        yield from gather(say("a"), fail("first"), fail("second"))

    with pytest.raises(WorkflowFailed, match="first"):
        run(pump, body)


def test_named_members_that_fail_are_named_in_results_and_errors(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from gather(good=say("a"), bad=fail("b"))
        except StepFailed as error:
            return error.results, error.errors["bad"].message, error.errors["good"]

    assert run(pump, body) == ({"good": "a", "bad": None}, "b", None)


def test_errors_may_stand_in_their_places(pump: Pump) -> None:
    def body() -> Any:
        values = yield from gather(say("a"), fail("b"), say("c"), return_exceptions=True)
        return values[0], isinstance(values[1], StepFailed), values[1].message, values[2]

    assert run(pump, body) == ("a", True, "b", "c")


def test_up_to_so_many_failures_are_tolerated(pump: Pump) -> None:
    def body() -> Any:
        values = yield from gather(fail("a"), say("b"), fail("c"), tolerate=2)
        return [getattr(value, "message", value) for value in values]

    assert run(pump, body) == ["a", "b", "c"]


def test_one_failure_more_than_tolerated_is_raised(pump: Pump) -> None:
    def body() -> Any:
        yield from gather(fail("a"), say("b"), fail("c"), tolerate=1)

    with pytest.raises(WorkflowFailed, match="a"):
        run(pump, body)


def test_so_many_successes_are_enough_and_the_rest_is_given_up(pump: Pump) -> None:
    def body() -> Any:
        values = yield from gather(say("a"), say("b"), sleep(days=9), needed=2)
        return values, (yield from say("went on"))

    assert run(pump, body) == (("a", "b", None), "went on")
    assert pump.now.day == 29


def test_too_few_successes_raise(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from gather(say("a"), fail("b"), fail("c"), needed=2)
        except StepFailed as error:
            return error.message, error.results

    assert run(pump, body) == ("b", ["a", None, None])


def test_a_limit_is_respected(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(*(count_open(n) for n in range(6)), limit=2))

    assert run(pump, body) == (0, 1, 2, 3, 4, 5)
    assert max(most) == 2


def test_without_a_limit_all_members_are_open_at_once(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(*(count_open(n) for n in range(4))))

    assert run(pump, body) == (0, 1, 2, 3)
    assert max(most) == 4


def test_under_a_limit_no_member_starts_after_a_failure(pump: Pump) -> None:
    def body() -> Any:
        yield from gather(fail("a"), say("never"), say("never"), limit=1)

    with pytest.raises(WorkflowFailed):
        run(pump, body)
    assert ran == ["a"]


def test_under_a_limit_tolerated_failures_stop_nothing(pump: Pump) -> None:
    def body() -> Any:
        values = yield from gather(fail("a"), say("b"), say("c"), limit=1, tolerate=1)
        return values[1:]

    assert run(pump, body) == ("b", "c")


def test_members_retry_on_their_own(pump: Pump) -> None:
    @step(name="checklist.second_time", retry=RetryPolicy(maximum_attempts=2))
    def second_time(name: str) -> str:
        ran.append(name)
        if ran.count(name) == 1:
            raise OSError("busy")
        return name

    def body() -> Any:
        return (yield from gather(second_time("a"), say("b"), second_time("c")))

    assert run(pump, body) == ("a", "b", "c")
    assert sorted(ran) == ["a", "a", "b", "c", "c"]


def test_groups_one_after_the_other(pump: Pump) -> None:
    def body() -> Any:
        first = yield from gather(say(1), say(2))
        yield from sleep(60)
        return first, (yield from gather(say(3), say(4)))

    assert run(pump, body) == ((1, 2), (3, 4))
    assert ran == [1, 2, 3, 4]


def test_a_list_of_commands_is_refused_in_favour_of_gather(pump: Pump) -> None:
    def body() -> Any:
        yield [say("a"), say("b")]

    handle = start(body)
    pump.drain()
    assert handle.status == "BLOCKED"
    assert "gather" in handle.waiting_for
    assert "test_parallel.py" in handle.waiting_for
