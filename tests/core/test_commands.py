"""Commands: built in a body, used once, in words, and where they were built."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from durable_celery import NotInWorkflow, Signal, UsageError, Workflow, codec, gather, sleep, step
from durable_celery.core.commands import Command, GatherRules, StepCommand
from tests.core.driver import Driver, a, b, c, undo


@step(name="core.picky")
def takes_a_number(number: int) -> None: ...


@step(name="core.elsewhere")
def elsewhere(number: int) -> None: ...


picky: Any = takes_a_number


def built(make: Any) -> Any:
    """What ``make`` gives inside a body."""
    kept: list[Any] = []

    def body() -> None:
        kept.append(make())
        for command in [*kept, *getattr(kept[-1], "members", [])]:
            if isinstance(command, Command):
                command.used = True

    decision = Driver(body, twice=False).turn()
    assert decision.state == "COMPLETED", decision.waiting
    return kept[0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: a(1), "step core.a"),
        (lambda: sleep(1), "sleep"),
        (lambda: Signal("go").wait(), "signal 'go'"),
        (lambda: gather(a(), b()), "gather of 2"),
        (lambda: gather(), "gather of 0"),
    ],
)
def test_a_command_describes_itself(make: Any, words: str) -> None:
    command = built(make)

    assert command.describe() == words
    assert repr(command) == f"<{words}>"


def test_a_command_knows_the_line_that_built_it() -> None:
    line: list[int] = []

    def make() -> Command[Any]:
        line.append(sys._getframe().f_lineno + 1)
        return a(1)

    assert built(make).line == f"make, line {line[0]} of test_commands.py"


def test_a_command_built_through_other_parts_of_the_package_knows_the_users_line() -> None:
    command = built(lambda: elsewhere.using(queue="vip")(1).compensate_with(undo))

    assert command.line.startswith("<lambda>, line ")
    assert command.line.endswith("of test_commands.py")


def test_a_step_command_holds_its_call_encoded() -> None:
    command = built(lambda: a((1, 2), colour={"red"}))

    assert isinstance(command, StepCommand)
    assert codec.decode(command.args) == [[(1, 2)], {"colour": {"red"}}]


def test_a_step_in_a_body_is_no_awaitable_that_runs() -> None:
    command = built(lambda: a(1))

    assert next(iter(command)) is command
    assert next(command.__await__()) is command


def test_an_undo_given_as_a_step_is_called_with_the_result_later() -> None:
    given = built(lambda: a(1).compensate_with(undo)).undo
    fixed = built(lambda: a(1).compensate_with(c(7))).undo

    assert (given.name, given.args) == ("core.undo", None)
    assert (fixed.name, fixed.args) == ("core.c", "[[7],{}]")


def test_outside_of_a_workflow_a_step_names_the_alternatives() -> None:
    with pytest.raises(NotInWorkflow) as caught:
        a(1)  # type: ignore[unused-awaitable]

    text = str(caught.value)
    assert "step core.a works only inside a running workflow" in text
    assert "a.call(...)" in text
    assert "a.delay(...)" in text


def test_outside_of_a_workflow_not_even_wrong_arguments_come_first() -> None:
    with pytest.raises(NotInWorkflow):
        picky("too", "many", object())


@pytest.mark.parametrize("wrong", [lambda: a(object()), lambda: picky("too", "many")], ids=["value", "signature"])
def test_a_command_whose_arguments_were_refused_is_not_missed(wrong: Any) -> None:
    def body() -> Workflow[str]:
        try:
            wrong()
        except Exception as error:
            text = type(error).__name__
        gc.collect()
        yield from b()
        return text

    assert Driver(body).play().value in ("NotSerializable", "TypeError")


def test_a_command_is_used_once() -> None:
    command = built(lambda: a(1))
    command.used = False
    command.use()

    with pytest.raises(UsageError, match="is yielded twice; build a new one for each yield"):
        command.use()


# -- rules of a gather -------------------------------------------------------------------------------------------------


def test_rules_come_back_from_their_row_with_the_names_of_the_code() -> None:
    for rules in (
        GatherRules(),
        GatherRules(limit=3),
        GatherRules(return_exceptions=True, limit=1),
        GatherRules(needed=2, tolerate=1),
    ):
        assert GatherRules(limit=9, tolerate=9).as_recorded(rules.to_text()) == rules
        assert GatherRules(names=("x",)).as_recorded(rules.to_text()).names == ("x",)


def test_rules_ignore_what_a_newer_release_wrote() -> None:
    assert GatherRules().as_recorded('{"limit":2,"newer":1}') == GatherRules(limit=2)


@pytest.mark.parametrize(
    ("rules", "forgives"),
    [
        (GatherRules(), False),
        (GatherRules(limit=2), False),
        (GatherRules(return_exceptions=True), True),
        (GatherRules(tolerate=1), True),
        (GatherRules(needed=1), True),
    ],
)
def test_a_gather_forgives_failures_by_three_of_its_rules(rules: GatherRules, forgives: bool) -> None:
    assert rules.forgives is forgives
    assert ('"goes_on":true' in rules.to_text()) is forgives


# -- a step on other terms ---------------------------------------------------------------------------------------------


def test_a_step_on_other_terms_leaves_the_step_itself_alone() -> None:
    before = built(lambda: elsewhere(1))
    other = built(lambda: elsewhere.using(queue="slow", retry=None, schedule_to_close_timeout=5)(1))
    after = built(lambda: elsewhere(1))

    assert (other.queue, other.terms.schedule_to_close) == ("slow", 5.0)
    assert (after.queue, after.terms) == (before.queue, before.terms)
