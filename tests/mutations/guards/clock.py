"""Guards of the clock and of processes."""

from __future__ import annotations

from tests.mutations.guard import BOTH, Guard

PROCESSES = "django_app/store/processes.py"
SWEEPING = "django_app/store/sweeping.py"
VERDICTS = "durable_celery/engine/verdicts.py"
SWEEPS = "durable_celery/sweeps.py"
PURGING = "django_app/store/purging.py"

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
        old="    rt.transport.advance(instance.id, instance.queue)\n\n\ndef _is_over(",
        new="\n\ndef _is_over(",
        noticed_by=("tests/engine/test_lost_hints.py::test_a_start_that_was_never_published_is_started_by_the_clock",),
    ),
    Guard(
        name="the tick looks for outcomes that no turn took in",
        path=SWEEPS,
        old="    if verdict.dispatch or (verdict.advance and _is_awaited(rt, step)):",
        new="    if verdict.dispatch:",
        noticed_by=("tests/engine/test_lost_hints.py::test_an_outcome_whose_turn_was_lost_is_taken_in_by_the_clock",),
    ),
    Guard(
        name="one purge works at a time",
        path=PURGING,
        old="        mine = free if held is None else Q(slot_at=held)\n",
        new="        mine = Q()\n",
        noticed_by=(
            "tests/store/test_purging_killed.py::test_a_purge_whose_place_was_taken_over_stops_and_leaves_it_alone",
        ),
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
