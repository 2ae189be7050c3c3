"""Work beside the body: when it starts, who gets its value, what does not fit."""

from __future__ import annotations

from typing import Any

from durable_celery import Handle, StepFailed, Workflow, gather, race, sleep, spawn
from durable_celery.core.commands import Command
from tests.core.driver import Driver, a, b, c, shown


def test_a_spawn_goes_on_at_once_and_a_join_gets_the_value() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        x = yield from b()
        return x, (yield from handle)

    run = Driver(body)
    assert shown(run.turn()) == [
        "open spawn at 1 SCHEDULED",
        "open step core.a at 1.0 SCHEDULED in 1",
        "open step core.b at 2 SCHEDULED",
        "WAITING step core.b at 2",
    ]
    run.succeed("2", "x")
    assert shown(run.turn()) == ["take 3", "WAITING spawned step core.a at 1.0"]
    run.succeed("1.0", "y")

    assert shown(run.turn()) == ["end 1 SUCCEEDED", "take 2", "COMPLETED ('x', 'y')"]


def test_work_that_ends_while_nobody_joins_is_kept_for_whoever_does() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        yield from b()
        once = yield from handle
        again = yield from handle
        return once, again, handle.done

    run = Driver(body)
    run.turn()
    run.succeed("1.0", "v")
    assert shown(run.turn()) == ["end 1 SUCCEEDED", "take 2", "WAITING step core.b at 2"]
    run.succeed("2")

    assert run.turn().value == ("v", "v", True)


def test_an_error_is_raised_by_each_join_and_by_nothing_else() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        yield from sleep(5)
        caught = []
        for _ in range(2):
            try:
                yield from handle
            except StepFailed as error:
                caught.append(error.position)
        return caught

    run = Driver(body)
    run.turn()
    run.fail("1.0")
    assert shown(run.turn())[0] == "end 1 FAILED"
    run.pass_time(5)

    assert run.turn().value == ["1.0", "1.0"]


def test_a_bare_yield_joins_as_well() -> None:
    def body() -> Workflow[Any]:
        handle = yield spawn(a())
        return (yield handle)

    run = Driver(body)
    run.turn()
    run.succeed("1.0", 5)
    assert run.turn().value == 5


def test_spawned_work_of_many_steps_goes_on_beside_the_body() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(gather(a(), race(b(), sleep(5)), limit=1))
        yield from c()
        first, winner = yield from handle
        return first, winner.name

    run = Driver(body)
    run.turn()
    run.succeed("1.0.0", 1)
    assert "open race at 1.0.1 SCHEDULED in 1.0" in shown(run.turn())
    run.succeed("2")
    run.turn()
    run.pass_time(10)

    assert run.turn().value == (1, 1)


# -- watched by races and gathers ----------------------------------------------------------------------------------


def test_a_race_watches_handles_and_leaves_the_losers_alone() -> None:
    def body() -> Workflow[Any]:
        handles: list[Handle[Any]] = []
        for seconds in (3, 1, 2):
            handles.append((yield from spawn(sleep(seconds))))
        order = []
        while handles:
            winner = yield from race(*handles)
            handles.pop(winner.name)
            order.append(winner.name)
        return order

    run = Driver(body)
    run.turn()
    for _ in range(2):
        run.pass_time(1)
        run.turn()
        assert run.open
    run.pass_time(1)

    assert run.turn().value == [1, 1, 0]
    assert {p: s for p, s in run.states().items() if p in ("1.0", "2.0", "3.0")} == dict.fromkeys(
        ("1.0", "2.0", "3.0"), "SUCCEEDED"
    )


def test_a_gather_mixes_handles_and_commands() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        return (yield from gather(x=handle, y=b(), z=handle))

    run = Driver(body)
    assert "open gather at 2 SCHEDULED" in shown(run.turn())
    assert sorted(run.entries) == ["1", "1.0", "2", "2.1"]
    run.succeed("1.0", "a")
    run.turn()
    run.succeed("2.1", "b")

    assert run.turn().value == {"x": "a", "y": "b", "z": "a"}


def test_a_needed_gather_that_is_done_leaves_its_handles_alone() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        value = yield from gather(handle, b(), needed=1)
        return value, (yield from handle)

    run = Driver(body)
    run.turn()
    run.succeed("2.1", "b")
    run.turn()
    assert run.states()["1.0"] == "SCHEDULED"
    run.succeed("1.0", "a")

    assert run.turn().value == ((None, "b"), "a")


def test_work_may_join_other_work() -> None:
    def body() -> Workflow[Any]:
        first = yield from spawn(a())
        second = yield from spawn(gather(first, b()))
        third = yield from spawn(gather(second, first))
        return (yield from third)

    run = Driver(body)
    run.turn()
    run.succeed("2.0.1", "b")
    run.turn()
    run.succeed("1.0", "a")

    assert run.turn().value == (("a", "b"), "a")


# -- what does not fit -----------------------------------------------------------------------------------------------


def test_a_join_where_a_row_was_recorded_blocks_and_the_other_way_round() -> None:
    joins: list[bool] = [True]

    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        if joins[0]:
            yield from handle
        else:
            yield from b()
        yield from c()

    run = Driver(body)
    run.turn()
    joins[0] = False
    assert "recorded is nothing, the body now asks for step core.b" in run.turn().waiting
    other = Driver(body)
    other.turn()
    joins[0] = True
    assert "recorded is step core.b, the body now asks for handle of step core.a at 1" in other.turn().waiting


def test_a_handle_of_another_run_is_refused() -> None:
    kept: list[Handle[Any]] = []

    def body() -> Workflow[Any]:
        if not kept:
            kept.append((yield from spawn(a())))
        yield from kept[0]

    run = Driver(body, twice=False)
    run.turn()
    assert "belongs to another run of a body" in run.turn().waiting


def test_a_spawn_without_a_yield_or_of_a_generator_is_refused() -> None:
    def forgets() -> Workflow[Any]:
        spawn(a())  # type: ignore[unused-awaitable]
        yield from b()

    def helper() -> Any:
        yield from a()

    def wrong() -> Workflow[Any]:
        yield from spawn(helper())

    assert "spawn of step core.a was built at" in Driver(forgets).turn().waiting
    assert "spawn member 0 is a generator" in Driver(wrong).turn().waiting


def test_a_spawn_inside_a_gather_is_a_handle_in_its_place() -> None:
    def body() -> Workflow[Any]:
        members: list[Command[Any]] = [spawn(a()), b()]
        handle, value = yield from gather(*members)
        return value, (yield from handle)

    run = Driver(body)
    run.turn()
    run.succeed("1.1", "b")
    run.turn()
    run.succeed("1.0.0", "a")

    assert run.turn().value == ("b", "a")
