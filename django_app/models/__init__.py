"""The tables. Only the store writes them; everyone may read."""

from __future__ import annotations

from django_app.models.instance import WorkflowInstance, WorkflowKey
from django_app.models.message import Mailbox, Message
from django_app.models.process import EngineHeartbeat, ScheduleSlot, WorkerLease
from django_app.models.step import Marker, StepAttempt, StepResult

__all__ = [
    "EngineHeartbeat",
    "Mailbox",
    "Marker",
    "Message",
    "ScheduleSlot",
    "StepAttempt",
    "StepResult",
    "WorkerLease",
    "WorkflowInstance",
    "WorkflowKey",
]
