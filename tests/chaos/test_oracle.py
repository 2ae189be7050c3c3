"""The oracle finds each kind of wrong that is planted into books in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.ledger import Line
from tests.chaos.oracle import ACCEPTED, CLOSED, Books, Run, Sent, Step, judge


def line(run: str, what: str, *, key: str = "", attempt: int = 1) -> Line:
    return Line(run=run, what=what, key=key or f"{run}:{what}", attempt=attempt)


def signals(*outcomes: str) -> list[Sent]:
    return [Sent(kind="signal", number=number, outcome=outcome) for number, outcome in enumerate(outcomes)]


DONE = {
    "bought": ("money", "stock", "ship"),
    "refused": ("money", "stock", "refuse", "undo stock", "undo money"),
    "heard": ("before", "after"),
    "booked": ("entry 0", "told 0", "side 0", "side 1"),
    "careful": ("before", "once"),
}
LINES = [line(run, what) for run, effects in DONE.items() for what in effects]
ATOMIC = ("entry 0", "side 0", "side 1")
GOOD = Books(
    runs=[
        Run(run="bought", script="purchase", args=("ship", 0.1), states=["COMPLETED"]),
        Run(run="refused", script="purchase", args=("refuse", 0.1), states=["FAILED"]),
        Run(
            run="heard",
            script="collecting",
            args=(2, 3.0),
            states=["COMPLETED"],
            result=[0, 1],
            sent=signals(ACCEPTED, ACCEPTED, CLOSED),
        ),
        Run(run="booked", script="books", args=(1, 0.1), states=["COMPLETED"], result=1),
        Run(run="careful", script="careful", args=(0.1,), states=["COMPLETED"]),
    ],
    lines=LINES,
    steps={one.key: Step(state="SUCCEEDED", attempt=1, atomic=one.what in ATOMIC) for one in LINES},
    effects={f"booked:{what}": 2 for what in ATOMIC},
)


def with_run(name: str, **changes: Any) -> Books:
    return replace(GOOD, runs=[replace(run, **changes) if run.run == name else run for run in GOOD.runs])


def without_line(run: str, what: str) -> Books:
    return replace(GOOD, lines=[one for one in LINES if (one.run, one.what) != (run, what)])


def with_line(one: Line, *, attempts: int = 1) -> Books:
    steps = {**GOOD.steps, one.key: Step(state="SUCCEEDED", attempt=attempts)}
    return replace(GOOD, lines=[*LINES, one], steps=steps)


def with_step(key: str, step: Step) -> Books:
    return replace(GOOD, steps={**GOOD.steps, key: step})


def update(answer: Any) -> Books:
    sent = [Sent(kind="update", number=0, outcome=ACCEPTED, answer=answer)]
    run = Run(run="told", script="updating", args=(1, 2.0), states=["COMPLETED"], result=[0], sent=sent)
    return replace(with_line(line("told", "before")), runs=[*GOOD.runs, run])


def test_books_in_order_give_no_finding():
    assert judge(GOOD) == []
    assert judge(update(1)) == []
    assert judge(with_line(line("bought", "ship", attempt=2), attempts=2)) == []  # died, and was done once more
    undone = [*LINES, line("booked", "side 0")]  # in one attempt, by a transaction that was undone
    assert judge(replace(GOOD, lines=undone)) == []


WRONG = {
    "an instance that is not there": (with_run("bought", states=[]), "lost", "no instance"),
    "two instances of one key": (with_run("bought", states=["COMPLETED"] * 2), "doubled", "2 instances"),
    "one that does not end": (with_run("bought", states=["WAITING"]), "stuck", "is WAITING"),
    "one that ended as it may not": (with_run("bought", states=["FAILED"]), "lost", "ended FAILED"),
    "a wrong result": (with_run("booked", result=2), "lost", "the result 2"),
    "an effect that is missing": (without_line("bought", "ship"), "lost", "'ship' did not happen"),
    "an effect nobody promised": (with_line(line("bought", "undo money")), "doubled", "should not have happened"),
    "an effect under two keys": (with_line(line("bought", "ship", key="other")), "doubled", "under 2 keys"),
    "an attempt that ran twice": (with_line(line("bought", "ship")), "doubled", "attempt 1 of bought:ship ran 2 times"),
    "an attempt nobody claimed": (with_line(line("bought", "ship", attempt=2)), "doubled", "its row knows 1"),
    "a body of no journal": (replace(GOOD, steps={}), "doubled", "in no journal"),
    "a refund that is missing": (without_line("refused", "undo money"), "lost", "'money' was not given back"),
    "more than at most once": (
        with_line(line("careful", "once", attempt=2), attempts=2),
        "doubled",
        "'once' ran 2 times",
    ),
    "messages out of order": (with_run("heard", result=[1, 0]), "lost", "out of order"),
    "a message that got lost": (with_run("heard", result=[0]), "lost", "never heard message 1"),
    "a message heard twice": (with_run("heard", result=[0, 1, 1]), "doubled", "message 1 2 times"),
    "a sender told wrong": (with_run("heard", result=[0, 1, 2]), "doubled", "message 2, whose sender was told"),
    "an update answered wrong": (update(7), "lost", "answered update 0 with 7"),
    "an atomic effect too few": (replace(GOOD, effects={**GOOD.effects, "booked:side 0": 0}), "lost", "with 0 effects"),
    "an atomic effect of a failure": (
        with_step("booked:side 0", Step(state="FAILED", attempt=1, atomic=True)),
        "doubled",
        "is FAILED with 2 effects",
    ),
    "atomic effects of nobody": (replace(GOOD, effects={**GOOD.effects, "ghost": 2}), "doubled", "2 effects of ghost"),
    "a row that stays open": (replace(GOOD, open_rows=["a child is WAITING"]), "stuck", "a child is WAITING"),
    "a message left over": (replace(GOOD, again=[line("bought", "ship")]), "doubled", "ran a body again"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_found(what):
    books, kind, words = WRONG[what]
    findings = judge(books)
    assert [finding for finding in findings if finding.kind == kind and words in finding.text], findings


def test_a_message_whose_first_try_broke_off_may_have_come_or_not():
    sent = [*signals(ACCEPTED), Sent(kind="signal", number=1, outcome=CLOSED, unsure=True)]
    for result in ([0], [0, 1]):
        assert judge(with_run("heard", result=result, sent=sent)) == []


def test_a_script_that_hears_everything_turns_nobody_away():
    run = Run(run="read", script="reading", args=(1, 0.5), states=["COMPLETED"], result=[0], sent=signals(ACCEPTED))
    books = replace(with_line(line("read", "after")), runs=[run])
    quiet = replace(books, lines=[line("read", "after")], effects={}, steps={"read:after": GOOD.steps["bought:ship"]})
    assert judge(quiet) == []
    early = replace(quiet, runs=[replace(run, sent=signals(ACCEPTED, CLOSED))])
    assert [finding.kind for finding in judge(early)] == ["lost"]
