"""A row of the journal as a line of the timeline: the wait in the queue, then a bar an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_app import looks
from django_app.timeline import Line, Span
from durable_celery.core import journal
from durable_celery.core import transitions as t

COMPOSED = (*journal.COMPOSITES, journal.MAP)
WAITS = (*journal.WAITS, *COMPOSED)


def line_of(step: Any, records: Sequence[Any]) -> Line:
    """``records`` are its earlier attempts, oldest first."""
    return Line(label=f"{step.position}  {step.name or step.kind}", spans=_spans(step, records))


def _spans(step: Any, records: Sequence[Any]) -> list[Span]:
    state = looks.step_state_of(step)
    if step.kind in WAITS:
        look = "queued" if step.kind in COMPOSED else "waiting"
        end = step.finished_at or step.taken_at
        return [Span(start=step.scheduled_at, end=end, look=look, title=f"{step.kind} {step.name}: {state}".strip())]
    spans = [
        Span(
            start=record.started_at or record.finished_at,
            end=record.finished_at,
            look="off" if record.outcome == "superseded" else "failed",
            title=f"attempt {record.attempt}: {record.outcome}",
        )
        for record in records
    ]
    told = {record.attempt for record in records if record.outcome != "superseded"}
    if step.started_at is not None and step.attempt not in told:
        spans.append(_last(step, state))
    first = min((span.start for span in spans), default=step.finished_at)
    return [Span(start=step.scheduled_at, end=first, look="queued", title="in the queue"), *spans]


def _last(step: Any, state: str) -> Span:
    look = looks.LOOKS.get(state, "off")
    if step.kind == journal.COMPENSATION and state == t.SUCCEEDED:
        look = "undo"
    title = f"{step.name}: {state}" if step.kind == journal.CHILD else f"attempt {step.attempt}: {state}"
    return Span(start=step.started_at, end=step.finished_at, look=look, title=title)
