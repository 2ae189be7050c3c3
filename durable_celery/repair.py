"""What people do to a run that went wrong: put a result in a step's place, try a step again, go on from a position.

Every call joins the current transaction, if there is one, and hints at it after the commit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from durable_celery import payloads, runtime, steering
from durable_celery.core import identity, journal, skipping, transitions
from durable_celery.core.failure import Failure
from durable_celery.core.forking import ordinal_of
from durable_celery.engine import children, forking, verdicts
from durable_celery.errors import BadValue, InstanceNotFound, NonDeterminism, NotRetryable, type_name
from durable_celery.ports import InstanceRow, Loaded, NewInstance, NewMessage, Wake
from durable_celery.registry import registry

MISMATCH = type_name(NonDeterminism)


def skip(instance_id: UUID, position: str, result: Any = None) -> None:
    """Go on as if what stands at ``position`` had ended with ``result``.

    An open step ends SUCCEEDED with it; what its attempt brings later is kept as superseded. Of a FAILED instance the
    step must be its last failure: it is taken back as by ``retry``, with the result in place. Of a BLOCKED instance
    whose body does not fit the journal there, what is recorded is set aside (``"2"`` becomes ``"2!1"``) and a row of
    what the body asks for takes its place. ``BadValue`` if nothing is there, ``StepClosed`` if it has ended,
    ``NotRetryable`` with the reason if the body has gone on since.
    """
    _check_position(position)
    rt = runtime.current()
    text = payloads.encode(result, rt.settings, root="result")
    run = _newest(instance_id)
    sides = mismatch_of(run)
    if sides is not None and sides.get("position") == position:
        _skip_mismatch(run, position, sides, text)
    elif run.state == transitions.FAILED:
        _reopen(run, instance_id, position, text)
    elif run.state in transitions.FINAL_STATES:
        raise NotRetryable(
            f"instance {run.chain_id} is {run.state}: nothing in it is open or failed; fork({position!r}) goes on from "
            "there in a new one",
            instance_id=str(run.chain_id),
        )
    else:
        steering.complete_step(steering.token_at(instance_id, position), result)


def retry_step(instance_id: UUID, position: str) -> None:
    """Try the step at ``position`` again now.

    One that waits for its next attempt is due at once. One that FAILED starts afresh if the body has not gone on since:
    of an open instance that waits for others beside it, or as ``retry`` does of a FAILED or BLOCKED one. Anything else
    is ``NotRetryable``, with the reason. ``BadValue`` if no step is there.
    """
    _check_position(position)
    rt = runtime.current()
    run = _newest(instance_id)
    step = next((step for step in rt.store.open_steps(run.id) if step.position == position), None)
    if step is not None and step.state == transitions.RETRYING:
        now = rt.clock.now()
        if not rt.store.change_step(step, verdicts.due_now(step, now)).ok:
            raise _refusal(run, position, "its step changed at this moment; look again")
        rt.store.on_commit(lambda: _dispatch(run, position))
        return
    row = _row_at(run, position)
    if row["state"] != transitions.FAILED:
        raise _refusal(run, position, _why_not(str(row["kind"]), str(row["state"])))
    if run.state == transitions.FAILED:
        _reopen(run, instance_id, position, None)
        return
    if run.state in transitions.FINAL_STATES or run.state == transitions.COMPENSATING:
        raise _refusal(
            run, position, f"the instance is {run.state}; fork({position!r}) goes on from there in a new one"
        )
    rt.store.restart_step(run, position, rt.clock.now())
    rt.store.on_commit(lambda: _dispatch(run, position))
    steering.hint_after_commit(run.id)


def fork(instance_id: UUID, position: str) -> UUID:
    """Start a new instance from everything that this one had recorded before ``position``; returns its id.

    It has no key and no parent; arguments, version, context and attributes are the same. Rows before the top-level
    yield of ``position`` are copied with their results and do not run again, nor do messages and recorded values taken
    in by then come twice; what was still running beside the body then runs afresh. From that yield on it goes its own
    way. The old instance stays as it is: end it, if both may not go on. Compensations of copied steps belong to both.
    ``BadValue`` if the run never came there, ``NotRetryable`` if this code does not fit what is recorded before it.
    """
    ordinal_of(position)
    rt = runtime.current()
    run = _newest(instance_id)
    now = rt.clock.now()
    plan = forking.fork_of(rt, _loaded(run), position, now)
    lasts = run.deadline_at - run.start_at if run.deadline_at is not None else None
    expected = registry.workflow(run.name, run.version).options.expected
    new = NewInstance(
        id=identity.new_id(int(now.timestamp() * 1000), os.urandom(10)),
        name=run.name,
        version=run.version,
        args=run.args,
        created_at=now,
        start_at=now,
        look_at=now + verdicts.RESEND_GRACE,
        queue=run.queue,
        priority=run.priority,
        deadline_at=None if lasts is None else now + lasts,
        expected_at=None if expected is None else now + timedelta(seconds=expected),
        attributes=run.attributes,
        memo={"forked_from": str(run.chain_id), "forked_at": position},
        context=run.context,
    )
    wakes: list[Wake] = []
    rt.store.fork(run.id, new, plan, now, wakes)
    rt.store.on_commit(lambda: children.wake(rt, wakes))
    steering.hint_after_commit(new.id, new.queue)
    return new.id


def mismatch_of(run: InstanceRow) -> Mapping[str, Any] | None:
    """Both sides of what blocks the run: the fields of its ``NonDeterminism``; None if something else does."""
    if run.state != transitions.BLOCKED or not run.failure:
        return None
    failure = Failure.from_text(run.failure)
    return failure.attributes if failure.type == MISMATCH else None


# -- parts -------------------------------------------------------------------------------------------------------------


def _skip_mismatch(run: InstanceRow, position: str, sides: Mapping[str, Any], result: str) -> None:
    rt = runtime.current()
    place = skipping.replacement(position, sides, _loaded(run).journal)
    payload = None
    if place.kind == journal.SIGNAL and place.taken_turn is None:
        payload = NewMessage(kind="signal", name=place.name, payload=result)  # news of a wait is a message
    if not rt.store.replace_row(run, place, result, payload, rt.clock.now()):
        raise _refusal(run, position, "it changed while it was repaired; look again")
    steering.hint_after_commit(run.id)


def _reopen(run: InstanceRow, instance_id: UUID, position: str, result: str | None) -> None:
    kind = _row_at(run, position)["kind"]
    if kind not in journal.STEPS:
        raise _refusal(run, position, f"a {kind} is no step; retry() takes back the last failure, whatever it is of")
    rt = runtime.current()
    wakes: list[Wake] = []
    now = rt.clock.now()
    rt.store.reopen_step(instance_id, position, result, now, wakes)
    steering.hint_after_commit(run.id)
    rt.store.on_commit(lambda: children.wake(rt, wakes))
    rt.store.on_commit(lambda: steering.send_afresh(rt, instance_id, wakes, now))


def _dispatch(run: InstanceRow, position: str) -> None:
    rt = runtime.current()
    steps = [step.id for step in rt.store.open_steps(run.id) if step.position == position]
    rt.transport.dispatch(rt.store.dispatches(steps), rt.clock.now())


def _why_not(kind: str, state: str) -> str:
    if kind not in journal.RUNS:
        return f"a {kind} is no step that could be tried again"
    return {
        transitions.RUNNING: "it is RUNNING: an attempt is under way and must not run twice at once; wait for its end, "
        "or end it by fail_step() or skip()",
        transitions.EXTERNAL: "it was handed to the outside; end it by complete_step(), fail_step() or skip()",
        transitions.SCHEDULED: "it is SCHEDULED and starts as soon as a worker is free",
        transitions.HELD: "it is held back by the limit of its gather and starts when another member ends",
        transitions.ABANDONED: "nobody waits for it any more",
        transitions.SUCCEEDED: "it has its result; fork() runs it again in a new instance",
        transitions.CANCELLED: "it was given up, nobody waits for it any more",
    }[state]


def _row_at(run: InstanceRow, position: str) -> Mapping[str, Any]:
    row = next((row for row in runtime.current().store.history(run.id) if row["position"] == position), None)
    if row is None:
        raise BadValue(
            f"instance {run.chain_id} has nothing at position {position!r}; history() shows what it has",
            path="position",
            instance_id=str(run.chain_id),
        )
    return row


def _refusal(run: InstanceRow, position: str, why: str) -> NotRetryable:
    return NotRetryable(f"position {position} of instance {run.chain_id}: {why}", instance_id=str(run.chain_id))


def _check_position(position: Any) -> None:
    if isinstance(position, str) and position.endswith(identity.COMPENSATION):
        position = position[:-1]
    ordinal_of(position)


def _newest(instance_id: UUID) -> InstanceRow:
    row = runtime.current().store.find(instance_id)
    if row is None:
        raise InstanceNotFound.of(instance_id)
    return row


def _loaded(run: InstanceRow) -> Loaded:
    loaded = runtime.current().store.load(run.id)
    assert loaded is not None  # it was there a moment ago, and purging takes none that is open or blocked
    return loaded
