"""What people and the outside do to a running instance: cancel, pause, retry, end a step that was handed over.

Every call joins the current transaction, if there is one, and hints at it after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durable_celery import codec, faults, payloads, runtime
from durable_celery.core import journal, labels, transitions
from durable_celery.core.failure import Failure, failure_of
from durable_celery.engine import children, verdicts
from durable_celery.errors import BadValue, InstanceClosed, InstanceNotFound, PayloadError, StepClosed
from durable_celery.ports import Dispatch, NewMessage, OpenStep, StepChange, Wake
from durable_celery.runtime import Runtime
from durable_celery.twins import in_thread

TRIES = 20  # of an end that meets a row which changes at the same moment


# -- instances ---------------------------------------------------------------------------------------------------------


def cancel(instance_id: UUID, reason: str = "") -> str:
    """Ask an instance to end: ``CancelRequested`` is thrown at its current yield, its cleanup and compensations run.

    "requested", or the final state it came too late for. A second call changes nothing, but for a BLOCKED instance,
    which is then compensated from its journal without running the body. A paused instance is resumed by it.
    """
    return _request_end(instance_id, "cancel", reason)


def time_out(instance_id: UUID) -> str:
    """The same for an instance past its ``execution_timeout``; it ends FAILED with ``WorkflowTimedOut``."""
    return _request_end(instance_id, "deadline", "execution_timeout is over")


def terminate(instance_id: UUID, reason: str = "") -> str:
    """End an instance at once: nothing more runs, nothing is compensated. "requested", or the final state it has."""
    rt = runtime.current()
    failure = Failure(type="Terminated", message=_reason(reason))
    wakes: list[Wake] = []
    answer = rt.store.end_now(instance_id, failure.to_text(), rt.clock.now(), wakes)
    if answer == "requested":
        rt.store.on_commit(lambda: faults.reach("steer.after_commit"))
        rt.store.on_commit(lambda: children.wake(rt, wakes))
    return answer


def pause(instance_id: UUID, reason: str = "") -> None:
    """Take no turn and claim no step until ``resume``; running attempts finish and are stored. Twice is once."""
    rt = runtime.current()
    _refuse_final(instance_id, rt.store.pause(instance_id, _reason(reason), rt.clock.now()), "paused")


def resume(instance_id: UUID) -> None:
    """Go on; what fell due meanwhile is judged now, in order of time."""
    rt = runtime.current()
    _refuse_final(instance_id, rt.store.resume(instance_id, rt.clock.now()), "resumed")
    hint_after_commit(instance_id)


def retry(instance_id: UUID) -> None:
    """Reopen the last failure or block: its failed steps start afresh. ``NotRetryable`` says why it cannot be."""
    rt = runtime.current()
    wakes: list[Wake] = []
    now = rt.clock.now()
    rt.store.reopen(instance_id, now, wakes)
    hint_after_commit(instance_id)
    rt.store.on_commit(lambda: children.wake(rt, wakes))
    rt.store.on_commit(lambda: send_afresh(rt, instance_id, wakes, now))


def send_afresh(rt: Runtime, instance_id: UUID, wakes: Sequence[Wake], now: datetime) -> None:
    """Publish the steps that start afresh since ``now``: a turn publishes only what it asks for itself."""
    run = rt.store.find(instance_id)
    ids = {wake.instance_id for wake in wakes} | ({run.id} if run is not None else set())
    steps = [step.id for one in sorted(ids) for step in rt.store.open_steps(one) if step.scheduled_at >= now]
    rt.transport.dispatch(rt.store.dispatches(steps), now)


def _request_end(instance_id: UUID, kind: str, reason: str) -> str:
    rt = runtime.current()
    message = NewMessage(kind=kind, name="", payload=codec.encode(_reason(reason), root="reason"))
    answer = rt.store.request_end(instance_id, message, rt.clock.now())
    if answer == "requested":
        hint_after_commit(instance_id, point="cancel.after_commit")
    return answer


def hint_after_commit(instance_id: UUID, queue: str = "", *, point: str = "steer.after_commit") -> None:
    """Ask for a turn of this instance once the caller's transaction is committed."""
    rt = runtime.current()

    def hint() -> None:
        faults.reach(point)
        rt.transport.advance(instance_id, queue)

    rt.store.on_commit(hint)


def _reason(reason: Any) -> str:
    if not isinstance(reason, str):
        raise BadValue(f"reason={reason!r:.80} is not allowed, expected a str", path="reason")
    return labels.check_text(reason, "reason")


def _refuse_final(instance_id: UUID, state: str, what: str) -> None:
    if state in transitions.FINAL_STATES:
        raise InstanceClosed(
            f"instance {instance_id} is {state} and cannot be {what}", instance_id=str(instance_id), status=state
        )


# -- steps handed to the outside ---------------------------------------------------------------------------------------


def complete_step(token: str, result: Any = None) -> None:
    """End an open step with its result, from outside; the body of the workflow goes on with it.

    ``token`` is ``current_step().token``; it is good from the first attempt on, also before ``CompleteLater``. The
    first end wins, later ones raise ``StepClosed``. A result that cannot be kept is refused here (``NotSerializable``,
    ``PayloadTooLarge``), and the step stays open. Joins the current transaction.
    """
    try:
        text = payloads.encode(result, runtime.settings(), root="result")
    except PayloadError as error:
        error.instance_id = str(runtime.current().store.step_of(token).instance_id)
        raise
    _end_step(token, lambda step, now: verdicts.after_success(step, text, now))


def fail_step(token: str, error: BaseException | str = "failed from outside") -> None:
    """End an open step with an error, from outside, without another attempt; the body gets ``StepFailed``.

    ``error`` is an exception, whose type ``StepFailed.matches`` knows, or a text. ``token`` as for ``complete_step``.
    The first end wins, later ones raise ``StepClosed``.
    """
    failure = failure_of(error) if isinstance(error, BaseException) else Failure(type="Failed", message=str(error))
    _end_step(token, lambda step, now: verdicts.after_failure(step, failure, now, 0.0, fatal=True))


def heartbeat_step(token: str, details: Any = None) -> bool:
    """Note a sign of life of a step handed to the outside; True if it is asked to stop.

    ``details`` are kept as ``current_step().last_heartbeat`` of a later attempt. ``StepClosed`` once it has ended.
    """
    rt = runtime.current()
    step = _open(rt.store.step_of(token))
    now = rt.clock.now()
    silence = verdicts.terms_of(step.options).heartbeat
    silent_at = None if silence is None else now + timedelta(seconds=silence)
    looks = (x for x in (silent_at, step.close_at, step.end_by_at) if x is not None)
    with payloads.of(str(step.instance_id)):
        text = None if details is None else payloads.encode(details, rt.settings, root="details")
    return rt.store.heartbeat(step.id, step.token or "", text, now, min(looks, default=None)).cancel_requested


acomplete_step = in_thread(complete_step)
afail_step = in_thread(fail_step)
aheartbeat_step = in_thread(heartbeat_step)


def token_at(instance_id: UUID, position: str) -> str:
    """The token of the open step at a position of the journal (of the newest run), for who has no token.

    ``StepClosed`` if it has ended, ``BadValue`` if no step is there, or one that nobody may start yet.
    """
    if not isinstance(position, str):
        raise BadValue(
            f"position={position!r:.80} is not allowed, expected one such as '3' or '2.0.1', as history() shows them",
            path="position",
        )
    store = runtime.current().store
    row = store.find(instance_id)
    if row is None:
        raise InstanceNotFound.of(instance_id)
    group = position.rpartition(".")[0]
    step = next((s for s in store.open_steps(row.id, members=bool(group)) if s.position == position), None)
    if step is None:
        rows = [*store.history(row.id), *(store.history(row.id, of=group) if group else ())]
        ended = next((entry for entry in rows if entry["position"] == position), None)
        if ended is None:
            raise BadValue(f"instance {row.id} has nothing at position {position!r}", path="position")
        raise StepClosed(
            f"{ended['kind']} {ended['name']} at {position} of instance {row.id} is {ended['state']} already",
            instance_id=str(row.id),
        )
    if step.kind not in journal.RUNS or step.state == transitions.HELD:
        what = f"the {step.kind} {step.name}".strip()
        raise BadValue(
            f"at position {position} of instance {row.id} is {what}, {step.state}; expected a step that may run",
            path="position",
        )
    return store.token_of(step.id)


def _end_step(token: str, verdict: Callable[[OpenStep, datetime], StepChange]) -> None:
    rt = runtime.current()
    for _ in range(TRIES):
        step = _open(rt.store.step_of(token))
        now = rt.clock.now()
        changed = rt.store.change_step(step, verdict(step, now))
        if changed.ok:
            _hint_at(step.instance_id, changed.promoted, now)
            return
    raise StepClosed(
        f"step {step.name} at {step.position} of instance {step.instance_id} changes too fast; try again",
        instance_id=str(step.instance_id),
    )


def _hint_at(instance_id: UUID, promoted: Sequence[Dispatch], now: datetime) -> None:
    rt = runtime.current()
    rt.store.on_commit(lambda: rt.transport.dispatch(promoted, now))
    hint_after_commit(instance_id)


def _open(step: OpenStep) -> OpenStep:
    if step.state in transitions.STEP_FINAL:
        raise StepClosed(
            f"step {step.name} at {step.position} of instance {step.instance_id} is {step.state} already; "
            "the first end wins",
            instance_id=str(step.instance_id),
        )
    return step
