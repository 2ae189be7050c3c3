"""Starting instances, in the transaction of whoever starts them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django_app.models import Mailbox, WorkflowInstance
from django_app.models.subjects import subject_hash, subject_of
from django_app.store.closing import Closing
from django_app.store.connected import chunks
from django_app.store.keys import KeyState, freed, verdict
from django_app.store.retries import retried
from durable_celery import faults
from durable_celery.core import identity
from durable_celery.core import transitions as t
from durable_celery.ports import Created, NewInstance

STARTED = ("name", "state", "args", "start_at")


@dataclass(slots=True)
class Plan:
    """What becomes of a batch: ``insert`` in order, ``existing`` by the place in the batch."""

    insert: dict[int, NewInstance] = field(default_factory=dict)
    existing: dict[int, UUID] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)  # of those, starts that came before with the same id
    names: dict[str, str] = field(default_factory=dict)  # workflow name of each key
    keys: dict[str, KeyState] = field(default_factory=dict)  # who has the keys that change hands


class Starting(Closing):
    """``create``: in order, key rows, then instances, then mailboxes, as in every engine transaction."""

    @retried
    def create(self, instances: Sequence[NewInstance]) -> Sequence[Created]:
        """Insert instances with mailbox, key and first messages in the caller's transaction.

        A second start with the same id gives the first one. Under a key, ``conflict`` and ``reuse`` decide; an
        instance that is used instead gets the messages if its arguments are the same. ``KeyConflict`` changes nothing.
        """
        with self.atomic():
            plan = self._judge(instances)
            self._insert_instances(plan)
            self._hand_over_keys(plan)
            created = self._answers(instances, plan)
            self._deliver(instances, plan, created)
            faults.reach("start.in_transaction")
        return created

    # -- who has the keys ------------------------------------------------------------------------------------------

    def _judge(self, instances: Sequence[NewInstance]) -> Plan:
        plan = Plan()
        keyed = {i: identity.key_hash(new.name, new.key) for i, new in enumerate(instances) if new.key is not None}
        plan.names = {key: instances[i].name for i, key in keyed.items()}
        held = self.lock_keys(plan.names) if keyed else {}
        used = {i for i, key in keyed.items() if held[key] != KeyState()}
        started = self._started([instances[i].id for i in used])
        for i, new in enumerate(instances):
            key = keyed.get(i)
            if key is not None and new.id in started:
                plan.existing[i] = new.id
                plan.repeated.add(i)
            elif key is None or self._wins(i, new, key, held, plan):
                plan.insert[i] = new
                if key is not None:
                    held[key] = plan.keys[key] = replace(held[key], open_id=new.id)
                    started.add(new.id)
        return plan

    def _started(self, ids: list[UUID]) -> set[UUID]:
        # Starts with one key wait for each other at its row, so what is not here now will not appear.
        if not ids:
            return set()
        return {
            pk for some in chunks(ids) for pk in self.rows(Mailbox).filter(pk__in=some).values_list("pk", flat=True)
        }

    def _wins(self, i: int, new: NewInstance, key: str, held: dict[str, KeyState], plan: Plan) -> bool:
        judged = verdict(new, held[key])
        if judged.terminate is not None:
            self.terminate(judged.terminate, new.created_at)
            held[key] = freed(held[key], judged.terminate)
        if judged.use is not None:
            plan.existing[i] = judged.use
            return False
        return True

    # -- inserting -------------------------------------------------------------------------------------------------

    def _insert_instances(self, plan: Plan) -> None:
        """A mailbox is inserted by one start alone: whoever finds another's draw in it came second, or again."""
        if not plan.insert:
            return
        draw = uuid.uuid4().hex
        ids = [new.id for new in plan.insert.values()]
        self.rows(Mailbox).bulk_create([Mailbox(pk, opened_by=draw) for pk in ids], ignore_conflicts=True)
        mine = {
            pk for some in chunks(ids)
            for pk in self.rows(Mailbox).filter(pk__in=some, opened_by=draw).values_list("pk", flat=True)
        }  # fmt: skip
        rows: dict[UUID, WorkflowInstance] = {}
        roots = self._roots(plan)
        for i, new in list(plan.insert.items()):
            if new.id not in mine or new.id in rows:
                plan.existing[i] = plan.insert.pop(i).id
                plan.repeated.add(i)
            else:
                rows[new.id] = _row(new, roots.get(new.parent_id, new.id) if new.parent_id else new.id)
        self.rows(WorkflowInstance).bulk_create(rows.values())
        self.store_messages((new.id, message, new.start_at) for new in plan.insert.values() for message in new.messages)

    def _roots(self, plan: Plan) -> dict[UUID, UUID]:
        parents = {new.parent_id for new in plan.insert.values() if new.parent_id is not None}
        found = self.rows(WorkflowInstance).filter(pk__in=parents) if parents else None
        return dict(found.values_list("pk", "root_id")) if found is not None else {}

    def _hand_over_keys(self, plan: Plan) -> None:
        if not plan.keys:
            return
        inserted = {new.id for new in plan.insert.values()}
        # A start whose id was there already, under another key, must not hold this one.
        states = {k: s if s.open_id in inserted else replace(s, open_id=None) for k, s in plan.keys.items()}
        self.write_keys(plan.names, states)

    # -- answering -------------------------------------------------------------------------------------------------

    def _answers(self, instances: Sequence[NewInstance], plan: Plan) -> list[Created]:
        """Of an instance that was there, what it was started with: its first run, whatever it has come to since."""
        found: dict[UUID, tuple[str, str, str, datetime]] = {}
        for some in chunks(set(plan.existing.values())):
            rows = self.rows(WorkflowInstance).filter(pk__in=some).values_list("pk", *STARTED)
            found |= {pk: started for pk, *started in rows}
        answers = []
        for i, new in enumerate(instances):
            if i in plan.insert:
                answers.append(Created(id=new.id, created=True, state=t.PENDING, args=new.args, start_at=new.start_at))
            else:
                pk = plan.existing[i]
                name, state, args, start_at = found.get(pk, (new.name, t.PENDING, new.args, new.start_at))
                if state == t.CONTINUED:
                    name, state, args, start_at = self._under(pk, new.name) or (name, state, args, start_at)
                answers.append(Created(id=pk, created=False, state=state, args=args, start_at=start_at))
        return answers

    def _under(self, chain_id: UUID, name: str) -> tuple[str, str, str, datetime] | None:
        """The state of a chain, and what the first of its runs under this workflow's name was given."""
        runs = self.rows(WorkflowInstance).filter(chain_id=chain_id, name=name).order_by("run_number")
        first = runs.values_list(*STARTED).first()
        return first and (first[0], self.newest_run(chain_id).state, *first[2:])

    def _deliver(self, instances: Sequence[NewInstance], plan: Plan, created: Sequence[Created]) -> None:
        for i in plan.existing.keys() - plan.repeated:
            if instances[i].is_same_call(created[i].args):
                for message in instances[i].messages:
                    self.send(created[i].id, message, instances[i].created_at)


def _row(new: NewInstance, root_id: UUID) -> WorkflowInstance:
    hashed = identity.key_hash(new.name, new.key) if new.key is not None else None
    label, subject_id = subject_of(new.subject) if new.subject is not None else ("", "")
    return WorkflowInstance(
        id=new.id, chain_id=new.id, root_id=root_id, name=new.name, version=new.version, args=new.args,
        key=new.key, key_hash=hashed, open_key=hashed, state=t.PENDING, created_at=new.created_at,
        start_at=new.start_at, look_at=new.look_at, queue=new.queue, priority=new.priority, deadline_at=new.deadline_at,
        expected_at=new.expected_at, attributes=dict(new.attributes), memo=dict(new.memo), context=dict(new.context),
        subject_type=label, subject_id=subject_id,
        subject_hash=subject_hash(new.subject) if new.subject is not None else None,
        parent_id=new.parent_id, parent_position=new.parent_position, parent_close=new.parent_close,
    )  # fmt: skip
