"""Finding instances by what people have at hand: an id, or the beginning of a key. Every way goes by an index."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Q

from django_app.models import WorkflowInstance

LAST = "\U0010ffff"  # sorts after every character


def by_term(found: Any, term: str) -> Any:
    """Those with this id (of the run or its chain), else those whose key begins with ``term``."""
    instance_id = as_id(term)
    if instance_id is not None:
        return found.filter(Q(pk=instance_id) | Q(chain_id=instance_id))
    return by_key(found, term)


def by_key(found: Any, prefix: str) -> Any:
    """Those whose key begins with ``prefix``; on MySQL in whatever case."""
    vendor = connections[found.db].vendor
    if vendor == "sqlite":
        # SQLite's LIKE ignores case and therefore the index.
        return found.filter(key__gte=prefix, key__lt=prefix + LAST)
    return found.filter(**{"key__istartswith" if vendor == "mysql" else "key__startswith": prefix})


def run_of(instance_id: UUID) -> WorkflowInstance | None:
    """The run with this id; for a chain whose first run is gone, its newest."""
    rows = WorkflowInstance.objects.filter(Q(pk=instance_id) | Q(chain_id=instance_id))
    runs = list(rows.order_by("-created_at")[:20])
    return next((run for run in runs if run.pk == instance_id), runs[0] if runs else None)


def as_id(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None
