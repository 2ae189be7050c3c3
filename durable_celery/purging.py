"""Removing what ended longer ago than ``RETENTION``: whole trees, a root with all its children and all their runs.

Every transaction is short. A purge that stops anywhere is gone on with by the next. One works at a time: it holds a
place, which one that is killed keeps for ``HOLD`` at most; had it only been slow, two at once would do no harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from durable_celery import faults, runtime
from durable_celery.ports import Removed

log = logging.getLogger("durable_celery")

TREES = 100  # looked at together
HOLD = timedelta(minutes=2)  # longer than any one transaction
DEAD_LEASES = timedelta(days=1)  # how long they are kept


@dataclass(slots=True, kw_only=True)
class PurgeReport:
    """What a purge removed, or would have (``dry_run``), in counts of rows.

    ``before``: what ended before then went; None if everything is kept. ``left``: trees that stay since something in
    them is open or ended later. ``more``: the time was up, the next purge goes on. ``busy``: another one is under way,
    and this one has left the rest to it.
    """

    before: datetime | None = None
    trees: int = 0
    instances: int = 0
    steps: int = 0
    messages: int = 0
    leases: int = 0
    left: int = 0
    more: bool = False
    busy: bool = False


def purge(*, older_than: timedelta | None = None, dry_run: bool = False, seconds: float | None = None) -> PurgeReport:
    """Remove every tree of which all ended longer ago than ``older_than``, by default ``RETENTION``.

    With the instances go their steps, attempts, messages, markers, mailboxes, and keys that were not used again.
    ``RETENTION`` None keeps everything. A tree with anything open stays whole. Between two transactions it stops once
    ``seconds`` are over. A second call finds what is left; while one is under way it does nothing, and is ``busy``.
    """
    rt = runtime.current()
    report = PurgeReport()
    age = older_than if older_than is not None else rt.settings.retention
    if age is None:
        return report
    now = rt.clock.measure()
    before = report.before = now - age
    if dry_run:
        for roots in _trees(rt, before):
            whole = rt.store.doom(roots, before, mark=False)
            _note(report, roots, whole)
            _count(report, rt.store.count_trees(whole) if whole else Removed())
        return report
    place = _Place(rt)
    if not place.take(now):
        report.busy = True
        log.info("purge: another one is under way; this one leaves it all to that")
        return report
    try:
        _purge(rt, report, before, place, time.monotonic() + seconds if seconds is not None else None)
    finally:
        place.leave()
    return report


def _purge(rt: runtime.Runtime, report: PurgeReport, before: datetime, place: _Place, give_up_at: float | None) -> None:
    for roots in _trees(rt, before):
        if not place.keep():
            report.busy = True
            return
        whole = rt.store.doom(roots, before)
        if whole and not _remove(rt, whole, report, place, give_up_at):
            _note(report, roots, whole, gone=False)
            return
        _note(report, roots, whole)
    report.leases = rt.store.remove_leases(rt.clock.now() - DEAD_LEASES)
    if report.instances:
        log.info("purge: %s instances that ended before %s were removed", report.instances, before)


def _trees(rt: runtime.Runtime, before: datetime) -> Iterator[set[UUID]]:
    after = None
    while trees := rt.store.ended_roots(before, after, TREES):
        after = trees[-1]
        yield {tree.root_id for tree in trees}


class _Place:
    """Of the one purge, held up to a moment that is moved on while it works."""

    def __init__(self, rt: runtime.Runtime) -> None:
        self._rt = rt
        self._until: datetime | None = None
        self._renew_at = 0.0

    def take(self, now: datetime) -> bool:
        return self._hold(now)

    def keep(self) -> bool:
        """Between two transactions; False if another purge has taken it over."""
        return time.monotonic() < self._renew_at or self._hold(self._rt.clock.now())

    def leave(self) -> None:
        self._rt.store.hold_purge(self._rt.clock.now(), None, self._until)

    def _hold(self, now: datetime) -> bool:
        until, self._renew_at = now + HOLD, time.monotonic() + HOLD.total_seconds() / 4
        held = self._rt.store.hold_purge(now, until, self._until)
        self._until = until if held else self._until
        return held


def _remove(
    rt: runtime.Runtime, roots: Collection[UUID], report: PurgeReport, place: _Place, give_up_at: float | None
) -> bool:
    """All of these trees; False if the time is up, or another purge has taken over, before they are gone."""
    while True:
        if not place.keep():
            report.busy = True
            return False
        faults.reach("purge.before_batch")
        removed = rt.store.remove_some(roots)
        faults.reach("purge.after_batch")
        if removed is None:
            return True
        _count(report, removed)
        if give_up_at is not None and time.monotonic() >= give_up_at:
            report.more = True
            return False


def _note(report: PurgeReport, roots: Collection[UUID], whole: Collection[UUID], *, gone: bool = True) -> None:
    report.left += len(roots) - len(whole)
    report.trees += len(whole) if gone else 0


def _count(report: PurgeReport, removed: Removed) -> None:
    report.instances += removed.instances
    report.steps += removed.steps
    report.messages += removed.messages
