"""Taking back: which rows owe a compensation, in which order, with which arguments, and what it waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from durable_celery import Saga, StepFailed, UsageError, Workflow, WorkflowFailed, gather, sleep
from durable_celery.core import identity
from durable_celery.core import transitions as t
from durable_celery.core.commands import Undo
from durable_celery.core.compensation import Plan, owes, plan
from durable_celery.core.decision import Opening
from durable_celery.core.journal import COMPENSATION, SIGNAL, STEP, Entry, Journal
from tests.core.driver import BEGIN, Driver, a, b, c, undo

UNDO = Undo(name="core.undo", args=None, terms='{"on_lost":"rerun"}', queue="low")
FIXED = Undo(name="core.c", args='[[7],{"why":"sorry"}]', terms="{}")


def row(pk: int, state: str = t.SUCCEEDED, **values: Any) -> Entry:
    standard: dict[str, Any] = {
        "position": str(pk), "name": f"step{pk}", "kind": STEP, "compensation": UNDO.to_text(), "attempt": 1,
        "result": f'"r{pk}"' if state == t.SUCCEEDED else None,
    }  # fmt: skip
    return Entry(id=pk, state=state, **standard | values)


def undone(pk: int, of: str, state: str, **values: Any) -> Entry:
    return row(pk, state, position=f"{of}~", kind=COMPENSATION, name="core.undo", compensation="", **values)


def planned(*rows: Entry) -> Plan:
    return plan(Journal(instance_id="i", entries=rows))


def opened(of: str, args: str, undo: Undo = UNDO) -> Opening:
    return Opening(
        position=f"{of}~", kind=COMPENSATION, name=undo.name, state=t.SCHEDULED, args=args, options=undo.terms,
        queue=undo.queue, shielded=True,
    )  # fmt: skip


# -- which rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "owed"),
    [
        ({"state": t.SUCCEEDED}, True),
        ({"state": t.SUCCEEDED, "abandoned": True}, True),
        ({"state": t.FAILED}, False),
        ({"state": t.FAILED, "unknown_end": True}, True),
        ({"state": t.CANCELLED, "attempt": 0}, False),
        ({"state": t.CANCELLED}, False),
        ({"state": t.CANCELLED, "unknown_end": True}, True),
        ({"state": t.RUNNING}, True),
        ({"state": t.EXTERNAL}, True),
        ({"state": t.ABANDONED, "abandoned": True}, True),
        ({"state": t.SCHEDULED, "attempt": 0}, True),
        ({"state": t.RETRYING}, True),
        ({"state": t.HELD, "attempt": 0}, True),
        ({"state": t.SUCCEEDED, "compensation": ""}, False),
        ({"state": t.RUNNING, "compensation": ""}, False),
        ({"state": t.SUCCEEDED, "kind": SIGNAL}, False),
        ({"state": t.SUCCEEDED, "kind": COMPENSATION}, False),
    ],
    ids=str,
)
def test_who_was_charged_or_may_have_been_is_owed(values: dict[str, Any], owed: bool) -> None:
    """Rows that nobody has claimed count until they are withdrawn: they may be claimed before that commits."""
    assert owes(row(1, **values)) is owed


# -- the plan ------------------------------------------------------------------------------------------------------


def test_nothing_owed_is_done_at_once() -> None:
    assert planned() == Plan(done=True)
    assert planned(row(1, compensation=""), row(2, t.FAILED), row(3, t.CANCELLED, attempt=0)) == Plan(done=True)


def test_the_newest_position_comes_first() -> None:
    rows = [row(1), row(2, position="10"), row(3, position="2.1"), row(4, position="2.0"), row(5, position="9.0.3")]
    order = []
    for _ in range(5):
        opening = planned(*rows).opening
        assert opening is not None
        order.append(opening.position)
        rows.append(undone(len(rows) + 10, opening.position[:-1], t.SUCCEEDED, taken_turn=9))

    assert order == ["10~", "9.0.3~", "2.1~", "2.0~", "1~"]
    assert planned(*rows) == Plan(done=True)


def test_a_compensation_is_called_with_the_result() -> None:
    assert planned(row(1)) == Plan(opening=opened("1", '[["r1"],{}]'), waiting="compensation core.undo of 1")


def test_a_compensation_is_called_with_none_where_the_result_is_unknown() -> None:
    opening = planned(row(1, t.FAILED, unknown_end=True, result="not a result")).opening

    assert opening == opened("1", "[[null],{}]")


def test_a_compensation_with_its_own_arguments_keeps_them() -> None:
    assert planned(row(1, compensation=FIXED.to_text())).opening == opened("1", '[[7],{"why":"sorry"}]', FIXED)


def test_a_failing_compensation_stops_none_of_the_others() -> None:
    failed = undone(5, "2", t.FAILED)

    assert planned(row(1), row(2), failed) == Plan(
        opening=opened("1", '[["r1"],{}]'), waiting="compensation core.undo of 1", taken=(5,)
    )
    assert planned(row(1), row(2), failed, undone(6, "1", t.SUCCEEDED)) == Plan(done=True, taken=(5, 6))


@pytest.mark.parametrize("state", [t.SCHEDULED, t.RUNNING, t.RETRYING, t.EXTERNAL])
def test_one_compensation_runs_at_a_time(state: str) -> None:
    assert planned(row(1), row(2), undone(5, "2", state)) == Plan(waiting="compensation core.undo of 2")


@pytest.mark.parametrize("state", [t.RUNNING, t.ABANDONED, t.EXTERNAL])
def test_a_claimed_row_is_waited_for_before_it_is_taken_back(state: str) -> None:
    running = row(2, state, abandoned=True)
    waiting = planned(row(1), running)

    assert waiting == Plan(waiting="the end of step step2 at 2, to compensate it", polls=True)
    assert planned(row(1), replace(running, state=t.SUCCEEDED, result="5")).opening == opened("2", "[[5],{}]")
    assert planned(row(1), replace(running, state=t.FAILED)).opening == opened("1", '[["r1"],{}]')
    assert planned(row(1), replace(running, state=t.FAILED, unknown_end=True)).opening == opened("2", "[[null],{}]")


def test_what_was_taken_in_is_not_taken_in_again() -> None:
    assert planned(row(1), undone(5, "1", t.SUCCEEDED, taken_turn=4)) == Plan(done=True)


def test_a_compensation_of_a_value_keeps_its_type_on_the_way() -> None:
    from durable_celery import calls, codec

    text = codec.encode((1, {"a": {2}}))
    opening = planned(row(1, result=text)).opening

    assert opening is not None
    assert calls.decode_call(opening.args) == (((1, {"a": {2}}),), {})


def test_a_compensation_comes_back_from_its_row() -> None:
    assert Undo.from_text(UNDO.to_text()) == UNDO
    assert Undo.from_text(FIXED.to_text()) == FIXED
    assert Undo.from_text('{"name": "x", "args": null, "terms": "{}"}').queue == ""


# -- in a body -----------------------------------------------------------------------------------------------------


def test_a_failed_body_leaves_what_it_owes_in_its_journal() -> None:
    def body() -> Workflow[None]:
        yield from a(1).compensate_with(undo)
        yield from gather(b(2).compensate_with(c(9)), b(3).compensate_with(undo), sleep(1))
        yield from a(4)
        raise WorkflowFailed("gave up")

    run = Driver(body).play(lambda entry: ValueError("no luck") if entry.position == "2.1" else entry.position)

    assert run.state == "FAILED"
    first = plan(run.journal())
    assert first.opening is not None
    assert (first.opening.position, first.opening.name, first.opening.args) == ("2.0~", "core.c", "[[9],{}]")
    run.entries["2.0~"] = replace(undone(90, "2.0", t.SUCCEEDED), finished_at=BEGIN)
    second = plan(run.journal())
    assert second.opening is not None
    assert (second.opening.position, second.opening.args) == ("1~", '[["1"],{}]')


def test_replay_does_not_see_compensations() -> None:
    def body() -> Workflow[None]:
        yield from a(1).compensate_with(undo)
        yield from b()

    run = Driver(body).play(lambda entry: ValueError("no luck") if entry.name == "core.b" else 5)
    before = run.decide(recorded_only=True)
    run.entries["1~"] = undone(90, "1", t.SUCCEEDED, taken_turn=4, taken_at=run.now)

    assert run.decide(recorded_only=True) == before
    assert before.state == "FAILED"


def test_a_compensation_has_an_idempotency_key_of_its_own() -> None:
    assert identity.idempotency_key("i", identity.compensation_of("2.1")) == "i:2.1~"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: a().compensate_with(b()).compensate_with(c()), "has a compensation already: core.b"),
        (lambda: a().compensate_with(sleep(1)), "takes a step, or a step command with its arguments; got sleep"),
        (lambda: a().compensate_with(print), "got <built-in function print>"),  # type: ignore[arg-type]
        (lambda: sleep(1).compensate_with(undo), "sleep cannot be compensated"),
    ],
)
def test_a_wrong_compensation_blocks(make: Any, says: str) -> None:
    def body() -> Workflow[None]:
        yield from make()

    assert says in Driver(body).turn().waiting


def test_a_compensation_cannot_be_yielded_as_well() -> None:
    def body() -> Workflow[None]:
        refund = undo(5)
        yield from a().compensate_with(refund)
        yield from refund

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert "step core.undo built at body, line " in run.turn().waiting


# -- Saga: the same by hand ----------------------------------------------------------------------------------------


def by_hand(error: type[Exception] = StepFailed) -> Any:
    def body() -> Workflow[str]:
        saga = Saga()
        try:
            for number in range(3):
                value = yield from a(number)
                saga.add(undo(value))
            yield from b()
        except StepFailed:
            yield from saga.compensate()
            yield from saga.compensate()
            raise
        return "kept"

    return body


def test_a_saga_takes_back_newest_first_and_lets_the_error_go_on() -> None:
    run = Driver(by_hand()).play(lambda entry: ValueError("no luck") if entry.name == "core.b" else entry.position)

    assert run.error == "StepFailed: step core.b at 4 failed after 1 attempt: ValueError: no luck"
    assert [(e.position, e.args) for e in run.entries.values() if e.name == "core.undo"] == [
        ("5", '[["3"],{}]'),
        ("6", '[["2"],{}]'),
        ("7", '[["1"],{}]'),
    ]


def test_a_saga_goes_on_after_an_undo_that_fails_and_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    run = Driver(by_hand()).play(
        lambda entry: ValueError("no luck") if entry.name == "core.b" or entry.position == "6" else entry.position
    )

    assert run.error == "StepFailed: step core.b at 4 failed after 1 attempt: ValueError: no luck"
    assert [run.states()[p] for p in "567"] == [t.SUCCEEDED, t.FAILED, t.SUCCEEDED]
    assert "a compensation failed, the others go on: step core.undo at 6" in caplog.text


def test_a_saga_that_is_not_needed_runs_nothing() -> None:
    run = Driver(by_hand()).play()

    assert (run.value, "core.undo" in [e.name for e in run.entries.values()]) == ("kept", False)


def test_a_saga_takes_step_commands_only() -> None:
    def body() -> Workflow[None]:
        Saga().add(sleep(5))
        yield

    def used() -> Workflow[None]:
        command = undo(1)
        Saga().add(command)
        yield from command

    assert "saga.add takes a step command such as refund(receipt)" in Driver(body).turn().waiting
    assert "is yielded twice" in Driver(used).turn().waiting
    with pytest.raises(UsageError):
        Saga().add(undo)  # type: ignore[arg-type]
