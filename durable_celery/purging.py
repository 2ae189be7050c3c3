"""Removing what ended longer ago than ``RETENTION``: whole trees, a root with all its children and all their runs.

Every transaction is short. A purge that stops anywhere is gone on with by the next; two at once do no harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from durable_celery import faults, runtime
from durable_celery.ports import Removed

log = logging.getLogger("durable_celery")

TREES = 100  # looked at together
DEAD_LEASES = timedelta(days=1)  # how long they are kept


@dataclass(slots=True, kw_only=True)
class PurgeReport:
    """What a purge removed, or would have (``dry_run``), in counts of rows.

    ``before``: what ended before then went; None if everything is kept. ``left``: trees that stay since something in
    them is open or ended later. ``more``: the time was up, the next purge goes on.
    """

    before: datetime | None = None
    trees: int = 0
    instances: int = 0
    steps: int = 0
    messages: int = 0
    leases: int = 0
    left: int = 0
    more: bool = False


def purge(*, older_than: timedelta | None = None, dry_run: bool = False, seconds: float | None = None) -> PurgeReport:
    """Remove every tree of which all ended longer ago than ``older_than``, by default ``RETENTION``.

    With the instances go their steps, attempts, messages, markers, mailboxes, and keys that were not used again.
    ``RETENTION`` None keeps everything. A tree with anything open stays whole. Between two transactions it stops once
    ``seconds`` are over. A second call finds what is left.
    """
    rt = runtime.current()
    report = PurgeReport()
    age = older_than if older_than is not None else rt.settings.retention
    if age is None:
        return report
    now = rt.clock.measure()
    report.before = now - age
    give_up_at = time.monotonic() + seconds if seconds is not None else None
    after = None
    while trees := rt.store.ended_roots(report.before, after, TREES):
        after = trees[-1]
        roots = {tree.root_id for tree in trees}
        whole = rt.store.doom(roots, report.before, mark=not dry_run)
        report.left += len(roots) - len(whole)
        if dry_run:
            _count(report, rt.store.count_trees(whole) if whole else Removed())
        elif whole and not _remove(rt, whole, report, give_up_at):
            return report
        report.trees += len(whole)
    if not dry_run:
        report.leases = rt.store.remove_leases(now - DEAD_LEASES)
        if report.instances:
            log.info("purge: %s instances that ended before %s were removed", report.instances, report.before)
    return report


def _remove(rt: runtime.Runtime, roots: Collection[UUID], report: PurgeReport, give_up_at: float | None) -> bool:
    """All of these trees; False if the time is up before they are gone."""
    while True:
        faults.reach("purge.before_batch")
        removed = rt.store.remove_some(roots)
        faults.reach("purge.after_batch")
        if removed is None:
            return True
        _count(report, removed)
        if give_up_at is not None and time.monotonic() >= give_up_at:
            report.more = True
            return False


def _count(report: PurgeReport, removed: Removed) -> None:
    report.instances += removed.instances
    report.steps += removed.steps
    report.messages += removed.messages
