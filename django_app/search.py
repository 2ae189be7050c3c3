"""Finding instances by what people have at hand: an id, or the beginning of a key. Every way goes by an index."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Q

from django_app.models import WorkflowInstance
from durable_celery.core import transitions as t
from durable_celery.core.labels import is_storable

LAST = "\U0010ffff"  # sorts after every character


def by_term(found: Any, term: str) -> Any:
    """Those with this id (of the run or its chain), else those whose key begins with ``term``.

    Of a chain the runs that went on as newer ones are left out, but for the very one whose id is asked for.
    """
    instance_id = as_id(term)
    if instance_id is not None:
        return found.filter(Q(pk=instance_id) | Q(chain_id=instance_id) & ~Q(state=t.CONTINUED))
    return by_key(found, term)


def by_key(found: Any, prefix: str) -> Any:
    """Those whose key begins with ``prefix``; on MySQL in whatever case."""
    if not is_storable(prefix):
        return found.none()
    vendor = connections[found.db].vendor
    if vendor == "sqlite":
        # SQLite's LIKE ignores case and therefore the index.
        return found.filter(key__gte=prefix, key__lt=prefix + LAST)
    return found.filter(**{"key__istartswith" if vendor == "mysql" else "key__startswith": prefix})


def by_name(found: Any, name: str) -> Any:
    """Those of the workflow with this name."""
    return found.filter(name=name) if is_storable(name) else found.none()


def run_of(instance_id: UUID, number: int | None = None) -> WorkflowInstance | None:
    """The newest run of the chain with this id, or its run of this number; for the id of a later run, that run."""
    runs = WorkflowInstance.objects.filter(chain_id=instance_id).order_by("-run_number")
    found: WorkflowInstance | None = (runs if number is None else runs.filter(run_number=number)).first()
    return found or WorkflowInstance.objects.filter(pk=instance_id).first()


def beside(instance: WorkflowInstance) -> tuple[WorkflowInstance | None, WorkflowInstance | None]:
    """The run before this one in its chain, and the one after it. One statement."""
    runs = WorkflowInstance.objects.filter(chain_id=instance.chain_id).only("id", "chain_id", "run_number", "state")
    around = runs.filter(run_number__in=(instance.run_number - 1, instance.run_number + 1))
    found = {run.run_number - instance.run_number: run for run in around}
    return found.get(-1), found.get(1)


def as_id(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None
