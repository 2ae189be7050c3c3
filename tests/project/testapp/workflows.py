"""Workflows that most tests can use; a test with a shape of its own defines it beside itself."""

from __future__ import annotations

from datetime import timedelta

from durable_celery import Signal, Workflow, gather, sleep, workflow
from tests.project.testapp import case_atomic as case_atomic
from tests.project.testapp import case_cancelling as case_cancelling
from tests.project.testapp import case_children as case_children
from tests.project.testapp import case_clocks as case_clocks
from tests.project.testapp import case_connections as case_connections
from tests.project.testapp import case_errors as case_errors
from tests.project.testapp import case_joins as case_joins
from tests.project.testapp import case_kills as case_kills
from tests.project.testapp import case_modes as case_modes
from tests.project.testapp import case_neighbours as case_neighbours
from tests.project.testapp import case_transactions as case_transactions
from tests.project.testapp import case_updates as case_updates
from tests.project.testapp import case_versions as case_versions
from tests.project.testapp import case_waiting as case_waiting
from tests.project.testapp.steps import die, flaky, linger, say

approved = Signal("approved", str)


@workflow
def sequence(run: str, count: int) -> Workflow[list[str]]:
    results = []
    for number in range(count):
        results.append((yield from say(run, f"step {number}")))
    return results


@workflow
def parallel(run: str, count: int) -> Workflow[list[str]]:
    return list((yield from gather(*(say(run, f"member {number}") for number in range(count)))))


@workflow
def retrying(run: str, failures: int) -> Workflow[int]:
    return (yield from flaky(run, "flaky", failures))


@workflow
def napping(run: str, seconds: float) -> Workflow[str]:
    yield from say(run, "before")
    yield from sleep(timedelta(seconds=seconds))
    return (yield from say(run, "after"))


@workflow(key=lambda run: run)
def approval(run: str) -> Workflow[str]:
    yield from say(run, "asked")
    answer = yield from approved.wait(timeout=timedelta(days=3))
    return (yield from say(run, f"approved by {answer}"))


@workflow
def lingering(run: str, gate: str, seconds: float = 60) -> Workflow[str]:
    yield from linger(run, "lingering", gate, seconds)
    return (yield from say(run, "done"))


@workflow
def flying(run: str, seconds: float) -> Workflow[None]:
    """A step and a sleep in turn, for as long as it is left alone."""
    while True:
        yield from say(run, "flew")
        yield from sleep(seconds)


@workflow
def dying(run: str, marks: str, deaths: int) -> Workflow[int]:
    return (yield from die(run, marks, deaths))
