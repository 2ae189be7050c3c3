"""What people do to instances, from the admin and from a command line alike: one value for each act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_app.models import WorkflowInstance
from durable_celery import runtime, steering
from durable_celery.core import transitions as t
from durable_celery.errors import BadValue, DurableError
from durable_celery.messages import payload_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an act, in words: of a refusal what is the matter and what to do.

    ``wrong``: it was refused for what was given with it, whatever the instance.
    """

    ok: bool
    text: str
    wrong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """``permission`` is the model permission that allows it; ``possible`` says of a row whether the act makes sense.

    ``do`` gets the id of the chain and the reason, and returns "requested" or the final state it came too late for.
    """

    name: str
    permission: str
    label: str | Promise
    summary: str | Promise
    done: str
    refused: str
    possible: Callable[[WorkflowInstance], bool]
    do: Callable[[UUID, str], str | None]


def perform(act: Act, instance: WorkflowInstance, reason: str = "") -> Outcome:
    """Do it to the chain of an instance, in the current transaction; a refusal is an outcome, never an error."""
    try:
        answer = act.do(instance.chain_id, reason)
    except DurableError as refusal:
        return Outcome(ok=False, text=str(refusal), wrong=isinstance(refusal, BadValue))
    if answer in t.FINAL_STATES:
        return Outcome(ok=False, text=f"it is {answer} or about to be, and cannot be {act.refused}")
    return Outcome(ok=True, text=act.done)


def send(instance: WorkflowInstance, name: str, payload: Any, signal_id: str | None) -> Outcome:
    """Send a signal to the chain of an instance; the payload is of the signal's type already."""
    try:
        runtime.client().signal(instance.chain_id, name, payload, signal_id)
    except DurableError as refusal:
        return Outcome(ok=False, text=str(refusal), wrong=isinstance(refusal, BadValue))
    return Outcome(ok=True, text=f"signal {name!r} sent")


def typed_payload(name: str, data: Any) -> Any:
    """Plain JSON as the payload of the signal; ``BadValue`` names the path to what does not fit."""
    return payload_of(name, data)


def is_open(instance: WorkflowInstance) -> bool:
    return instance.state in t.OPEN_STATES


def _can_cancel(instance: WorkflowInstance) -> bool:
    asked = instance.cancel_requested_at is not None
    return is_open(instance) and instance.state != t.COMPENSATING and (not asked or instance.state == t.BLOCKED)


CANCEL = Act(
    name="cancel",
    permission="cancel",
    label=_("Cancel"),
    summary=_("The body is told at its next yield; its cleanup and its compensations run, then it ends CANCELLED."),
    done="cancel requested",
    refused="cancelled",
    possible=_can_cancel,
    do=steering.cancel,
)
TERMINATE = Act(
    name="terminate",
    permission="terminate",
    label=_("Terminate"),
    summary=_("It ends at once: no cleanup, no compensation. What its steps did stays as it is."),
    done="terminated",
    refused="terminated",
    possible=is_open,
    do=steering.terminate,
)
PAUSE = Act(
    name="pause",
    permission="pause",
    label=_("Pause"),
    summary=_("Attempts that run are finished and stored; nothing else happens until it is resumed."),
    done="paused",
    refused="paused",
    possible=lambda instance: is_open(instance) and instance.paused_at is None,
    do=steering.pause,
)
RESUME = Act(
    name="resume",
    permission="pause",
    label=_("Resume"),
    summary=_("It goes on; what fell due meanwhile is judged now, in order of time."),
    done="resumed",
    refused="resumed",
    possible=lambda instance: is_open(instance) and instance.paused_at is not None,
    do=lambda instance_id, reason: steering.resume(instance_id),
)
RETRY = Act(
    name="retry",
    permission="retry",
    label=_("Retry"),
    summary=_(
        "The last failure or block is taken back: the steps that failed start afresh, all others keep their results."
    ),
    done="will be tried again",
    refused="tried again",
    possible=lambda instance: instance.state in (t.BLOCKED, t.FAILED),
    do=lambda instance_id, reason: steering.retry(instance_id),
)
ACTS = {act.name: act for act in (CANCEL, TERMINATE, PAUSE, RESUME, RETRY)}
