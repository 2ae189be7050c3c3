"""A body that depends on the order of a set is found under other hash seeds, and one that does not is let be."""

from __future__ import annotations

import pytest

from durable_celery import NonDeterminism, UsageError, Workflow, sleep, workflow
from durable_celery.testing import Harness
from tests.testing.bodies import cleaning, last, ordered, unordered

LETTERS = set("abcdefgh")


def test_the_order_of_a_set_is_found_with_position_and_line(durable: Harness) -> None:
    run = durable.run(unordered, LETTERS)
    assert run.result == 8
    with pytest.raises(NonDeterminism) as raised:
        durable.check_replay(run)
    assert raised.value.position.startswith("2.")
    assert "unordered, line" in str(raised.value)
    assert "bodies.tag('" in str(raised.value)
    assert raised.value.instance_id == run.id


def test_a_result_that_depends_on_it_is_found(durable: Harness) -> None:
    with pytest.raises(NonDeterminism, match="the result"):
        durable.check_replay(durable.run(last, LETTERS))


def test_a_body_that_sorts_passes_also_while_it_is_open(durable: Harness) -> None:
    durable.check_replay(durable.run(ordered, LETTERS))
    durable.check_replay(durable.start(unordered, LETTERS))


def test_a_command_that_a_cancel_took_the_place_of_takes_no_position(durable: Harness) -> None:
    run = durable.start(cleaning)
    run.handle.cancel()
    durable.run_until_idle()
    run.handle.complete_step("1")
    durable.run_until_idle()
    assert run.status == "CANCELLED"
    durable.check_replay(run)


def test_a_body_inside_a_function_is_refused(durable: Harness) -> None:
    @workflow(name="bodies.inside")
    def inside() -> Workflow[None]:
        yield from sleep(1)

    run = durable.run(inside)
    with pytest.raises(UsageError, match="is not found by importing"):
        durable.check_replay(run)
