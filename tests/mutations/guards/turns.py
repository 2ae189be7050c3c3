"""Guards of a turn, and of turns that take their process along."""

from __future__ import annotations

from tests.mutations.guard import BOTH, Guard

TURN_ROWS = "django_app/store/turns.py"
TURNS = "durable_celery/engine/turns.py"

OF_TURNS = (
    Guard(
        name="the revision compare of a turn",
        path=TURN_ROWS,
        old=".filter(pk=commit.instance_id, revision=commit.revision, state__in=sources)",
        new=".filter(pk=commit.instance_id, state__in=sources)",
        noticed_by=(
            "tests/store/test_turns.py::test_a_turn_with_a_stale_revision_changes_nothing",
            "tests/store/test_turns.py::test_of_many_turns_at_one_moment_one_is_committed",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="a final state is the end",
        path=TURN_ROWS,
        old=".filter(pk=commit.instance_id, revision=commit.revision, state__in=sources)",
        new=".filter(pk=commit.instance_id, revision=commit.revision)",
        noticed_by=("tests/store/test_closing.py::test_a_turn_of_an_ended_instance_changes_nothing",),
    ),
    Guard(
        name="publish after the commit, of a turn",
        path=TURN_ROWS,
        old='                faults.reach("turn.in_transaction")\n',
        new='                faults.reach("turn.in_transaction")\n'
        "                if created:\n"
        "                    from durable_celery import runtime\n\n"
        "                    runtime.current().transport.dispatch(created, commit.now)\n"
        "                    created = []\n",
        noticed_by=("tests/invariants/test_nothing_is_published_before_its_commit.py",),
        pairs=BOTH,
    ),
    Guard(
        name="publish after the commit, of starts, signals and acts",
        path="django_app/store/clock.py",
        old="transaction.on_commit(call, using=self.alias, robust=True)",
        new="call()",
        noticed_by=("tests/engine/test_transactions.py::test_a_signal_is_hinted_at_after_the_commit_and_not_before",),
    ),
    Guard(
        name="the parked turn's second look",
        path=TURNS,
        old='return "more" if rt.store.has_news(loaded.instance.id) else "parked"',
        new='return "parked"',
        noticed_by=(
            "tests/invariants/test_a_turn_that_parks_looks_once_more.py::test_a_message_that_came_while_a_turn_was_under_way_is_taken_in_without_the_clock",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="whoever loses the compare looks again",
        path=TURNS,
        old='    if committed is None:\n        return "lost"\n',
        new='    if committed is None:\n        return "parked"\n',
        noticed_by=(
            "tests/invariants/test_a_turn_that_parks_looks_once_more.py::test_whoever_loses_to_another_turn_looks_again",
        ),
    ),
    Guard(
        name="an outcome that others are awaited with wakes nobody",
        path="django_app/store/reading.py",
        old="found = found.filter(~Exists(running))",
        new="pass",
        noticed_by=("tests/store/test_turns.py::test_an_outcome_is_no_news_while_another_member_of_its_join_runs",),
    ),
    Guard(
        name="no query in a body",
        path=TURNS,
        old="with rt.store.refuse_queries(), contextlib.ExitStack() as stack:",
        new="with contextlib.ExitStack() as stack:",
        noticed_by=("tests/engine/test_maps_calls.py::test_querysets_that_cannot_be_read_in_pages_are_refused",),
    ),
    Guard(
        name="a blocked run is tried once by each code",
        path=TURNS,
        old="if definition.fingerprint in instance.blocked_by:",
        new="if False:",
        noticed_by=("tests/engine/test_fleet_blocking.py::test_it_is_blocked_within_seconds_of_the_last_one_leaving",),
    ),
    Guard(
        name="a child of the last turn that outlives its parent starts",
        path=TURNS,
        old="            starts=ended and o.position not in decision.told and opened.outlives_parent(o),\n",
        new="",
        noticed_by=(
            "tests/engine/test_children.py::test_a_child_that_outlives_its_parent_starts_though_it_was_asked_for_in_the_last_turn",
        ),
    ),
)

OF_LOST_TURNS = (
    Guard(
        name="the cap of turns whose process was seen to die",
        path="durable_celery/engine/deaths.py",
        old="    if deaths < rt.settings.max_deaths:\n",
        new="    if True:\n",
        noticed_by=("tests/engine/test_lost_turns.py::test_deaths_that_a_parent_saw_are_counted_at_once",),
    ),
    Guard(
        name="the cap of turns that nobody saw die",
        path="durable_celery/engine/lost_turns.py",
        old="    if deaths >= rt.settings.max_deaths:\n",
        new="    if False:\n",
        noticed_by=(
            "tests/engine/test_lost_turns.py::test_a_turn_that_ends_its_worker_each_time_is_blocked_though_nobody_saw_it_die",
        ),
    ),
    Guard(
        name="a committed turn takes the deaths before it back",
        path=TURN_ROWS,
        old='        "turn_deaths": 0, "turn_begun_at": None,\n        "started_at"',
        new='        "started_at"',
        noticed_by=(
            "tests/engine/test_lost_turns.py::test_a_committed_turn_takes_the_deaths_before_it_back",
            "tests/engine/test_lost_turns.py::test_a_turn_that_comes_through_in_the_end_starts_the_count_anew",
        ),
    ),
    Guard(
        name="a death is a turn's only if the child was in it",
        path="durable_celery/celery/watch.py",
        old="busy and reading is not None and (instance := reading.instance) is not None",
        new="reading is not None and (instance := reading.instance or self._seat.board.lease_id) is not None",
        noticed_by=("tests/celery/test_watch.py::test_a_death_is_a_turns_only_if_the_child_was_in_it",),
    ),
)
