from __future__ import annotations

from collections.abc import Callable
from typing import Any

from durable_celery import (
    DEFAULT_VERSION,
    continue_as_new,
    deprecate_patch,
    get_version,
    patched,
    sleep,
    workflow,
)
from tests.conformance.lives import numbers, ran, say
from tests.pump import Pump, release


def old() -> Any:
    yield from say("old")
    yield from sleep(60)
    yield from say("end")


def guarded() -> Any:
    yield from say("new" if patched("way") else "old")
    yield from sleep(60)
    yield from say("end")


def guards_later() -> Any:
    yield from say("old")
    yield from sleep(60)
    yield from say("new end" if patched("way") else "end")


def deprecated() -> Any:
    deprecate_patch("way")
    yield from say("new")
    yield from sleep(60)
    yield from say("end")


def deployed(pump: Pump, before: Callable[..., Any], after: Callable[..., Any]) -> Any:
    """An instance begun by one release and ended by the next."""
    name = f"checklist.{next(numbers)}"
    handle = release(name, before).start()
    pump.advance_time(30)
    release(name, after)
    pump.advance_time(60)
    return handle


def test_a_new_run_goes_the_patched_way(pump: Pump) -> None:
    handle = deployed(pump, guarded, guarded)
    assert (handle.status, ran) == ("COMPLETED", ["new", "end"])


def test_a_run_that_has_passed_the_place_keeps_the_old_way(pump: Pump) -> None:
    handle = deployed(pump, old, guarded)
    assert (handle.status, ran) == ("COMPLETED", ["old", "end"])


def test_a_run_that_has_not_come_to_the_place_takes_the_new_way(pump: Pump) -> None:
    handle = deployed(pump, old, guards_later)
    assert (handle.status, ran) == ("COMPLETED", ["old", "new end"])


def test_a_deprecated_patch_lets_runs_of_the_new_way_go_on(pump: Pump) -> None:
    handle = deployed(pump, guarded, deprecated)
    assert (handle.status, ran) == ("COMPLETED", ["new", "end"])


def test_one_patch_gives_one_answer_wherever_it_is_asked(pump: Pump) -> None:
    def twice() -> Any:
        yield from say(patched("way"))
        yield from sleep(60)
        yield from say(patched("way"))

    handle = deployed(pump, twice, twice)
    assert (handle.status, ran) == ("COMPLETED", [True, True])


def test_a_version_is_the_newest_for_new_runs_and_stays(pump: Pump) -> None:
    def of(maximum: int) -> Any:
        def body() -> Any:
            yield from say(get_version("tax", DEFAULT_VERSION, maximum))
            yield from sleep(60)
            yield from say(get_version("tax", DEFAULT_VERSION, maximum))

        return body

    handle = deployed(pump, of(1), of(2))
    assert (handle.status, ran) == ("COMPLETED", [1, 1])


def test_a_version_of_a_run_before_the_first_change_is_the_minimum(pump: Pump) -> None:
    def body() -> Any:
        yield from say("old" if get_version("tax", DEFAULT_VERSION, 1) == DEFAULT_VERSION else "new")
        yield from sleep(60)

    handle = deployed(pump, old, body)
    assert (handle.status, ran) == ("COMPLETED", ["old"])


def test_an_unguarded_change_blocks_and_a_fixed_release_goes_on(pump: Pump) -> None:
    name = f"checklist.{next(numbers)}"
    handle = release(name, old).start()
    pump.advance_time(30)

    def changed() -> Any:
        yield from sleep(1)

    release(name, changed)
    pump.advance_time(60)
    assert handle.status == "BLOCKED"
    assert "position 1" in handle.waiting_for
    release(name, old)
    pump.advance_time(60)
    assert (handle.status, ran) == ("COMPLETED", ["old", "end"])


def test_a_run_keeps_the_version_it_was_started_with(pump: Pump) -> None:
    name = f"checklist.{next(numbers)}"

    @workflow(name=name, version=1)
    def first() -> Any:
        yield from sleep(60)
        yield from say("first")

    handle = first.start()
    pump.advance_time(30)

    @workflow(name=name, version=2)
    def second() -> Any:
        yield from say("second")

    second.start()
    pump.finish()
    assert (handle.status, ran) == ("COMPLETED", ["second", "first"])


def test_continue_as_new_takes_the_highest_version(pump: Pump) -> None:
    name = f"checklist.{next(numbers)}"

    @workflow(name=name, version=1)
    def first() -> Any:
        yield from say("first")
        yield from sleep(60)
        return (yield from continue_as_new())

    handle = first.start()
    pump.advance_time(30)

    @workflow(name=name, version=2)
    def second() -> Any:
        return (yield from say("second"))

    del second
    pump.finish()
    assert (handle.result(timeout=0), ran) == ("second", ["first", "second"])
