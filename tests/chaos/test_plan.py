"""The plan of a run is its seed's, and has all there is to have; the report says what a run fell short of."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.chaos.faults import Kill
from tests.chaos.ledger import Line
from tests.chaos.oracle import Finding
from tests.chaos.plan import make
from tests.chaos.report import FAULTS, OF_A_KIND, WORKFLOWS, Report, recoveries
from tests.chaos.scripts import SCRIPTS

KINDS = {
    7: tuple("abcdefg"),  # SQLite + filesystem
    11: tuple("abcdefghijk"),
}


def test_a_plan_is_a_pure_function_of_its_seed():
    assert make(7, 120, KINDS[11]) == make(7, 120, KINDS[11])
    assert make(7, 120, KINDS[11]) != make(8, 120, KINDS[11])
    assert make(7, 120, ()).starts == make(7, 120, KINDS[7]).starts


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_two_minutes_hold_enough_of_everything(seed, kinds):
    plan = make(seed, 120, kinds)
    assert len(plan.starts) >= WORKFLOWS
    assert {start.script for start in plan.starts} == {*SCRIPTS}
    faults = Counter(fault.kind for fault in plan.faults)
    assert faults.total() >= FAULTS
    assert set(faults) == {*kinds}
    assert min(faults.values()) > OF_A_KIND
    assert all(0 < fault.at < 120 for fault in plan.faults)
    assert [fault.at for fault in plan.faults] == sorted(fault.at for fault in plan.faults)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_sent_is_numbered_in_order_after_its_start(seed):
    plan = make(seed, 120, ())
    started = {start.run: start.at for start in plan.starts}
    assert len(started) == len(plan.starts)
    seen: Counter[tuple[str, str]] = Counter()
    for act in plan.acts:
        assert act.at > started[act.run]
        assert act.number == seen[act.run, act.kind]
        seen[act.run, act.kind] += 1
    assert {kind for _, kind in seen} == {"signal", "update", "cancel"}


def report(**changes) -> Report:
    effective = dict.fromkeys(KINDS[11], 4)
    given = {"duration": 120, "workflows": 312, "kinds": KINDS[11], "effective": effective, "kills": 12, "findings": ()}
    return Report(**{**given, **changes})


def test_the_last_line_has_its_form():
    last = report(recovered=[0.31, 1.2, 2.4]).last()
    assert last == "chaos: 312 workflows, 44 faults (12 kills), 0 lost, 0 stuck, 0 doubled, recovered 1200/2400/2400 ms"
    found = report(findings=[Finding(kind="lost", text="")] * 2 + [Finding(kind="stuck", text="")]).last()
    assert re.search(r"2 lost, 1 stuck, 0 doubled, recovered 0/0/0 ms$", found)


def test_a_run_passes_only_with_enough_of_everything_and_nothing_found():
    assert report().passes()
    assert not report(findings=[Finding(kind="lost", text="")]).passes()
    assert not report(workflows=299).passes()
    assert not report(effective={**dict.fromkeys(KINDS[11], 5), "a": 2}).passes()
    assert not report(effective=dict.fromkeys(KINDS[11], 3)).passes()  # 33 in all
    assert report(duration=60, workflows=156, effective=dict.fromkeys(KINDS[11], 2)).passes()
    assert not report(duration=60, workflows=156, effective={**dict.fromkeys(KINDS[11], 2), "k": 0}).passes()


def test_recovered_is_from_the_kill_to_the_next_claim_of_what_it_hit():
    kills = [Kill(at=10.0, claims=[("a", 1), ("b", 2), ("never again", 1)])]
    lines = [
        Line(run="", what="", key="a", attempt=1, at=9.9),
        Line(run="", what="", key="a", attempt=2, at=10.5),
        Line(run="", what="", key="a", attempt=3, at=99.0),
        Line(run="", what="", key="b", attempt=3, at=11.0),
        Line(run="", what="", key="never again", attempt=1, at=9.0),
    ]
    assert recoveries(kills, lines) == [0.5, 1.0]
