"""One turn of a body: load, replay, decide, commit, hand out what it asked for.

Rules of this file:
- The body runs between transactions; the commit is one compare-and-swap on the revision that was loaded.
- Whoever loses the swap loads again: the winner may not have seen what the loser came for.
- A turn that parks looks once more: what was stored between its load and its commit woke nobody.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from durable_celery import calls, codec, faults, finals, payloads, runtime, surroundings
from durable_celery.core import compensation, journal, transitions
from durable_celery.core.decision import Decision
from durable_celery.core.failure import failure_of, printable
from durable_celery.core.replay import replay
from durable_celery.engine import (
    budget,
    children,
    discretion,
    endings,
    execution,
    fleet,
    history,
    lost_turns,
    maps,
    opened,
    polls,
    refusals,
    successors,
    verdicts,
)
from durable_celery.engine.info import info_of
from durable_celery.errors import KeyConflict, PayloadError, WorkflowNotFound
from durable_celery.ports import Committed, InstanceRow, Loaded, NewEntry, TurnCommit
from durable_celery.registry import registry
from durable_celery.runtime import Runtime
from durable_celery.workflows import WorkflowDefinition

log = logging.getLogger("durable_celery")

ROUNDS = 50  # turns taken in one go before the rest is left to a new message
COMPENSATION_POLL = timedelta(seconds=2)


def advance(instance_id: UUID) -> None:
    """Take turns until the instance has nothing to do right now. Safe to call at any time, by anyone, twice at once."""
    rt = runtime.current()
    for round_ in range(ROUNDS):
        answer = _turn(rt, instance_id)
        if answer == "parked":
            return
        if answer == "lost" and round_:
            time.sleep(random.random() * min(0.005 * 2**round_, 0.2))
    rt.transport.advance(instance_id, delay=0.1)


def block(instance_id: UUID, decision: Decision) -> None:
    """Let this BLOCKED ``decision`` be the next turn, whose body is not run."""
    rt = runtime.current()
    loaded = rt.store.load(instance_id)
    if loaded is None or not _is_open(loaded.instance):
        return
    fingerprint = registry.workflow(loaded.instance.name, loaded.instance.version).fingerprint
    if loaded.instance.state == transitions.BLOCKED and fingerprint in loaded.instance.blocked_by:
        return
    _commit(rt, _commit_of(rt, loaded, decision, fingerprint, rt.clock.now()), loaded)


def _turn(rt: Runtime, instance_id: UUID) -> str:
    """ "parked": nothing to do; "more": look again; "lost": another turn came between, or a message before a close."""
    loaded = rt.store.load(instance_id, newest=True)
    if loaded is None or not _is_open(loaded.instance):
        return "parked"
    instance = loaded.instance
    now = max(rt.clock.now(), instance.turn_at or instance.created_at)
    if instance.state == transitions.COMPENSATING:
        commit = _compensating(loaded, now)
        return "parked" if commit is None else _commit(rt, commit, loaded)
    ended = endings.without_body(loaded, now, rt.settings.cleanup_timeout)
    if ended is not None:
        return _commit(rt, _commit_of(rt, loaded, ended, "", now), loaded)
    if instance.start_at > now:
        return "parked"
    try:
        definition = registry.workflow(instance.name, instance.version)
    except WorkflowNotFound as error:
        fleet.leave_unknown(rt, instance, error, now)
        return "parked"
    if instance.state == transitions.BLOCKED:
        if definition.fingerprint in instance.blocked_by:
            return "parked"
    elif instance.turn and not journal.has_new(loaded.journal, now):
        return "parked"
    if fleet.passes_on(rt, instance, definition.fingerprint, now):
        return "parked"
    decision = lost_turns.begin(rt, loaded, now) or _decide(rt, loaded, definition, now)
    if fleet.leaves(rt, instance, definition.fingerprint, decision, now):
        return "parked"
    decision = history.limited(decision, loaded.journal, instance.name, rt.settings)
    if refusals.alone(decision, instance.state):
        return refusals.keep(rt, loaded, decision, now)
    return _commit(rt, _commit_of(rt, loaded, decision, definition.fingerprint, now), loaded)


def _is_open(instance: InstanceRow) -> bool:
    return instance.state in transitions.OPEN_STATES and instance.paused_at is None


def _decide(rt: Runtime, loaded: Loaded, definition: WorkflowDefinition[Any, Any], now: datetime) -> Decision:
    instance = loaded.instance
    info = info_of(instance, now)
    try:
        given = [calls.decode_call(instance.args)]
    except Exception as error:  # noqa: BLE001 - a row that cannot be read blocks this instance, never its neighbours
        failure = failure_of(error)
        return Decision(
            state=transitions.BLOCKED,
            failure=failure,
            waiting=f"the arguments cannot be read: {failure.brief}",
            misfit=True,
        )

    def take(stored: journal.Journal, wrap: Callable[..., Any] = lambda body: body) -> Decision:
        # Decoded anew the second time: a body may change what it was given.
        args, kwargs = given.pop() if given else calls.decode_call(instance.args)
        replaying = partial(
            replay, wrap(definition.body), args, kwargs, stored,
            turn=instance.turn + 1, now=now, started_at=instance.started_at if instance.turn else None,
            decode=codec.decode,
            encode=lambda value, root: payloads.encode(value, rt.settings, root=root),
            adapt=rt.transport.adapt, fails_on=definition.options.fails_on,
            interrupts=execution.interrupts_a_turn, in_finally=finals.in_finally, info=info,
        )  # fmt: skip
        return budget.run(replaying, rt.settings.turn_timeout.total_seconds(), instance.id)

    faults.reach("turn.before_body")
    with rt.store.refuse_queries(), contextlib.ExitStack() as stack:
        try:
            stack.enter_context(surroundings.restored(instance.context))
        except Exception as error:  # noqa: BLE001 - without its tenant or user, say, no body may run
            failure = failure_of(error)
            return Decision(
                state=transitions.BLOCKED, failure=failure, waiting=f"its context cannot be restored: {failure.brief}"
            )
        try:
            decision = rt.decide(take, loaded.journal)
        except budget.TurnTimedOut as error:
            return budget.blocked(rt.settings.turn_timeout, error.place or "the reading of its journal")
    return _with_result(rt, decision, definition)


def _with_result(rt: Runtime, decision: Decision, definition: WorkflowDefinition[Any, Any]) -> Decision:
    if decision.state != transitions.COMPLETED:
        return decision
    try:
        root = f"the return value of workflow {definition.name}"
        return replace(decision, value=payloads.encode(decision.value, rt.settings, root=root))
    except PayloadError as error:
        failure = failure_of(error)
        return Decision(state=transitions.BLOCKED, failure=failure, waiting=failure.brief)


# -- the commit --------------------------------------------------------------------------------------------------------


def _commit(rt: Runtime, commit: TurnCommit, loaded: Loaded) -> str:
    faults.reach("turn.before_commit")
    try:
        committed: Committed | None = rt.store.commit_turn(commit)
    except KeyConflict as error:
        if commit.successor is None:
            raise
        return _commit(rt, successors.refused(commit, error, loaded.instance.deadline_at), loaded)
    faults.reach("turn.after_commit")
    if committed is None:
        return "lost"
    _report(rt, commit, loaded)
    faults.reach("publish.before")
    if committed.dispatches:
        rt.transport.dispatch(committed.dispatches, commit.now)
    polls.hint(rt, commit)
    maps.publish(rt, commit)
    children.wake(rt, committed.wakes)
    faults.reach("publish.after")
    if commit.successor is not None:
        return successors.follow(rt, commit.successor, loaded.instance)
    if commit.state in transitions.FINAL_STATES or commit.state == transitions.BLOCKED:
        return "parked"
    if commit.state == transitions.COMPENSATING and not committed.dispatches:
        return "more"
    if committed.dispatches:
        return "parked"  # whoever ends what was handed out takes the next turn
    return "more" if rt.store.has_news(loaded.instance.id) else "parked"


def _commit_of(rt: Runtime, loaded: Loaded, decision: Decision, fingerprint: str, now: datetime) -> TurnCommit:
    instance, rows = loaded.instance, loaded.journal.entries
    common: dict[str, Any] = {
        "instance_id": instance.id, "chain_id": instance.chain_id, "revision": instance.revision, "now": now,
        "fingerprint": fingerprint, "warn_at": decision.warn_at,
        "answers": decision.answers, "rejected": decision.rejected,
        **_seen(loaded, decision.taken_messages),
    }  # fmt: skip
    if decision.state == transitions.BLOCKED:
        return TurnCommit(
            **common, turn=instance.turn, state=transitions.BLOCKED,
            failure=decision.failure.to_text() if decision.failure else None,
            waiting_for=_sentence(f"blocked: {decision.waiting}", now), look_at=instance.deadline_at,
        )  # fmt: skip
    ended = decision.state != transitions.WAITING
    ids = {entry.position: entry.id for entry in rows}
    withdrawn = {ids[p] for p in decision.withdrawn if p in ids}
    if ended:
        withdrawn |= {
            e.id
            for e in rows
            if e.state in transitions.STEP_OPEN and e.id not in decision.taken_entries and not e.abandoned
        }
    closings = {closing.position: closing for closing in decision.closings}
    settled = [opened.settled(ids[position], closing) for position, closing in closings.items() if position in ids]
    withdrawn -= {s.entry_id for s in settled}
    state, closing_as = decision.state, ""
    if decision.state in (transitions.FAILED, transitions.CANCELLED) and any(map(compensation.owes, rows)):
        state, closing_as = transitions.COMPENSATING, decision.state
    waiting = decision.waiting if not closing_as else "its compensations"
    look_at = None if ended else endings.look_at(loaded, now, rt.settings.cleanup_timeout)
    if closing_as:
        look_at = now + verdicts.OUTCOME_GRACE  # no row of its compensations is there yet to be looked at
    entries = [
        opened.row_of(
            o,
            closings.get(o.position),
            o.position in decision.withdrawn or ended,
            now,
            starts=ended and o.position not in decision.told and opened.outlives_parent(o),
        )
        for o in decision.openings
    ]
    return TurnCommit(
        **common,
        **children.kin(loaded),
        **children.of_turn(instance, decision, entries, now),
        turn=instance.turn + 1,
        state=state,
        result=decision.value if decision.state == transitions.COMPLETED else None,
        failure=decision.failure.to_text() if decision.failure else None,
        closing_as=closing_as,
        waiting_for=_sentence(waiting, now) if state not in transitions.FINAL_STATES else "",
        status_text=decision.status_text,
        attributes={**instance.attributes, **decision.attributes} if decision.attributes else None,
        misfits=fleet.kept(instance, fingerprint),
        history_length=history.length_after(loaded.journal, decision),
        entries=entries,
        taken_entries=decision.taken_entries,
        taken_messages=decision.taken_messages,
        delivered_messages=decision.delivered_messages,
        returned_messages=decision.returned_messages,
        successor=successors.successor(decision.continuation, instance, now) if decision.continuation else None,
        settled=settled,
        again=polls.again(decision, ids),
        withdrawn=sorted(withdrawn),
        members=maps.members_of(rt, decision, now),
        halted=decision.halted,
        given_up_maps=maps.given_up(rows, withdrawn),
        markers=decision.markers,
        closes=ended,
        look_at=look_at,
    )


def _seen(loaded: Loaded, taken: Mapping[int, int]) -> dict[str, Any]:
    """Which messages this turn knew of; a close that finds another one is no close."""
    messages = loaded.journal.messages
    left = tuple(m.id for m in messages if m.taken_turn is None and m.id not in taken)
    return {"last_message": max((m.id for m in messages), default=0), "left_messages": left}


def _sentence(waiting: str, now: datetime) -> str:
    return printable(f"{waiting}, since {now:%Y-%m-%d %H:%M:%S} UTC") if waiting else ""


# -- compensating ------------------------------------------------------------------------------------------------------


def _compensating(loaded: Loaded, now: datetime) -> TurnCommit | None:
    instance = loaded.instance
    plan = compensation.plan(loaded.journal)
    entries: Sequence[NewEntry] = [opened.row_of(plan.opening, None, False, now)] if plan.opening else ()
    if not plan.done and not entries and not plan.taken and not plan.polls:
        return None
    look_at = now + COMPENSATION_POLL if plan.polls else None  # no deadline counts any more
    if plan.polls and not plan.taken and not entries and instance.waiting_for.startswith(plan.waiting):
        runtime.current().store.postpone_instance(instance.id, look_at)
        return None
    return TurnCommit(
        instance_id=instance.id,
        chain_id=instance.chain_id,
        revision=instance.revision,
        turn=instance.turn + 1,
        now=now,
        state=instance.closing_as if plan.done else transitions.COMPENSATING,
        failure=instance.failure,
        closing_as="" if plan.done else instance.closing_as,
        waiting_for="" if plan.done else _sentence(plan.waiting, now),
        entries=entries,
        taken_entries={row: order for order, row in enumerate(plan.taken)},
        closes=plan.done,
        **children.kin(loaded),
        **_seen(loaded, {}),
        look_at=None if plan.done else look_at,
    )


# -- what people see ---------------------------------------------------------------------------------------------------


def _report(rt: Runtime, commit: TurnCommit, loaded: Loaded) -> None:
    instance = loaded.instance
    if commit.history_length is not None:
        grown = history.warning(len(loaded.journal.entries), commit.history_length, instance.name, rt.settings)
        if grown:
            log.warning("instance %s: %s", instance.id, grown)
    if commit.state == transitions.BLOCKED:
        why = discretion.words(rt, instance.id, commit.waiting_for)
        log.error("workflow %s instance %s is BLOCKED: %s", instance.name, instance.id, why)
