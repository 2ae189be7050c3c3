"""The guards: of an attempt, of a turn, of messages, of the clock, of processes, of starts and of ends."""

from __future__ import annotations

from tests.mutations.guard import Guard

BOTH = ("sqlite+memory", "postgres+redis")
SERVERS = ("postgres+redis",)

ATTEMPTS = "django_app/store/attempts.py"
CLOSING = "django_app/store/closing.py"
MESSAGES = "django_app/store/messages.py"
PROCESSES = "django_app/store/processes.py"
SWEEPING = "django_app/store/sweeping.py"
TURN_ROWS = "django_app/store/turns.py"
TURNS = "durable_celery/engine/turns.py"
VERDICTS = "durable_celery/engine/verdicts.py"
SWEEPS = "durable_celery/sweeps.py"

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
            "tests/store/test_attempts.py::test_a_step_that_was_claimed_cannot_be_claimed_again",
            "tests/store/test_attempts.py::test_of_many_claims_at_one_moment_one_wins",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="a retry is not claimed before its time",
        path=ATTEMPTS,
        old="Q(state=t.RETRYING, due_at__lte=now)",
        new="Q(state=t.RETRYING)",
        noticed_by=("tests/store/test_attempts.py::test_a_retry_is_claimed_from_its_due_time_on",),
    ),
    Guard(
        name="a cancel stops the claims of what was scheduled before",
        path=ATTEMPTS,
        old="Exists(instance.filter(cancel_requested_at__isnull=True)) | (Q(shielded=True) & Exists(instance))",
        new="Exists(instance)",
        noticed_by=(
            "tests/store/test_attempts.py::test_o17_a_step_of_an_instance_that_does_not_run_is_not_claimed_and_no_attempt_counted",
        ),
    ),
    Guard(
        name="nothing of a paused, blocked or closed instance is claimed",
        path=ATTEMPTS,
        old='pk=OuterRef("instance_id"), state__in=WORKING, paused_at__isnull=True',
        new='pk=OuterRef("instance_id")',
        noticed_by=(
            "tests/store/test_attempts.py::test_o17_a_step_of_an_instance_that_does_not_run_is_not_claimed_and_no_attempt_counted",
        ),
    ),
    Guard(
        name="the lease of a claim is not declared dead",
        path=ATTEMPTS,
        old="        if lease_id is not None:\n            found = found.filter(Exists(",
        new="        if False:\n            found = found.filter(Exists(",
        noticed_by=("tests/store/test_attempts.py::test_a_dead_or_unknown_lease_claims_nothing",),
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
        noticed_by=("tests/store/test_turns.py::test_a_turn_of_an_ended_instance_changes_nothing",),
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
        noticed_by=("tests/engine/test_maps_apart.py::test_querysets_that_cannot_be_read_in_pages_are_refused",),
    ),
    Guard(
        name="a blocked run is tried once by each code",
        path=TURNS,
        old="if definition.fingerprint in instance.blocked_by:",
        new="if False:",
        noticed_by=("tests/engine/test_fleet.py::test_it_is_blocked_within_seconds_of_the_last_one_leaving",),
    ),
)

OF_MESSAGES = (
    Guard(
        name="the mailbox at close: what came after the load",
        path=TURN_ROWS,
        old="        if self.unseen_messages(chain_id, commit.last_message, commit.left_messages):\n",
        new="        if False:\n",
        noticed_by=("tests/store/test_turns.py::test_a_message_that_came_after_the_load_keeps_the_instance_open",),
        pairs=BOTH,
    ),
    Guard(
        name="the mailbox at close: its lock against senders",
        path=TURN_ROWS,
        old="        self.hold_mailbox(chain_id)\n",
        new="",
        noticed_by=("tests/store/test_turns.py::test_a_turn_does_not_close_while_a_sender_is_at_the_mailbox",),
        pairs=SERVERS,
    ),
    Guard(
        name="a closed mailbox takes no message",
        path=MESSAGES,
        old="        if closed_at is not None:\n",
        new="        if False:\n",
        noticed_by=(
            "tests/store/test_messages.py::test_a_message_to_an_ended_instance_is_refused_and_the_transaction_usable",
        ),
    ),
    Guard(
        name="senders lock the mailbox",
        path=MESSAGES,
        old="cursor.execute(sql + SHARED[self.vendor], params)",
        new="cursor.execute(sql, params)",
        noticed_by=("tests/store/test_turns.py::test_a_turn_does_not_close_while_a_sender_is_at_the_mailbox",),
        pairs=SERVERS,
    ),
    Guard(
        name="a message with the id of another is stored once",
        path=MESSAGES,
        old="dedupe_hash=None if new.dedupe is None else dedupe_hash(new.kind, new.dedupe),",
        new="dedupe_hash=None,",
        noticed_by=(
            "tests/store/test_messages.py::test_a_duplicate_message_is_stored_once_and_hints_until_it_is_taken",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="the tick looks for messages that no turn took in",
        path=SWEEPS,
        old="rt.store.due_messages(now, BATCH)",
        new="()",
        noticed_by=("tests/engine/test_lost_hints.py::test_a_signal_whose_hint_is_lost_is_taken_in_by_the_clock",),
    ),
)

OF_THE_CLOCK = (
    Guard(
        name="the re-send of lost messages by the tick",
        path=VERDICTS,
        old="return Verdict(dispatch=True, look_at=look_at, resends=step.resends + 1)",
        new="return Verdict(look_at=look_at, resends=step.resends + 1)",
        noticed_by=("tests/engine/test_lost_hints.py::test_a_step_that_was_never_published_is_sent_by_the_clock",),
    ),
    Guard(
        name="the tick starts what was committed and never published",
        path=SWEEPS,
        old="    rt.transport.advance(instance.id, instance.queue)\n\n\ndef _advance(",
        new="\n\ndef _advance(",
        noticed_by=("tests/engine/test_lost_hints.py::test_a_start_that_was_never_published_is_started_by_the_clock",),
    ),
    Guard(
        name="the tick looks for outcomes that no turn took in",
        path=SWEEPS,
        old="elif verdict.advance and _is_awaited(rt, step):",
        new="elif False:",
        noticed_by=("tests/engine/test_lost_hints.py::test_an_outcome_whose_turn_was_lost_is_taken_in_by_the_clock",),
    ),
    Guard(
        name="of two ticks with one row in hand one acts",
        path=SWEEPING,
        old="            seen = seen.filter(look_at=step.look_at)\n",
        new="            pass\n",
        noticed_by=(
            "tests/store/test_sweeping.py::test_of_two_sweeps_with_one_row_in_hand_one_acts",
            "tests/store/test_sweeping.py::test_of_two_sweeps_at_one_moment_one_acts",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="one tick is won in an interval",
        path=SWEEPING,
        old="broken | Q(last_tick_at__lt=now - interval * EARLY), pk=1",
        new="pk=1",
        noticed_by=("tests/store/test_sweeping.py::test_one_tick_is_won_in_an_interval",),
    ),
    Guard(
        name="one bad row never stops the rest of a tick",
        path=SWEEPS,
        old="            report.errors += 1\n",
        new="            raise\n",
        noticed_by=("tests/cases/test_o13.py",),
    ),
)

OF_PROCESSES = (
    Guard(
        name="the lease is of an incarnation: the number may be another's by now",
        path="durable_celery/celery/lease.py",
        old="return start_ticks(pid) == ticks",
        new="return start_ticks(pid) is not None",
        noticed_by=("tests/celery/test_lease.py::test_a_running_process_is_alive_and_a_reused_number_is_not",),
    ),
    Guard(
        name="the lease is of an incarnation: only the same boot and namespace judges",
        path=SWEEPS,
        old="(lease.boot_id, lease.pid_ns) != (boot_id, pid_ns) or not boot_id or alive(",
        new="alive(",
        noticed_by=(
            "tests/engine/test_leases.py::test_only_who_shares_boot_and_namespace_judges_by_the_number_of_a_process",
        ),
    ),
    Guard(
        name="the lease is of an incarnation: a death frees its own claims alone",
        path=PROCESSES,
        old="            claimed = claimed.filter(lease_id=lease_id)\n",
        new="            pass\n",
        noticed_by=("tests/store/test_sweeping.py::test_claims_of_a_lease_of_a_child_and_of_the_dead",),
    ),
    Guard(
        name="the death of a pool process frees its own claims alone",
        path=PROCESSES,
        old="            claimed = claimed.filter(pid=pid)\n",
        new="            pass\n",
        noticed_by=("tests/engine/test_leases.py::test_the_death_of_one_pool_process_frees_its_claims_and_no_others",),
    ),
    Guard(
        name="a lease declared dead is never renewed",
        path=PROCESSES,
        old="mine = self.rows(WorkerLease).filter(pk=lease_id, dead_at__isnull=True)\n        return bool(mine",
        new="mine = self.rows(WorkerLease).filter(pk=lease_id)\n        return bool(mine",
        noticed_by=("tests/store/test_sweeping.py::test_a_dead_lease_is_never_renewed_and_buried_once",),
    ),
    Guard(
        name="a lease that was renewed meanwhile is not buried",
        path=PROCESSES,
        old="            alive = alive.filter(expires_at__lt=expired_by)\n",
        new="            pass\n",
        noticed_by=("tests/store/test_sweeping.py::test_a_lease_is_buried_by_expiry_only_if_it_was_not_renewed",),
    ),
    Guard(
        name="no take-over by expiry before ticks have run for a lease",
        path=SWEEPS,
        old="healthy = since is not None and now - since >= rt.settings.lease",
        new="healthy = True",
        noticed_by=("tests/engine/test_leases.py::test_no_lease_is_taken_over_before_the_clock_has_run_for_one",),
    ),
    Guard(
        name="the cap of proven deaths",
        path=VERDICTS,
        old="over = deaths >= max_deaths or expiries >= max_expiries",
        new="over = expiries >= max_expiries",
        noticed_by=("tests/core/test_verdicts.py::test_o05_deaths_have_a_cap",),
    ),
    Guard(
        name="the cap of leases that ran out",
        path=VERDICTS,
        old="over = deaths >= max_deaths or expiries >= max_expiries",
        new="over = deaths >= max_deaths",
        noticed_by=("tests/core/test_verdicts.py::test_leases_that_merely_ran_out_have_a_cap_of_their_own",),
    ),
    Guard(
        name="what must not run twice fails with its first loss",
        path=VERDICTS,
        old='if terms.on_lost == "fail" or over or',
        new="if over or",
        noticed_by=("tests/core/test_verdicts.py::test_a_step_that_must_not_run_twice_fails_with_its_first_loss",),
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
            "tests/store/test_turns.py::test_a_step_claimed_since_the_load_whose_compensation_would_be_forgotten_keeps_the_run_open",
        ),
    ),
    Guard(
        name="the withdraw of waiting rows at close",
        path=TURN_ROWS,
        old="                self.abandon_steps(Q(pk__in=some), commit.now, commit.turn)\n",
        new="                pass\n",
        noticed_by=(
            "tests/store/test_turns.py::test_withdrawn_rows_are_cancelled_if_unclaimed_and_abandoned_if_claimed",
        ),
        pairs=BOTH,
    ),
    Guard(
        name="what is withdrawn while it runs is abandoned, not cancelled",
        path=CLOSING,
        old="                When(state__in=UNCLAIMED, then=Value(t.CANCELLED)),\n",
        new="                When(state__in=(*UNCLAIMED, t.RUNNING), then=Value(t.CANCELLED)),\n",
        noticed_by=(
            "tests/store/test_turns.py::test_withdrawn_rows_are_cancelled_if_unclaimed_and_abandoned_if_claimed",
        ),
    ),
    Guard(
        name="the key is free once its instance has ended",
        path=TURN_ROWS,
        old="            self.release_key(commit.chain_id or commit.instance_id, commit.state)\n",
        new="            pass\n",
        noticed_by=("tests/store/test_turns.py::test_a_closing_turn_ends_the_instance_its_mailbox_and_its_key",),
    ),
)

GUARDS = (*OF_ATTEMPTS, *OF_TURNS, *OF_MESSAGES, *OF_THE_CLOCK, *OF_PROCESSES, *OF_LOST_TURNS, *OF_STARTS, *OF_ENDS)
