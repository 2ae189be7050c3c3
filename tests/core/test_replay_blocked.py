"""Bodies with a bug, and bodies that do not fit their journal: BLOCKED, with nothing else decided."""

from __future__ import annotations

from durable_celery import UsageError, Workflow, sleep
from tests.core.bodies import blocked, line_of
from tests.core.driver import Driver, a, b

# -- bugs ----------------------------------------------------------------------------------------------------------


def test_a_bug_blocks_and_names_its_line() -> None:
    def body() -> Workflow[None]:
        value = yield from a()
        value["no such key"] += 1
        yield from b()

    run = Driver(body)
    run.turn()
    run.succeed("1", {})

    assert blocked(run) == f"KeyError: 'no such key' ({line_of(body, 'no such key')})"


def test_a_bug_in_a_helper_names_the_helpers_line() -> None:
    def helper() -> Workflow[None]:
        yield from a()
        int("x")

    def body() -> Workflow[None]:
        yield from helper()

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert line_of(helper, 'int("x")') in blocked(run)


def test_a_bodys_own_usage_error_is_a_bug() -> None:
    def body() -> Workflow[None]:
        yield from a()
        raise UsageError("mine")

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert blocked(run) == f"UsageError: mine ({line_of(body, 'mine')})"


def test_a_bug_while_replaying_blocks_as_itself() -> None:
    broken = False

    def body() -> Workflow[None]:
        yield from a()
        if broken:
            raise RuntimeError("deployed too early")
        yield from b()

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    run.succeed("2")
    broken = True

    assert blocked(run).startswith("RuntimeError: deployed too early")


def test_a_wrong_argument_is_a_bug_at_its_line() -> None:
    from durable_celery import step

    @step(name="core.strict")
    def strict(number: int) -> None: ...

    def body() -> Workflow[None]:
        yield from strict(1, 2)  # type: ignore[call-arg]

    text = blocked(Driver(body))

    assert "core.strict(number: 'int') -> 'None': too many positional arguments" in text
    assert line_of(body, "strict(1, 2)") in text


def test_a_bad_value_blocks_at_the_line_that_gives_it() -> None:
    def body() -> Workflow[None]:
        yield from a()
        yield from sleep(float("nan"))

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert line_of(body, "nan") in blocked(run)


def test_arguments_the_body_does_not_take_block() -> None:
    def body(order: int) -> Workflow[None]:
        yield from a(order)

    assert "missing 1 required positional argument: 'order'" in blocked(Driver(body))


def test_a_body_that_became_async_blocks() -> None:
    async def body() -> None: ...

    assert "is an async def; a workflow body is a plain generator" in blocked(Driver(body))
