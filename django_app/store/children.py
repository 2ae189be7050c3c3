"""Parents and children: a child starts and ends in transactions that also write the row its parent waits by.

Lock order: a parent's transaction holds its own instance, then takes those of its children, then its step rows; a
child's holds its own instance, then takes its one row of the parent. So neither waits for what the other will want.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Case, F, Q, Value, When

from django_app.models import StepResult, WorkflowInstance
from django_app.models.moments import MomentField
from django_app.store.connected import chunks
from django_app.store.keys import Keys, verdict
from django_app.store.messages import Messages
from durable_celery.core import identity, journal
from durable_celery.core import transitions as t
from durable_celery.core.failure import failure_of
from durable_celery.errors import KeyConflict
from durable_celery.ports import NewInstance, NewMessage, TurnCommit, Wake

GRACE = timedelta(seconds=2)  # how long a child's end may lie before the sweep asks for a turn of its parent
BODY_OPEN = tuple(state for state in t.OPEN_STATES if state != t.COMPENSATING)
OPEN_ROW = (t.RUNNING, t.ABANDONED)
ENDS = {t.COMPLETED: t.SUCCEEDED, t.FAILED: t.FAILED, t.CANCELLED: t.CANCELLED, t.TERMINATED: t.FAILED}
UNSAID = '{"type": "Terminated"}'  # the failure of what was terminated without a reason
LOOKS = 100  # for children whose runs go on as new ones while they are asked to end


@dataclass(slots=True)
class Births:
    """The children of a turn: those that may start, and the failure of each other one by its position."""

    start: list[NewInstance] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class Children(Messages, Keys):
    """Parts of transactions; each needs one."""

    # -- starting --------------------------------------------------------------------------------------------------

    def judge_children(self, commit: TurnCommit) -> Births:
        """Lock the keys of a turn's children and see which of them are free; before any lock on an instance."""
        children = commit.children
        births = Births()
        names = {identity.key_hash(new.name, new.key): new.name for new in children if new.key is not None}
        held = self.lock_keys(names) if names else {}
        for new in children:
            if new.key is None:
                births.start.append(new)
                continue
            key = identity.key_hash(new.name, new.key)
            try:
                # It never ends what is started beside it, nor its own parent.
                spared = held[key].open_id in (commit.chain_id or commit.instance_id, *(b.id for b in births.start))
                verdict(replace(new, conflict="fail") if spared else new, held[key])
            except KeyConflict as error:
                births.refused[new.parent_position] = failure_of(error).to_text()
            else:
                held[key] = replace(held[key], open_id=new.id)
                births.start.append(new)
        return births

    # -- the end of a child ----------------------------------------------------------------------------------------

    def parent_of(self, run_id: UUID) -> tuple[UUID, str] | None:
        """The row that a run's end ends, by its parent's run and the position."""
        mine = self.rows(WorkflowInstance).filter(pk=run_id, parent_id__isnull=False)
        found: tuple[UUID, str] | None = mine.values_list("parent_id", "parent_position").first()
        return found

    def settle_parent(
        self,
        parent: tuple[UUID, str],
        state: str,
        now: datetime,
        wakes: list[Wake],
        *,
        result: str | None = None,
        failure: str | None = None,
    ) -> None:
        """The child at this row of its parent ended: so does the row, unless it has already."""
        parent_id, position = parent
        mine = self.rows(StepResult).filter(instance_id=parent_id, position=position, kind=journal.CHILD)
        # By its key: MySQL might lock the rows of others on its way.
        row = self.rows(StepResult).filter(pk__in=list(mine.values_list("pk", flat=True)))
        again = Value(now + GRACE, output_field=MomentField())
        look_at = Case(When(abandoned=True, then=Value(None)), default=again, output_field=MomentField())
        if not row.filter(state__in=OPEN_ROW).update(
            state=ENDS[state], result=result, failure=failure, finished_at=now, look_at=look_at, resends=0
        ):
            return
        queue, join, abandoned = row.values_list("instance__queue", "join", "abandoned")[0]
        if not abandoned:
            wakes.append(Wake(instance_id=parent_id, queue=queue, join=join or ""))

    # -- the end of a parent ---------------------------------------------------------------------------------------

    def tell_children(self, parent_id: UUID, told: Mapping[str, str], now: datetime, wakes: list[Wake]) -> None:
        """Ask the children at these positions to end, with the encoded reason of each."""
        asked = self.rows(WorkflowInstance).filter(
            Q(cancel_requested_at__isnull=True) | Q(state=t.BLOCKED), parent_id=parent_id, state__in=BODY_OPEN
        )
        for positions in chunks(sorted(told)):
            for _ in range(LOOKS):
                here = asked.filter(parent_position__in=positions).values_list("pk", "parent_position")
                if self._request({pk: told[position] for pk, position in here}, now, wakes):
                    break

    def end_children(self, parent_id: UUID, state: str, now: datetime, wakes: list[Wake]) -> None:
        """The parent ended: its open children are asked to end, or terminated, or left alone, each by its own terms."""
        open_ones = self.rows(WorkflowInstance).filter(parent_id=parent_id, state__in=t.OPEN_STATES)
        ask = open_ones.filter(
            Q(cancel_requested_at__isnull=True) | Q(state=t.BLOCKED), parent_close="cancel", state__in=BODY_OPEN
        )
        reason = json.dumps(f"its parent ended {state}")
        for _ in range(LOOKS):
            found = ask.values_list("pk", flat=True)
            if self._request(dict.fromkeys(found, reason), now, wakes):
                break
        failure = json.dumps({"type": "Terminated", "message": f"its parent ended {state}"})
        for _ in range(LOOKS):
            doomed = open_ones.filter(parent_close="terminate").order_by("pk")
            chain_ids = list(doomed.values_list("chain_id", flat=True))
            if not chain_ids:
                break
            for chain_id in chain_ids:
                self.release_key(chain_id, t.TERMINATED)
                self.terminate(chain_id, now, failure, wakes)

    def _request(self, asked: Mapping[UUID, str], now: datetime, wakes: list[Wake]) -> bool:
        """Ask these runs to end; False if one went on as a new run meanwhile, which must be asked as well."""
        moved = False
        for some in chunks(sorted(asked)):
            runs = self.rows(WorkflowInstance).filter(pk__in=some).order_by("pk")
            if self.connection.features.has_select_for_update:
                runs = runs.select_for_update()
            found = list(runs.values_list("pk", "chain_id", "state", "queue"))
            hit = [run for run in found if run[2] in BODY_OPEN]
            self.rows(WorkflowInstance).filter(pk__in=[pk for pk, *_ in hit]).update(
                cancel_requested_at=now, paused_at=None, revision=F("revision") + 1
            )
            self.store_messages(
                (chain_id, NewMessage(kind=journal.CANCEL, name="", payload=asked[pk]), now)
                for pk, chain_id, *_ in hit
            )  # fmt: skip
            wakes += [Wake(instance_id=pk, queue=queue) for pk, _, _, queue in hit]
            moved = moved or any(state == t.CONTINUED for _, _, state, _ in found)
        return not moved

    def terminate(
        self, instance_id: UUID, now: datetime, failure: str | None = None, wakes: list[Wake] | None = None
    ) -> bool:
        """``Closing`` does it."""
        raise NotImplementedError  # pragma: no cover


def wakes_of(children: Sequence[NewInstance]) -> list[Wake]:
    """The hints that start these children."""
    return [
        Wake(instance_id=new.id, queue=new.queue, delay=(new.start_at - new.created_at).total_seconds())
        for new in children
    ]
