"""Durable workflows for Django and Celery."""

from __future__ import annotations

from durable_celery.canvases import canvas, run
from durable_celery.client import WorkflowHandle, aget_handle, get_handle
from durable_celery.codec import register_type
from durable_celery.combinators import gather, poll, race, shield, sleep, sleep_until, spawn, wait_until
from durable_celery.context import current_step
from durable_celery.continuing import continue_as_new
from durable_celery.core.commands import Command
from durable_celery.core.handles import Handle
from durable_celery.core.racing import Winner
from durable_celery.core.retry import RetryPolicy
from durable_celery.errors import (
    BadValue,
    CancelRequested,
    ChildFailed,
    CompleteLater,
    DurableError,
    InstanceClosed,
    InstanceNotFound,
    KeyConflict,
    NonDeterminism,
    NonRetryable,
    NotConfigured,
    NotInWorkflow,
    NotRetryable,
    NotSerializable,
    PayloadError,
    PayloadTooLarge,
    PollTimeout,
    ReplayError,
    RetryLater,
    SignalTimeout,
    StepClosed,
    StepFailed,
    UpdateRejected,
    UsageError,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowError,
    WorkflowFailed,
    WorkflowNotFound,
    WorkflowTerminated,
    WorkflowTimedOut,
)
from durable_celery.maps import map_step
from durable_celery.messages import Signal, query, update
from durable_celery.replayed import (
    current_workflow,
    get_logger,
    now,
    random,
    set_attributes,
    set_status,
    side_effect,
    uuid4,
)
from durable_celery.saga import Saga
from durable_celery.steering import (
    acomplete_step,
    afail_step,
    aheartbeat_step,
    complete_step,
    fail_step,
    heartbeat_step,
)
from durable_celery.steps import Step, step
from durable_celery.surroundings import register_context
from durable_celery.versioning import DEFAULT_VERSION, deprecate_patch, get_version, patched
from durable_celery.workflows import Workflow, WorkflowDefinition, workflow

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_VERSION",
    "BadValue",
    "CancelRequested",
    "ChildFailed",
    "Command",
    "CompleteLater",
    "DurableError",
    "Handle",
    "InstanceClosed",
    "InstanceNotFound",
    "KeyConflict",
    "NonDeterminism",
    "NonRetryable",
    "NotConfigured",
    "NotInWorkflow",
    "NotRetryable",
    "NotSerializable",
    "PayloadError",
    "PayloadTooLarge",
    "PollTimeout",
    "ReplayError",
    "RetryLater",
    "RetryPolicy",
    "Saga",
    "Signal",
    "SignalTimeout",
    "Step",
    "StepClosed",
    "StepFailed",
    "UpdateRejected",
    "UsageError",
    "Winner",
    "Workflow",
    "WorkflowBlocked",
    "WorkflowCancelled",
    "WorkflowDefinition",
    "WorkflowError",
    "WorkflowFailed",
    "WorkflowHandle",
    "WorkflowNotFound",
    "WorkflowTerminated",
    "WorkflowTimedOut",
    "acomplete_step",
    "afail_step",
    "aget_handle",
    "aheartbeat_step",
    "canvas",
    "complete_step",
    "continue_as_new",
    "current_step",
    "current_workflow",
    "deprecate_patch",
    "fail_step",
    "gather",
    "get_handle",
    "get_logger",
    "get_version",
    "heartbeat_step",
    "map_step",
    "now",
    "patched",
    "poll",
    "query",
    "race",
    "random",
    "register_context",
    "register_type",
    "run",
    "set_attributes",
    "set_status",
    "shield",
    "side_effect",
    "sleep",
    "sleep_until",
    "spawn",
    "step",
    "update",
    "uuid4",
    "wait_until",
    "workflow",
]
