"""Gathers with a limit: the end of one member lets the next one go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef

from django_app.models import StepResult
from django_app.store import rows
from django_app.store.connected import Connected
from durable_celery.core import transitions as t
from durable_celery.ports import Dispatch, OpenStep

RESEND = timedelta(seconds=3)  # how long a member let go may lie unclaimed before it is sent again


class Groups(Connected):
    """Promotion of held members; needs the transaction in which the member ended."""

    def promote(self, ended: OpenStep, now: datetime) -> Sequence[Dispatch]:
        """Schedule the first HELD member of the group, unless a failure stops it."""
        if not ended.limited or not ended.group or self._stopped(ended):
            return ()
        while (row := self._first_held(ended)) is not None:
            terms: dict[str, Any] = json.loads(row.options) if row.options else {}
            # Its clocks start now: it could not run before.
            row.start_by_at = _after(now, terms.get("schedule_to_start"))
            row.end_by_at = _after(now, terms.get("schedule_to_close"))
            row.look_at = min(x for x in (now + RESEND, row.start_by_at, row.end_by_at) if x is not None)
            row.state = t.SCHEDULED
            held = self.rows(StepResult).filter(pk=row.pk, state=t.HELD)
            if held.update(
                state=t.SCHEDULED, scheduled_at=now, start_by_at=row.start_by_at, end_by_at=row.end_by_at,
                look_at=row.look_at,
            ):  # fmt: skip
                return (rows.dispatch_of(row),)
        return ()

    def _stopped(self, ended: OpenStep) -> bool:
        members = self.rows(StepResult).filter(instance_id=OuterRef("instance_id"), group=ended.group)
        gather = self.rows(StepResult).filter(instance_id=ended.instance_id, position=ended.group)
        found = gather.annotate(failed=Exists(members.filter(state=t.FAILED))).values_list("options", "failed").first()
        if found is None:
            return True
        options, failed = found
        rules: dict[str, Any] = json.loads(options) if options else {}
        if not failed or rules.get("return_exceptions") or rules.get("needed"):
            return False
        if not rules.get("tolerate"):
            return True
        failures = self.rows(StepResult).filter(instance_id=ended.instance_id, group=ended.group, state=t.FAILED)
        return bool(failures.count() > rules["tolerate"])

    def _first_held(self, ended: OpenStep) -> StepResult | None:
        held = self.rows(StepResult).filter(instance_id=ended.instance_id, group=ended.group, state=t.HELD)
        features = self.connection.features
        if features.has_select_for_update:
            # Two members may end at once: each takes a row that the other has not locked.
            held = held.select_for_update(skip_locked=features.has_select_for_update_skip_locked)
        row: StepResult | None = (
            held.order_by("id")
            .only("id", "name", "queue", "options", "due_at", "start_by_at", "end_by_at", "state")
            .first()
        )
        return row


def _after(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)
