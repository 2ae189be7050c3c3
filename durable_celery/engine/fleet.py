"""Workers of different code side by side, as during a deploy: whom a run or a step is left to.

Rules of this file:
- Each worker announces with its lease the steps it knows and the fingerprint of each body. What one worker cannot go on
  with is left, as it is, to a live one of other code that has not tried; only when there is none, it is blocked.
- A fingerprint that did not fit a journal once never will: the journal only grows. It is kept until somebody steers.
- Whoever leaves a run sends it on, a little later: the queue is shared, and the next to take it may be the right one.
  The tick does so too, in case that is lost.
- A worker that does not consume the run's queue will not take it. Of one that did not say what it consumes that is
  found out: it is waited for, but not for ever.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from durable_celery.core import transitions
from durable_celery.core.decision import Decision
from durable_celery.core.failure import printable
from durable_celery.engine import discretion
from durable_celery.errors import WorkflowNotFound
from durable_celery.ports import InstanceRow
from durable_celery.registry import registry
from durable_celery.runtime import Runtime

log = logging.getLogger("durable_celery")

SOON, RARELY = timedelta(seconds=2), timedelta(seconds=10)  # until the sweep looks again, at first and in the end
LATE = timedelta(seconds=30)  # the same, where no live worker is known to have the code
EAGER = timedelta(seconds=10)  # as long, whoever leaves a run sends it on by itself
PATIENCE = timedelta(minutes=5)  # for workers that did not say what they consume; and twice their lag
LONG_PATIENCE = timedelta(hours=1)  # for those that consume the queue, or say so
NONE = timedelta(days=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """What one process can run: fingerprints of bodies by name and version, and names of steps."""

    bodies: Mapping[tuple[str, int], str] = field(default_factory=dict)
    steps: frozenset[str] = frozenset()


# -- announcing --------------------------------------------------------------------------------------------------------


def announcement() -> str:
    """What this process can run, as its lease says it."""
    bodies = sorted((name, version, mark) for (name, version), mark in registry.fingerprints().items())
    return json.dumps({"bodies": bodies, "steps": sorted(registry.steps)}, separators=(",", ":"))


@lru_cache(maxsize=64)
def code_of(text: str) -> Code:
    """An announcement as it is read; nothing where it cannot be."""
    try:
        data = json.loads(text)
        bodies = {(name, version): mark for name, version, mark in data["bodies"]}
        return Code(bodies=bodies, steps=frozenset(data["steps"]))
    except (ValueError, TypeError, KeyError):
        return Code()


# -- a body that does not fit ------------------------------------------------------------------------------------------


def passes_on(rt: Runtime, instance: InstanceRow, fingerprint: str, now: datetime) -> bool:
    """Whether this code is known not to fit the run and another has not tried; the run is sent on then."""
    if fingerprint not in instance.blocked_by or instance.state == transitions.BLOCKED:
        return False
    nodes = _untried(rt, instance, fingerprint, now)
    if nodes:
        _leave(rt, instance, fingerprint, _sentence(instance, "this worker's code does not fit", nodes, now), now)
    return bool(nodes)


def leaves(rt: Runtime, instance: InstanceRow, fingerprint: str, decision: Decision, now: datetime) -> bool:
    """Whether the run, which does not fit this code, is left to others instead of being blocked."""
    if not decision.misfit or instance.state == transitions.BLOCKED:
        return False
    nodes = _untried(rt, instance, fingerprint, now)
    if nodes:
        why = discretion.words(rt, instance.id, decision.waiting)
        log.info("instance %s is left to %s: %s", instance.id, ", ".join(nodes), why)
        _leave(rt, instance, fingerprint, _sentence(instance, decision.waiting, nodes, now), now)
    return bool(nodes)


def kept(instance: InstanceRow, fingerprint: str) -> tuple[str, ...]:
    """The fingerprints that are known not to fit this journal, after a turn by ``fingerprint``."""
    if instance.state == transitions.BLOCKED:
        return ()
    return tuple(dict.fromkeys(each for each in instance.blocked_by if each != fingerprint))


def _untried(rt: Runtime, instance: InstanceRow, fingerprint: str, now: datetime) -> list[str]:
    """The nodes of live workers with other code of this body that has not tried, and that may get to take the run."""
    tried = {fingerprint, *instance.blocked_by}
    place = (instance.name, instance.version)
    others = rt.store.fleet(announcement(), now)
    able = [each for each in others if code_of(each.code).bodies.get(place, fingerprint) not in tried]
    if not able:
        return []
    queue = rt.transport.queue_of(instance.queue)
    lag = timedelta(seconds=2 * max(each.lag for each in able))
    waited = now - (instance.left_at or now) - lag
    return [each.node for each in able if waited <= _patience(queue, each.queues)]


def _patience(queue: str, consumed: Sequence[str]) -> timedelta:
    """How long to wait for a worker that consumes these queues and has not taken a run of this one."""
    if not queue or not consumed:
        return PATIENCE
    return LONG_PATIENCE if queue in consumed else NONE


def _sentence(instance: InstanceRow, why: str, nodes: list[str], now: datetime) -> str:
    since = instance.left_at or now
    return printable(
        f"a worker that knows the code of this run of workflow {instance.name!r} version {instance.version}; "
        f"{', '.join(nodes)} may: {why}, since {since:%Y-%m-%d %H:%M:%S} UTC"
    )


# -- a name that is not known here -------------------------------------------------------------------------------------


def leave_unknown(rt: Runtime, instance: InstanceRow, error: WorkflowNotFound, now: datetime) -> None:
    """Leave a run whose workflow or version this process does not have; nothing of it changes but what is said."""
    text = f"a worker that knows workflow {instance.name!r} version {instance.version}: {error}"
    if not instance.waiting_for.startswith(f"a worker that knows workflow {instance.name!r}"):
        log.error("instance %s: %s", instance.id, error)
        text = printable(f"{text}, since {now:%Y-%m-%d %H:%M:%S} UTC")
    else:
        text = instance.waiting_for
    place = (instance.name, instance.version)
    beside = any(place in code_of(each.code).bodies for each in rt.store.fleet(announcement(), now))
    if beside:
        _leave(rt, instance, "", text, now)
    else:
        rt.store.leave(instance.id, instance.revision, "", text, now, now + LATE)


def leave_unknown_step(rt: Runtime, name: str, now: datetime) -> datetime:
    """When to send a step again that this process does not know: soon if a live worker does."""
    if any(name in code_of(each.code).steps for each in rt.store.fleet(announcement(), now)):
        log.info("this worker knows no step %r; its row is left for a worker beside it that does", name)
        return now + SOON
    log.error("this worker knows no step %r; its row is left for a worker that does", name)
    return now + LATE


# -- leaving -----------------------------------------------------------------------------------------------------------


def _leave(rt: Runtime, instance: InstanceRow, fingerprint: str, text: str, now: datetime) -> None:
    waited = now - (instance.left_at or now)
    look_at = now + min(max(SOON, waited / 2), RARELY)
    if rt.store.leave(instance.id, instance.revision, fingerprint, text, now, look_at) and waited < EAGER:
        # Never at once: where this worker alone is idle, the message would come straight back.
        delay = random.uniform(0.1, 0.5) + waited.total_seconds() / 4
        rt.transport.advance(instance.id, instance.queue, delay=delay)
