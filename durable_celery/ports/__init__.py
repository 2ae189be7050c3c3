"""The two doors of the engine: ``Store`` to the database, ``Transport`` to the broker; and the values that go through.

``django_app.store`` implements Store, ``durable_celery.celery.transport`` Transport. Each method says what it does in
one sentence and, where it matters, the invariant it keeps. All times are aware UTC by the database's clock.
"""

from __future__ import annotations

from durable_celery.ports.attempt import AttemptRecord, Changed, Claimed, OpenStep, StepChange
from durable_celery.ports.instances import Created, InstanceRow, Loaded, NewInstance, NewMessage, StoredUpdate, Stuck
from durable_celery.ports.maps import EndedMembers, NewMembers, Progress
from durable_celery.ports.processes import Announced, Heartbeat, Lease
from durable_celery.ports.purge import EndedRoot, Removed
from durable_celery.ports.store import Store
from durable_celery.ports.tasks import TaskCall, TaskEnd
from durable_celery.ports.tested import TestedStore
from durable_celery.ports.transport import Client, Transport
from durable_celery.ports.turn import Committed, Dispatch, NewEntry, NotLiked, Settled, Successor, TurnCommit, Wake

__all__ = [
    "Announced",
    "AttemptRecord",
    "Changed",
    "Claimed",
    "Client",
    "Committed",
    "Created",
    "Dispatch",
    "EndedMembers",
    "EndedRoot",
    "Heartbeat",
    "InstanceRow",
    "Lease",
    "Loaded",
    "NewEntry",
    "NewInstance",
    "NewMembers",
    "NewMessage",
    "NotLiked",
    "OpenStep",
    "Progress",
    "Removed",
    "Settled",
    "StepChange",
    "Store",
    "StoredUpdate",
    "Stuck",
    "Successor",
    "TaskCall",
    "TaskEnd",
    "TestedStore",
    "Transport",
    "TurnCommit",
    "Wake",
]
