"""Guards of starts and of ends."""

from __future__ import annotations

from tests.mutations.guard import BOTH, SERVERS, Guard

CLOSING = "django_app/store/closing.py"
TURN_ROWS = "django_app/store/turns.py"
VERDICTS = "durable_celery/engine/verdicts.py"

OF_STARTS = (
    Guard(
        name="of two starts with one id one inserts",
        path="django_app/store/starting.py",
        old="if new.id not in mine or new.id in rows:",
        new="if new.id in rows:",
        noticed_by=(
            "tests/store/test_starting.py::test_a_start_that_is_repeated_with_its_id_gives_the_first_instance",
            "tests/store/test_starting.py::test_a_start_delivered_twice_at_one_moment_is_one_instance",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="starts with one key wait for each other",
        path="django_app/store/keys.py",
        old='            self._upsert([WorkflowKey(hash=key, name=names[key]) for key in hashes], ["name"])\n',
        new="            self.rows(WorkflowKey).bulk_create(\n"
        "                [WorkflowKey(hash=key, name=names[key]) for key in hashes], ignore_conflicts=True\n"
        "            )\n"
        "            self.connection.features.has_select_for_update = False\n",
        noticed_by=(
            "tests/store/test_starting.py::test_o37_starts_with_a_key_that_was_used_before_are_one_instance_too",
        ),
        pairs=SERVERS,
    ),
    Guard(
        name="a slot of a schedule is taken once",
        path="django_app/store/slots.py",
        old="        if last is not None and last >= slot_at:\n            return []\n",
        new="",
        noticed_by=("tests/celery/test_slots.py::test_a_message_of_an_earlier_slot_that_comes_late_starts_nothing",),
    ),
)

OF_ENDS = (
    Guard(
        name="compensation of unknown ends",
        path="durable_celery/core/compensation.py",
        old=" or entry.state not in transitions.STEP_FINAL or entry.unknown_end",
        new=" or entry.state not in transitions.STEP_FINAL",
        noticed_by=("tests/core/test_compensation.py::test_who_was_charged_or_may_have_been_is_owed",),
    ),
    Guard(
        name="the end of a lost attempt is not known",
        path=VERDICTS,
        old="counted = replace(step, deaths=deaths, expiries=expiries, unknown_end=True)",
        new="counted = replace(step, deaths=deaths, expiries=expiries)",
        noticed_by=(
            "tests/invariants/test_whoever_was_charged_and_not_served_is_refunded.py::test_a_charge_that_took_three_processes_with_it_is_refunded",
        ),
    ),
    Guard(
        name="claimed since the turn was loaded: its compensation is not forgotten",
        path=TURN_ROWS,
        old="if commit.state in (t.FAILED, t.CANCELLED, t.CONTINUED) and self._owing(commit.instance_id):",
        new="if False:",
        noticed_by=(
            "tests/store/test_closing.py::test_a_step_claimed_since_the_load_whose_compensation_would_be_forgotten_keeps_the_run_open",
        ),
    ),
    Guard(
        name="the withdraw of waiting rows at close",
        path=TURN_ROWS,
        old="                self.abandon_steps(Q(pk__in=some), commit.now, commit.turn)\n",
        new="                pass\n",
        noticed_by=(
            "tests/store/test_closing.py::test_withdrawn_rows_are_cancelled_if_unclaimed_and_abandoned_if_claimed",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="what is withdrawn while it runs is abandoned, not cancelled",
        path=CLOSING,
        old="                When(state__in=UNCLAIMED, then=Value(t.CANCELLED)),\n",
        new="                When(state__in=(*UNCLAIMED, t.RUNNING), then=Value(t.CANCELLED)),\n",
        noticed_by=(
            "tests/store/test_closing.py::test_withdrawn_rows_are_cancelled_if_unclaimed_and_abandoned_if_claimed",
        ),
    ),
    Guard(
        name="the key is free once its instance has ended",
        path=TURN_ROWS,
        old="            self.release_key(commit.chain_id or commit.instance_id, commit.state)\n",
        new="            pass\n",
        noticed_by=("tests/store/test_closing.py::test_a_closing_turn_ends_the_instance_its_mailbox_and_its_key",),
    ),
)
