"""An `atomic` step's ORM effects exist exactly as often as its result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_app.models import StepResult
from durable_celery import RetryPolicy, Workflow, current_step, gather, step, workflow
from tests.invariants.examples import few
from tests.project.testapp.models import Effect
from tests.pump import Pump, clear_tables

pytestmark = pytest.mark.django_db(transaction=True)

ATTEMPTS = 3
POINTS = [
    "claim.before", "claim.after_commit", "body.before", "body.after", "step.in_transaction", "atomic.before_commit",
    "atomic.after_commit", "turn.before_commit", "turn.after_commit", "publish.before",
]  # fmt: skip
kills = st.tuples(st.sampled_from(POINTS), st.integers(1, 4), st.booleans())


@step(atomic=True, retry=RetryPolicy(maximum_attempts=ATTEMPTS, initial_interval=1, jitter=False))
def book(what: str, failures: int) -> str:
    """Writes before it fails, and twice where it does not."""
    Effect.objects.create(run="atomic", what=f"{what} begun")
    if current_step().attempt <= failures:
        raise RuntimeError("no luck")
    Effect.objects.create(run="atomic", what=f"{what} done")
    return what


@workflow
def booking(plan: list[int]) -> Workflow[None]:
    members = (book(str(number), failures) for number, failures in enumerate(plan))
    yield from gather(*members, return_exceptions=True)


@few
@given(st.lists(st.integers(0, ATTEMPTS), min_size=1, max_size=4), st.lists(kills, max_size=3), st.sampled_from([1, 2]))
def test_an_atomic_step_s_effects_exist_exactly_as_often_as_its_result(
    plan: list[int], deaths: list[tuple[str, int, bool]], copies: int
) -> None:
    clear_tables()
    Effect.objects.all().delete()
    with Pump(max_deaths=9, max_expiries=9) as pump:  # more than can happen here: a cap would end the step
        pump.fate = lambda hint: (0.0,) * copies
        handle = booking.start(plan)
        for point, nth, proven in deaths:
            pump.kill_at(point, nth, proven=proven)
        pump.finish()
        assert handle.status == "COMPLETED"
        agree(plan)
        for hint in list(pump.sent):
            pump.deliver(hint)
        pump.advance_time(minutes=10)
        agree(plan)


def agree(plan: list[int]) -> None:
    """Of each step both of its effects and its result, or neither."""
    ended = {row.position: row.state for row in StepResult.objects.filter(name=book.name)}
    assert len(ended) == len(plan)
    expected = sorted(
        f"{number} {effect}"
        for number in range(len(plan)) if ended[f"1.{number}"] == "SUCCEEDED"
        for effect in ("begun", "done")
    )  # fmt: skip
    assert sorted(Effect.objects.values_list("what", flat=True)) == expected
