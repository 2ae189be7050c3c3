"""The tables of states."""

from __future__ import annotations

import pytest

from durable_celery.core import transitions as t


@pytest.mark.parametrize("table", [t.INSTANCE, t.STEP], ids=["instance", "step"])
def test_a_table_names_its_own_states_only(table: dict[str, tuple[str, ...]]) -> None:
    for targets in table.values():
        assert set(targets) <= set(table)
        assert len(targets) == len(set(targets))


def test_every_instance_is_open_or_final() -> None:
    assert set(t.OPEN_STATES) | set(t.FINAL_STATES) == set(t.INSTANCE)
    assert not set(t.OPEN_STATES) & set(t.FINAL_STATES)
    assert t.PAUSED not in t.INSTANCE  # an overlay


def test_a_final_state_never_changes_by_itself() -> None:
    """FAILED is left by retry() alone, to RUNNING; nothing else is left at all."""
    assert {state: t.INSTANCE[state] for state in t.FINAL_STATES} == {
        t.COMPLETED: (),
        t.FAILED: (t.RUNNING,),
        t.CANCELLED: (),
        t.TERMINATED: (),
        t.CONTINUED: (),
    }


def test_every_open_instance_can_be_blocked_and_terminated() -> None:
    for state in t.OPEN_STATES:
        assert t.BLOCKED in t.INSTANCE[state]
        assert t.TERMINATED in t.INSTANCE[state]


def test_compensating_leads_to_a_failure_or_a_cancel_and_never_back_into_the_body() -> None:
    assert not set(t.INSTANCE[t.COMPENSATING]) & {t.RUNNING, t.WAITING, t.COMPLETED, t.CONTINUED, t.PENDING}


def test_nothing_comes_back_to_pending() -> None:
    assert t.sources(t.INSTANCE, t.PENDING) == ()


def test_a_step_that_succeeded_stays_so_but_a_poll_that_is_not_liked_runs_again() -> None:
    assert t.STEP[t.SUCCEEDED] == (t.RETRYING,)


def test_nobody_claims_what_is_held_abandoned_or_external() -> None:
    assert t.sources(t.STEP, t.RUNNING) == t.CLAIMABLE == (t.SCHEDULED, t.RETRYING)


def test_a_row_held_back_is_let_go_or_given_up() -> None:
    assert t.STEP[t.HELD] == (t.SCHEDULED, t.CANCELLED)


def test_an_abandoned_attempt_gets_no_further_one() -> None:
    assert not set(t.STEP[t.ABANDONED]) & {t.RETRYING, t.SCHEDULED, t.RUNNING, t.EXTERNAL}


def test_the_groups_of_step_states_part_them() -> None:
    assert set(t.STEP_OPEN) | set(t.STEP_FINAL) | {t.ABANDONED} == set(t.STEP)
    assert set(t.CLAIMED) == {t.RUNNING, t.EXTERNAL, t.ABANDONED}


def test_sources_follow_the_order_of_the_table() -> None:
    assert t.sources(t.STEP, t.CANCELLED) == (
        t.HELD, t.SCHEDULED, t.RUNNING, t.RETRYING, t.EXTERNAL, t.ABANDONED,
    )  # fmt: skip
