"""Instances and journal rows as plain data, for terminals and JSON; secrets taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django_app import looks, search
from django_app.families import failing_calls
from django_app.models import Message, StepResult, WorkflowInstance
from django_app.values import call_data, value_data
from durable_celery import disclosure
from durable_celery.core import journal
from durable_celery.core.failure import Failure
from durable_celery.disclosure import Disclosure
from durable_celery.secrecy import Scrubber, scrubber

UNREAD = 100  # messages listed at most
BIG = ("args", "result", "failure", "attributes", "memo", "context", "blocked_by")


def summary(instance: WorkflowInstance, waiting_for: str, status: str) -> dict[str, Any]:
    """One line of a list: what costs no big text. Both texts without secrets."""
    return {
        "id": str(instance.chain_id),
        "run_id": str(instance.pk),
        "run_number": instance.run_number,
        "workflow": instance.name,
        "version": instance.version,
        "key": instance.key,
        "state": looks.state_of(instance),
        "waiting_for": waiting_for,
        "status": status,
        "created_at": instance.created_at,
        "started_at": instance.started_at,
        "finished_at": instance.finished_at,
    }


def whole(instance: WorkflowInstance, waiting_for: str) -> dict[str, Any]:
    """Everything about an instance but its journal."""
    of = disclosure.of_workflow(instance.name, instance.version)
    scrub = scrubber_of(instance)
    return {
        **summary(instance, scrub(waiting_for), scrub(instance.status_text)),
        "args": call_data(instance.args, of, scrub.data) if instance.args else {},
        "result": value_data(instance.result, of, scrub.data) if instance.result is not None else None,
        "error": failure(instance.failure, scrub),
        "attributes": scrub.data(disclosure.redacted(instance.attributes, of)),
        "deadline_at": instance.deadline_at,
        "expected_at": instance.expected_at,
        "warn_at": instance.warn_at,
        "paused_at": instance.paused_at,
        "parent_id": str(instance.parent_id) if instance.parent_id else None,
        "queue": instance.queue,
        "priority": instance.priority,
        "turns": instance.turn,
    }


def runs(instance: WorkflowInstance) -> dict[str, Any]:
    """The neighbours of a run in its chain, by their ids."""
    before, after = search.beside(instance)
    return {"previous_run": str(before.pk) if before else None, "next_run": str(after.pk) if after else None}


def unread(instance: WorkflowInstance) -> list[dict[str, Any]]:
    """Signals that were sent to the instance and that no wait and no handler was given, oldest first."""
    workflow = disclosure.of_workflow(instance.name, instance.version)
    of = disclosure.of_values() | workflow
    known = scrubber([(instance.args, workflow)] if instance.args else []).data
    kept = Message.objects.filter(chain_id=instance.chain_id, kind=journal.SIGNAL, delivered_turn__isnull=True)
    return [
        {
            "name": message.name,
            "payload": value_data(message.payload, of, known),
            "signal_id": message.dedupe,
            "stored_at": message.stored_at,
        }
        for message in kept.order_by("id")[:UNREAD]
    ]


def entries(instance: WorkflowInstance, steps: Sequence[StepResult]) -> list[dict[str, Any]]:
    """The journal in order; the names of ``handle.history()``."""
    workflow = disclosure.of_workflow(instance.name, instance.version)
    scrub = scrubber_of(instance, steps)
    return [_entry(step, of_step(step, workflow), scrub) for step in steps]


def scrubber_of(instance: WorkflowInstance, steps: Iterable[StepResult] = ()) -> Scrubber:
    """Takes secrets out of the texts of an instance and of ``steps``. One query: its errors repeat those of steps.

    And one for each generation of children that failed it.
    """
    workflow = disclosure.of_workflow(instance.name, instance.version)
    calls = [(step.args, of_step(step, workflow)) for step in steps if step.args]
    calls += failing_calls({instance.pk: workflow})[0][instance.pk]
    return scrubber([*calls, (instance.args, workflow)] if instance.args else calls)


def of_step(step: StepResult, workflow: Disclosure) -> Disclosure:
    """Of a row: steps, compensations and children have arguments by name, everything else has values only."""
    return disclosure.of_row(step.kind, step.name, workflow)


def failure(text: str | None, scrub: Scrubber) -> dict[str, Any] | None:
    """An error as data; one that cannot be read as its raw text."""
    if not text:
        return None
    try:
        found = Failure.from_text(text)
    except (ValueError, TypeError, KeyError, AttributeError):
        return {"type": "", "message": scrub(text), "traceback": ""}
    return {
        "type": found.type,
        "message": scrub(found.message),
        "traceback": scrub(found.traceback),
        "timed_out": found.timed_out,
        "lost": found.lost,
        "causes": [scrub(str(cause)) for cause in found.causes],
    }


def _entry(step: StepResult, of: Disclosure, scrub: Scrubber) -> dict[str, Any]:
    known = scrub.data
    read = call_data if step.kind in journal.CALLS else value_data
    return {
        "position": step.position,
        "kind": step.kind,
        "name": step.name,
        "state": looks.step_state_of(step),
        "args": read(step.args, of, known) if step.args else None,
        "result": value_data(step.result, of, known) if step.result is not None else None,
        "error": failure(step.failure, scrub),
        "attempts": step.attempt,
        "scheduled_at": step.scheduled_at,
        "started_at": step.started_at,
        "finished_at": step.finished_at,
        "due_at": step.due_at,
        "turn": step.taken_turn,
    }
