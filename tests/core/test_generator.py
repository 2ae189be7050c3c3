"""Leaving a suspended body: what runs at the end of a turn, what does not, and a body that refuses."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_celery import (
    Saga,
    Signal,
    Workflow,
    current_workflow,
    gather,
    get_logger,
    now,
    random,
    set_status,
    side_effect,
    sleep,
    sleep_until,
    uuid4,
)
from durable_celery.core import scope
from durable_celery.core.scope import Teardown
from tests.core.driver import BEGIN, Driver, a, b, c

# -- O-21 ----------------------------------------------------------------------------------------------------------


def releasing(released: list[str]) -> Callable[[], Workflow[None]]:
    def body() -> Workflow[None]:
        try:
            yield from a()
            yield from sleep(5)
            yield from b()
        finally:
            released.append("released")
            yield from c()

    return body


def counted(run: Driver) -> list[str]:
    """The names of all steps a run ever asked for."""
    return [entry.name for entry in run.entries.values() if entry.name]


def test_o21_a_yielded_cleanup_runs_once_at_the_end_of_a_success() -> None:
    released: list[str] = []

    run = Driver(releasing(released)).play()

    assert run.state == "COMPLETED"
    assert len(run.decisions) == 5
    assert counted(run) == ["core.a", "core.b", "core.c"]
    assert len(released) == 2 * 5  # plain code runs at each suspension too: each turn is decided twice


def test_o21_a_yielded_cleanup_runs_once_at_the_end_of_a_failure() -> None:
    run = Driver(releasing([])).play(lambda entry: ValueError("no luck") if entry.name == "core.b" else None)

    assert run.state == "FAILED"
    assert counted(run) == ["core.a", "core.b", "core.c"]


def test_o21_no_turn_but_the_last_opens_the_cleanup() -> None:
    run = Driver(releasing([])).play()

    opened = [[opening.name for opening in decision.openings] for decision in run.decisions]
    assert opened == [["core.a"], [""], ["core.b"], ["core.c"], []]


def test_o21_nothing_of_a_closed_body_is_left_to_the_garbage_collector() -> None:
    ran: list[str] = []
    run = Driver(releasing(ran))
    run.turn()
    before = len(ran)

    gc.collect()

    assert len(ran) == before
    assert not [x for x in gc.get_objects() if isinstance(x, types.GeneratorType) and x.gi_code is run.body.__code__]


def test_o21_python_says_nothing_on_stderr() -> None:
    script = """
        import gc
        from durable_celery import Signal, gather, sleep
        from tests.core.driver import Driver, a, b, c

        def helper(kept):
            try:
                yield from b()
                yield from Signal("go").wait(timeout=9)
            finally:
                yield from gather(kept, sleep(3))

        def body():
            kept = a("built before, yielded while closing")
            try:
                try:
                    yield from a()
                    yield from helper(kept)
                finally:
                    yield from c()
            except BaseException:
                yield from c()
                raise

        run = Driver(body)
        for _ in range(4):
            run.turn()
            gc.collect()
            run.end(run.open_steps(), lambda entry: 1)
        assert run.turns == 4, run.error
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_o21_bodies_are_driven_and_left_on_many_threads_at_once() -> None:
    start = threading.Barrier(8)
    results: list[tuple[str, list[str]]] = []

    def play() -> None:
        start.wait()
        for _ in range(20):
            run = Driver(releasing([])).play()
            results.append((run.state, counted(run)))

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [("COMPLETED", ["core.a", "core.b", "core.c"])] * 160
    assert scope.active() is None


# -- what a body may try while it is left --------------------------------------------------------------------------


HELPERS: dict[str, Callable[[], object]] = {
    "step": a,
    "sleep": lambda: sleep(1),
    "sleep_until": lambda: sleep_until(BEGIN),
    "signal": lambda: Signal("go").wait(),
    "gather": gather,
    "now": now,
    "uuid4": uuid4,
    "random": random,
    "side_effect": lambda: side_effect(lambda: pytest.fail("ran while closing")),
    "set_status": lambda: set_status("x"),
    "current_workflow": current_workflow,
    "get_logger": get_logger,
}


@pytest.mark.parametrize("name", HELPERS)
def test_every_helper_raises_while_the_body_is_left(name: str) -> None:
    raised: list[type[BaseException]] = []

    def body() -> Workflow[None]:
        try:
            yield from a()
        except GeneratorExit:
            try:
                HELPERS[name]()
            except BaseException as error:
                raised.append(type(error))
                raise

    run = Driver(body)
    decision = run.turn()

    assert raised == [Teardown, Teardown]
    assert (decision.state, len(decision.openings), decision.markers) == ("WAITING", 1, {})


def test_a_logger_made_before_raises_while_the_body_is_left() -> None:
    raised: list[type[BaseException]] = []

    def body() -> Workflow[None]:
        log = get_logger("core")
        try:
            yield from a()
        finally:
            try:
                log.error("bye")
            except BaseException as error:
                raised.append(type(error))

    Driver(body).turn()

    assert raised == [Teardown, Teardown]


def test_an_error_in_finally_while_the_body_is_left_is_nobodys_concern() -> None:
    def body() -> Workflow[None]:
        try:
            yield from a()
        finally:
            raise ValueError("only while closing") if closing() else LookupError

    assert Driver(body).turn().state == "WAITING"


def closing() -> bool:
    return isinstance(sys.exc_info()[1], GeneratorExit)


def test_a_command_built_before_and_yielded_while_the_body_is_left_is_discarded() -> None:
    def body() -> Workflow[None]:
        cleanup = c()
        saga = Saga()
        saga.add(b())
        try:
            yield from a()
        finally:
            yield from saga.compensate()
            yield from cleanup

    run = Driver(body)

    assert [opening.name for opening in run.turn().openings] == ["core.a"]
    run.succeed("1")
    assert [opening.name for opening in run.turn().openings] == ["core.b"]
    run.succeed("2")
    assert [opening.name for opening in run.turn().openings] == ["core.c"]
    run.succeed("3")
    assert run.turn().state == "COMPLETED"


def test_nested_helpers_with_yields_in_finally_are_left_level_by_level() -> None:
    def nested(depth: int) -> Workflow[None]:
        try:
            yield from a() if depth == 0 else nested(depth - 1)
        finally:
            yield from b(depth)

    def body() -> Workflow[None]:
        yield from nested(5)

    run = Driver(body).play()

    assert (run.state, counted(run)) == ("COMPLETED", ["core.a", *["core.b"] * 6])
