"""Guards of an attempt."""

from __future__ import annotations

from tests.mutations.guard import BOTH, SERVERS, Guard

ATTEMPTS = "django_app/store/attempts.py"

OF_ATTEMPTS = (
    Guard(
        name="the token in the WHERE of the result's UPDATE",
        path=ATTEMPTS,
        old=".filter(fence, pk=step.id, state__in=states, attempt=step.attempt)",
        new=".filter(pk=step.id, state__in=states, attempt=step.attempt)",
        noticed_by=("tests/store/test_attempts.py::test_a_result_needs_its_own_token_whatever_else_of_the_row_fits",),
        pairs=BOTH,
    ),
    Guard(
        name="all of the fence in the WHERE of the result's UPDATE",
        path=ATTEMPTS,
        old=".filter(fence, pk=step.id, state__in=states, attempt=step.attempt)",
        new=".filter(pk=step.id)",
        noticed_by=("tests/store/test_attempts.py::test_o10_the_result_of_a_superseded_attempt_changes_nothing",),
    ),
    Guard(
        name="a claim is of a row that may be claimed",
        path=ATTEMPTS,
        old="            Q(state=t.SCHEDULED) | Q(state=t.RETRYING, due_at__lte=now),\n",
        new="",
        noticed_by=(
            "tests/store/test_claims.py::test_a_step_that_was_claimed_cannot_be_claimed_again",
            "tests/store/test_claims.py::test_of_many_claims_at_one_moment_one_wins",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="a retry is not claimed before its time",
        path=ATTEMPTS,
        old="Q(state=t.RETRYING, due_at__lte=now)",
        new="Q(state=t.RETRYING)",
        noticed_by=("tests/store/test_claims.py::test_a_retry_is_claimed_from_its_due_time_on",),
    ),
    Guard(
        name="a cancel stops the claims of what was scheduled before",
        path=ATTEMPTS,
        old="Exists(instance.filter(cancel_requested_at__isnull=True)) | (Q(shielded=True) & Exists(instance))",
        new="Exists(instance)",
        noticed_by=(
            "tests/store/test_claims.py::test_o17_a_step_of_an_instance_that_does_not_run_is_not_claimed_and_no_attempt_counted",
        ),
    ),
    Guard(
        name="nothing of a paused, blocked or closed instance is claimed",
        path=ATTEMPTS,
        old='pk=OuterRef("instance_id"), state__in=WORKING, paused_at__isnull=True',
        new='pk=OuterRef("instance_id")',
        noticed_by=(
            "tests/store/test_claims.py::test_o17_a_step_of_an_instance_that_does_not_run_is_not_claimed_and_no_attempt_counted",
        ),
    ),
    Guard(
        name="the lease of a claim is not declared dead",
        path=ATTEMPTS,
        old="        if lease_id is not None:\n            found = found.filter(Exists(",
        new="        if False:\n            found = found.filter(Exists(",
        noticed_by=("tests/store/test_claims.py::test_a_dead_or_unknown_lease_claims_nothing",),
    ),
    Guard(
        name="no further attempt follows in a run that is being cancelled",
        path=ATTEMPTS,
        old="if change.state == t.RETRYING and self._stop(step):",
        new="if False:",
        noticed_by=(
            "tests/engine/test_cancelling.py::test_a_step_that_fails_after_the_turn_of_a_cancel_has_looked_ends_without_the_clock",
        ),
    ),
    Guard(
        name="the fence in atomic, at its first statement",
        path="django_app/store/atomic.py",
        old='return bool(row.update(token=F("token"))) if self.vendor == "sqlite" else bool(row.exists())',
        new="return True",
        noticed_by=(
            "tests/engine/test_atomic_bounds.py::test_an_attempt_that_was_superseded_before_its_transaction_runs_no_body",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="the fence in atomic, at its last statement",
        path="durable_celery/engine/atomic.py",
        old="    if not stored.ok:\n",
        new="    if False:\n",
        noticed_by=(
            "tests/engine/test_atomic_bounds.py::test_a_sweep_does_not_wait_for_a_body_and_the_late_one_is_taken_back",
        ),
        pairs=SERVERS,
    ),
    Guard(
        name="the row says whether an atomic step was committed",
        path="durable_celery/engine/atomic.py",
        old="if done is not None and rt.store.atomic_committed(step):",
        new="if False:",
        noticed_by=("tests/engine/test_atomic.py::test_a_neighbour_that_raises_on_commit_changes_nothing",),
    ),
)
