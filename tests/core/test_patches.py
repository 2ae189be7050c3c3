"""`patched`, `deprecate_patch`, `get_version`: decided once, and the same in every replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durable_celery import (
    DEFAULT_VERSION,
    NotInWorkflow,
    Signal,
    Workflow,
    WorkflowFailed,
    deprecate_patch,
    get_version,
    patched,
)
from durable_celery.errors import BadValue
from tests.core.bodies import blocked
from tests.core.driver import Driver, a, b, c

go = Signal("go", object)


def before() -> Workflow[str]:
    yield from a()
    yield from go.wait()
    yield from b()
    return "old"


def after() -> Workflow[str]:
    yield from a()
    yield from go.wait()
    if patched("check"):
        yield from c()
    yield from b()
    return "new" if patched("check") else "old"


def names(run: Driver) -> list[str]:
    return [entry.name.rpartition(".")[2] for entry in run.entries.values()]


def to_the_wait(body: Callable[..., Any]) -> Driver:
    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    return run


def test_a_run_that_has_not_passed_the_place_goes_the_new_way_and_records_it() -> None:
    run = to_the_wait(before)
    run.body = after
    run.signal("go")

    decision = run.turn()

    assert dict(decision.markers) == {"patch:check": "true"}
    run.play()
    assert (run.value, names(run)) == ("new", ["a", "go", "c", "b"])
    assert run.markers == {"patch:check": "true"}


def test_a_run_that_has_passed_the_place_goes_the_old_way_and_records_nothing() -> None:
    run = to_the_wait(before)
    run.signal("go")
    run.turn()
    run.body = after

    run.play()

    assert (run.value, names(run)) == ("old", ["a", "go", "b"])
    assert run.markers == {}


def test_the_first_evaluation_decides_for_the_runs_life_wherever_the_next_stands() -> None:
    seen: list[bool] = []

    def body() -> Workflow[None]:
        seen.append(patched("x"))
        yield from a()
        seen.append(patched("x"))
        yield from b()
        seen.append(patched("x"))

    def without() -> Workflow[None]:
        yield from a()
        yield from b()

    run = Driver(without, twice=False)
    run.turn()
    run.body = body
    run.play()
    assert set(seen) == {False}, "it stood before a yield that was passed already"
    assert run.markers == {}

    seen.clear()
    Driver(body).play()
    assert set(seen) == {True}


def test_a_new_run_has_all_its_patches() -> None:
    run = Driver(after)
    run.signal("go")
    run.play()

    assert (run.value, names(run)) == ("new", ["a", "go", "c", "b"])


def test_code_without_the_guard_does_not_fit_a_run_of_the_new_way_and_nothing_changes() -> None:
    run = Driver(after)
    run.signal("go")
    run.turn()
    run.succeed("1")
    run.turn()
    rows = dict(run.entries)
    run.body = before
    run.succeed("3")

    assert "at position 3: recorded is step core.c, the body now asks for step core.b" in blocked(run)
    assert run.entries.keys() == rows.keys()

    run.body = after
    run.play()
    assert run.value == "new"


def test_a_deprecated_patch_is_recorded_as_the_patch_would_be() -> None:
    def latest() -> Workflow[str]:
        yield from a()
        yield from go.wait()
        deprecate_patch("check")
        yield from c()
        yield from b()
        return "new"

    run = to_the_wait(latest)
    run.signal("go")
    run.turn()
    assert run.markers == {"patch:check": "true"}

    run.body = after  # a worker of the deploy before takes the next turn
    run.play()
    assert run.value == "new"


def test_a_run_of_the_old_way_is_blocked_where_it_parts_from_code_that_deprecated_the_patch() -> None:
    def latest() -> Workflow[str]:
        yield from a()
        yield from go.wait()
        deprecate_patch("check")
        yield from c()
        return "new"

    run = to_the_wait(before)
    run.signal("go")
    run.turn()
    run.body = latest
    run.succeed("3")

    assert "at position 3: recorded is step core.b, the body now asks for step core.c" in blocked(run)


def versions(minimum: int, maximum: int) -> Callable[..., Any]:
    def body() -> Workflow[int]:
        yield from a()
        version = get_version("tax", minimum, maximum)
        yield from b()
        return version

    return body


@pytest.mark.parametrize(
    ("first", "then", "value"),
    [((1, 3), (1, 3), 3), ((1, 3), (1, 4), 3), ((1, 3), (3, 5), 3), ((DEFAULT_VERSION, 1), (DEFAULT_VERSION, 2), 1)],
)
def test_a_version_is_the_newest_of_the_code_that_took_the_turn(
    first: tuple[int, int], then: tuple[int, int], value: int
) -> None:
    run = Driver(versions(*first))
    run.turn()
    run.succeed("1")
    run.turn()
    assert run.markers == {"version:tax": str(value)}
    run.body = versions(*then)
    run.play()

    assert run.value == value


@pytest.mark.parametrize("minimum", [DEFAULT_VERSION, 0, 1])
def test_a_run_that_has_passed_the_place_has_the_oldest_version(minimum: int) -> None:
    def without() -> Workflow[None]:
        yield from a()
        yield from b()

    run = Driver(without)
    run.turn()
    run.succeed("1")
    run.turn()
    run.body = versions(minimum, 2)
    run.play()

    assert (run.value, run.markers) == (minimum, {})


@pytest.mark.parametrize(
    ("bounds", "words"),
    [((4, 5), "version 3 (older than this one)"), ((1, 2), "version 3 (newer than this one)")],
)
def test_a_recorded_version_this_code_does_not_have_blocks_and_says_which_code_is_needed(
    bounds: tuple[int, int], words: str
) -> None:
    run = Driver(versions(1, 3))
    run.turn()
    run.succeed("1")
    run.turn()
    run.body = versions(*bounds)
    run.succeed("2")

    said = blocked(run)

    assert f"follows version 3 of the change 'tax', and this code has the versions {bounds[0]} to {bounds[1]}" in said
    assert f"Deploy code that has {words}" in said
    assert "body, line" in said
    assert run.decisions[-1].misfit

    run.body = versions(1, 3)
    run.play()
    assert run.value == 3


def test_no_except_of_the_body_holds_the_refusal_up() -> None:
    def swallows() -> Workflow[str]:
        yield from a()
        try:
            get_version("tax", 5, 6)
        except Exception:  # noqa: BLE001
            yield from b()
        return "swallowed"

    def turns_it_into_a_failure() -> Workflow[str]:
        yield from a()
        try:
            get_version("tax", 5, 6)
        except Exception as error:
            raise WorkflowFailed("no version") from error
        return ""

    def ends_at_once() -> Workflow[str]:
        yield from a()
        try:
            get_version("tax", 5, 6)
        except Exception:  # noqa: BLE001
            return "swallowed at once"
        return "swallowed"

    for body in (swallows, turns_it_into_a_failure, ends_at_once):
        run = Driver(versions(1, 3), fails_on=(Exception,))
        run.turn()
        run.succeed("1")
        run.turn()
        run.body = body
        run.succeed("2")
        assert "follows version 3 of the change 'tax'" in blocked(run)


def test_ids_of_patches_and_versions_do_not_meet() -> None:
    def body() -> Workflow[Any]:
        both = patched("x"), get_version("x", 1, 7)
        yield from a()
        return both

    run = Driver(body)
    run.play()

    assert run.value == (True, 7)
    assert run.markers == {"patch:x": "true", "version:x": "7"}


def test_they_take_no_position() -> None:
    def body() -> Workflow[None]:
        patched("x")
        get_version("y", 1, 2)
        deprecate_patch("z")
        yield from a()

    assert [opening.position for opening in Driver(body).turn().openings] == ["1"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: patched(""), "patched needs a text that names the change, got str ''"),
        (lambda: patched(7), "patched needs a text that names the change, got int 7"),  # type: ignore[arg-type]
        (lambda: deprecate_patch("  "), "deprecate_patch needs a text"),
        (lambda: patched("x" * 201), "has 201 characters, at most 200"),
        (lambda: patched("a\0"), "NUL"),
        (lambda: get_version("x", True, 2), "minimum=True, expected an int"),
        (lambda: get_version("x", -2, 2), "minimum=-2, expected an int from -1"),
        (lambda: get_version("x", 1, 2.0), "maximum=2.0, expected an int"),  # type: ignore[arg-type]
        (lambda: get_version("x", 3, 2), "minimum=3 over maximum=2; swap them"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(BadValue) as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize("call", [lambda: patched("x"), lambda: deprecate_patch("x"), lambda: get_version("x", 1, 2)])
def test_outside_a_body_they_say_so(call: Callable[[], Any]) -> None:
    with pytest.raises(NotInWorkflow, match="just run the new way"):
        call()
