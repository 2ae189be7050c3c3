"""What people do to a run from outside: cancel, terminate, pause, resume, retry. Each is one guarded transaction.

``revision`` moves with each of them, so a turn that was under way loses its compare-and-swap and looks again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, Q

from django_app.models import Mailbox, Message, StepResult, WorkflowInstance, WorkflowKey
from django_app.store.chains import Newest
from django_app.store.children import BODY_OPEN
from django_app.store.maps import Maps
from django_app.store.purging import Purging
from django_app.store.restarting import Restarting
from django_app.store.retries import retried
from durable_celery import faults
from durable_celery.core import journal
from durable_celery.core import transitions as t
from durable_celery.engine.verdicts import end_of_poll
from durable_celery.errors import NotRetryable
from durable_celery.ports import NewMessage, Wake

RESEND = timedelta(seconds=3)


class Refused(Exception):  # noqa: N818 - rolls the transaction back
    """The run is no longer as it was read."""


class Steering(Restarting, Maps, Purging):
    """The acts of people, in the caller's transaction if there is one."""

    @retried
    def request_end(self, instance_id: UUID, message: NewMessage, now: datetime) -> str:
        """Ask the body to end (``message.kind`` "cancel" or "deadline"): "requested", or the final state it came too
        late for.

        A second request changes nothing, but for a BLOCKED run, which is then ended without its body. Unpauses.
        """
        changes: dict[str, Any] = {"deadline_at": None} if message.kind == "deadline" else {}
        anew = Q(cancel_requested_at__isnull=True) | Q(state=t.BLOCKED)
        newest = self.newest_run(instance_id)
        with self.atomic():
            run, asked = self.change_newest(
                newest, anew & Q(state__in=BODY_OPEN),
                cancel_requested_at=now, paused_at=None, revision=F("revision") + 1, **changes,
            )  # fmt: skip
            if asked:
                self.store_messages([(run.chain_id, message, now)])
                faults.reach("send.in_transaction")
            return "requested" if asked or run.state in BODY_OPEN else run.end

    @retried
    def end_now(self, instance_id: UUID, failure: str, now: datetime, wakes: list[Wake] | None = None) -> str:
        """Terminate: "requested" if this did it, else the final state it came too late for. Nothing is compensated.

        ``wakes`` gets its parent and the children it had.
        """
        chain_id = self.newest_run(instance_id).chain_id
        try:
            with self.atomic():
                self.release_key(chain_id, t.TERMINATED)
                if not self.terminate(chain_id, now, failure, wakes):
                    raise Refused
                faults.reach("steer.in_transaction")
                return "requested"
        except Refused:
            return self.newest_run(instance_id).end

    @retried
    def pause(self, instance_id: UUID, reason: str, now: datetime) -> str:
        """Set the overlay; the state before, or the final state it came too late for. A second call changes nothing."""
        newest = self.newest_run(instance_id)
        with self.atomic():
            run, _ = self.change_newest(
                newest, Q(state__in=t.OPEN_STATES, paused_at__isnull=True),
                paused_at=now, pause_reason=reason, revision=F("revision") + 1,
            )  # fmt: skip
            faults.reach("steer.in_transaction")
        return run.state if run.state in t.OPEN_STATES else run.end

    @retried
    def resume(self, instance_id: UUID, now: datetime) -> str:
        """Lift the overlay; what fell due meanwhile is looked at now. A run that is not paused stays as it is."""
        newest = self.newest_run(instance_id)
        with self.atomic():
            run, _ = self.change_newest(
                newest, Q(state__in=t.OPEN_STATES, paused_at__isnull=False),
                paused_at=None, pause_reason="", revision=F("revision") + 1, look_at=now,
            )  # fmt: skip
            faults.reach("steer.in_transaction")
        return run.state if run.state in t.OPEN_STATES else run.end

    # -- retry -----------------------------------------------------------------------------------------------------

    @retried
    def reopen(self, instance_id: UUID, now: datetime, wakes: list[Wake] | None = None) -> None:
        """Take back the block, or the turn that ended the run FAILED; ``NotRetryable`` says why it cannot be.

        The failed steps of that turn start afresh; their attempts go on counting. Children that
        failed it are reopened with it and come into ``wakes``; the failure of a child is taken back from its parent.
        """
        run_id, chain_id, *_ = self._to_reopen(instance_id)
        with self.atomic():
            if self._unblock(run_id):
                return
            parent = self.parent_of(run_id)
            if parent is not None:
                self.hold_parent(parent)
            self.reopen_run(run_id, chain_id, now, wakes if wakes is not None else [])
            if parent is not None:
                self.take_failure_back(parent, run_id)
            faults.reach("steer.in_transaction")

    def reopen_run(self, run_id: UUID, chain_id: UUID, now: datetime, wakes: list[Wake]) -> None:
        """Take back the turn that ended a run FAILED; what its parent makes of that is the caller's."""
        run = self.rows(WorkflowInstance).filter(pk=run_id).values("state", "turn", "turn_at", "key_hash").get()
        self._check(run_id, run)
        if run["key_hash"] is not None:
            self._take_key(chain_id, run["key_hash"])
        reopened = self.rows(WorkflowInstance).filter(pk=run_id, state=t.FAILED, turn=run["turn"]).update(
            state=t.RUNNING, turn=F("turn") - 1, revision=F("revision") + 1, failure=None, finished_at=None,
            open_key=run["key_hash"], look_at=now, waiting_for="", blocked_by="", cancel_requested_at=None,
        )  # fmt: skip
        if not reopened:
            text = f"instance {run_id} changed while it was retried; look again"
            raise NotRetryable(text, instance_id=str(run_id))
        self.check_not_doomed(run_id)
        self.rows(Mailbox).filter(pk=chain_id).update(closed_at=None)
        self.reopen_children(run_id, run["turn"], now, wakes)
        self._take_back(run_id, run["turn"], now)

    def _to_reopen(self, instance_id: UUID) -> Newest:
        newest = self.newest_run(instance_id)
        if instance_id not in (newest.chain_id, newest.id):
            raise NotRetryable(
                f"run {instance_id} has continued as another, the newest is {newest.id}; retry that one, or the chain "
                f"{newest.chain_id}",
                instance_id=str(instance_id),
            )
        return newest

    def _unblock(self, run_id: UUID) -> bool:
        blocked = self.rows(WorkflowInstance).filter(pk=run_id, state=t.BLOCKED)
        return bool(blocked.update(blocked_by="", revision=F("revision") + 1))

    def _check(self, run_id: UUID, run: dict[str, Any]) -> None:
        ids = {"instance_id": str(run_id)}
        if run["state"] != t.FAILED:
            raise NotRetryable(
                f"instance {run_id} is {run['state']}; retry() reopens a BLOCKED or FAILED one: start a new one",
                **ids,
            )
        steps = self.rows(StepResult).filter(instance_id=run_id)
        if steps.filter(kind=journal.COMPENSATION).exists():
            raise NotRetryable(
                f"instance {run_id} was compensated: what its steps did is taken back; start a new one instead", **ids
            )
        failed = steps.filter(kind__in=(*journal.STEPS, journal.CHILD, journal.MAP), mapped=False, state=t.FAILED)
        if failed.exists() and not failed.filter(taken_turn=run["turn"]).exists():
            last = failed.order_by("-taken_turn").values_list("position", flat=True).first()
            raise NotRetryable(
                f"instance {run_id} went on after the failure at {last}: later steps have run; start a new one instead",
                **ids,
            )

    def _take_key(self, chain_id: UUID, key_hash: str) -> None:
        mine = self.rows(WorkflowKey).filter(hash=key_hash, open_id__isnull=True)
        if not mine.update(open_id=chain_id):
            raise NotRetryable(
                f"the key of instance {chain_id} is taken by an open instance now; end that one first",
                instance_id=str(chain_id),
            )

    def _take_back(self, run_id: UUID, turn: int, now: datetime) -> None:
        """What the turn took in is new again, what it ended or gave up is open again, what failed starts afresh."""
        steps = self.rows(StepResult).filter(instance_id=run_id, mapped=False)
        anew: dict[str, Any] = {
            "state": t.SCHEDULED, "failures": 0, "deaths": 0, "expiries": 0, "resends": 0, "failure": None,
            "result": None, "token": None, "due_at": None, "finished_at": None, "scheduled_at": now, "look_at": now,
            "abandoned": False, "ended_turn": None, "taken_turn": None, "taken_at": None, "start_by_at": None,
            "end_by_at": None,
        }  # fmt: skip
        self.reopen_members(run_id, turn, now, anew)
        begun_again = steps.filter(Q(taken_turn=turn, state=t.FAILED) | Q(ended_turn=turn), kind=journal.POLL)
        polls = list(begun_again.values_list("pk", "options"))
        steps.filter(kind__in=journal.STEPS, state=t.FAILED, taken_turn=turn).update(**anew)
        given_up = steps.filter(ended_turn=turn, kind__in=journal.STEPS)
        given_up.filter(state=t.CANCELLED, limited=True).update(**{**anew, "state": t.HELD, "look_at": None})
        given_up.filter(state=t.CANCELLED).update(**anew)
        given_up.filter(state=t.ABANDONED).update(state=t.RUNNING, abandoned=False, ended_turn=None)
        given_up.update(abandoned=False, ended_turn=None)
        for pk, options in polls:  # its time begins anew
            steps.filter(pk=pk, state=t.SCHEDULED).update(end_by_at=end_of_poll(options, now))
        open_again: dict[str, Any] = {
            "state": t.SCHEDULED, "finished_at": None, "ended_turn": None, "abandoned": False, "taken_turn": None,
        }  # fmt: skip
        waits = steps.filter(Q(ended_turn=turn) | Q(taken_turn=turn), kind__in=journal.WAITS)
        waits.update(**open_again, result=None, failure=None, look_at=F("due_at"))
        steps.filter(ended_turn=turn).update(**open_again, result=None, failure=None)
        news = {"taken_turn": None, "taken_at": None, "look_at": now + RESEND}
        steps.filter(taken_turn=turn).update(**news)
        steps.filter(kind=journal.MAP, state=t.SCHEDULED).update(look_at=None)  # its members are looked at
        self.rows(Message).filter(instance_id=run_id, delivered_turn=turn).update(delivered_turn=None)
        self.rows(Message).filter(instance_id=run_id, taken_turn=turn).update(**news)
