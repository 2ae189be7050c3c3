"""O-15: a member of a fan-out that is executed twice counts once; the join asks the rows and keeps no counter."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import StepAttempt, StepResult
from durable_celery import Workflow, current_workflow, gather, runtime, step, workflow
from tests.effects import effects
from tests.project.testapp.workflows import parallel
from tests.pump import Hint, Pump

pytestmark = pytest.mark.django_db(transaction=True)

resumed: list[Any] = []
executed: list[int] = []
meanwhile: dict[int, Any] = {}


@step
def member(number: int) -> int:
    executed.append(number)
    meanwhile.pop(number, lambda: None)()
    return number


@step
def callback(values: list[int]) -> int:
    executed.append(-1)
    return sum(values)


@workflow
def joining() -> Workflow[int]:
    values = yield from gather(*(member(number) for number in range(5)))
    if not current_workflow().is_replaying:
        resumed.append(values)
    return (yield from callback(list(values)))


@pytest.fixture(autouse=True)
def _clean() -> None:
    resumed.clear()
    executed.clear()
    meanwhile.clear()


def fan_out(pump: Pump) -> tuple[Any, list[Hint]]:
    handle = joining.start()
    pump.deliver(pump.queue[0])
    hints = [hint for hint in pump.queue if hint.name == member.name]
    assert len(hints) == 5
    return handle, hints


def assert_joined_once(pump: Pump, handle: Any) -> None:
    pump.finish()
    assert resumed == [(0, 1, 2, 3, 4)]
    assert handle.result(timeout=0) == 10
    assert handle.status == "COMPLETED"
    assert executed.count(-1) == 1


def test_o15_a_second_message_after_the_end_runs_nothing(pump: Pump) -> None:
    handle, hints = fan_out(pump)
    pump.deliver(hints[2])
    ended = pump.deliver(hints[2])
    assert ended is not None
    assert ended.kind == "refused"
    assert executed == [2]
    for hint in hints[:2] + hints[3:4]:
        pump.deliver(hint)
    assert resumed == []  # five messages were delivered, four members have ended
    assert handle.status == "WAITING"
    assert_joined_once(pump, handle)
    assert [executed.count(number) for number in range(5)] == [1] * 5


def test_o15_a_second_message_while_it_runs_runs_nothing(pump: Pump) -> None:
    handle, hints = fan_out(pump)
    meanwhile[2] = lambda: pump.deliver(hints[2])
    pump.deliver(hints[2])
    assert [ended.kind for ended in pump.ended] == ["refused", "succeeded"]
    assert executed == [2]
    assert_joined_once(pump, handle)


def test_o15_of_two_executions_that_both_report_success_one_is_taken(pump: Pump) -> None:
    """Its lease is taken for dead while the body runs, so a second attempt runs and ends before the first does."""
    handle, hints = fan_out(pump)

    def taken_for_dead() -> None:
        step_row = StepResult.objects.get(pk=hints[2].step)
        StepResult.objects.filter(pk=step_row.pk).update(
            state="RETRYING", token=None, lease_id=None, pid=None, due_at=pump.now, look_at=pump.now
        )
        assert pump.deliver(hints[2]).kind == "succeeded"  # type: ignore[union-attr]

    meanwhile[2] = taken_for_dead
    ended = pump.deliver(hints[2])
    assert ended is not None
    assert ended.kind == "refused"
    assert executed == [2, 2]
    assert resumed == []
    row = StepResult.objects.get(pk=hints[2].step)
    assert (row.state, row.attempt) == ("SUCCEEDED", 2)
    (kept,) = StepAttempt.objects.filter(step_id=row.pk)
    assert (kept.attempt, kept.outcome, kept.result) == (1, "superseded", "2")
    for hint in hints[:2] + hints[3:4]:
        pump.deliver(hint)
    assert resumed == []
    assert_joined_once(pump, handle)


@pytest.mark.parametrize("seed", range(5))
def test_o15_every_message_twice_in_any_order_joins_once(pump: Pump, seed: int) -> None:
    pump.fate = lambda hint: (0.0, 0.0)
    pump.choose = lambda ready: (seed * 7 + len(executed)) % len(ready)
    handle = joining.start()
    assert_joined_once(pump, handle)
    assert [executed.count(number) for number in range(5)] == [1] * 5


@pytest.mark.prefork
def test_o15_a_message_published_twice_to_real_workers(start_worker: Any) -> None:
    handle = parallel.start("o15", 5)
    start_worker(env={"TEST_DURABLE_CELERY": '{"INLINE_STEPS": 0}'})
    rt = runtime.current()
    while handle.status not in ("COMPLETED", "FAILED", "BLOCKED"):
        rows = StepResult.objects.filter(instance_id=handle.id, kind="step").values_list("id", flat=True)
        rt.transport.dispatch(rt.store.dispatches(list(rows)), rt.clock.now())
    assert handle.result(timeout=30) == [f"member {number}" for number in range(5)]
    assert effects("o15") == {f"member {number}": 1 for number in range(5)}
