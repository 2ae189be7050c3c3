"""The primary keys of a queryset, read in pages: each begins after the last key of the one before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

from durable_celery.errors import BadValue

PAGE = 2000  # keys in one statement


def source_of(queryset: Any) -> QuerySet[Any]:
    """A queryset whose keys can be read in pages, in their own order; ``BadValue`` says why another cannot."""
    if not isinstance(queryset, QuerySet):
        raise _refused(queryset, f"it is a {type(queryset).__name__}", "pass a queryset, as Model.objects.filter(...)")
    query, pk = queryset.query, queryset.model._meta.pk
    own = {"pk", pk.name, pk.attname} if pk is not None else {"pk"}
    if query.is_sliced:
        raise _refused(queryset, "it is sliced", "filter it, or read the keys in a step and pass the list")
    if query.combinator:
        raise _refused(queryset, f"it is a {query.combinator}", "join the conditions with Q(...) | Q(...)")
    if query.distinct_fields:
        raise _refused(queryset, "it is distinct by fields", "read the keys in a step and pass the list")
    if query.extra_order_by or not own.issuperset(query.order_by):
        raise _refused(
            queryset, "it has an order of its own", "members are in order of primary key: leave .order_by(...) out"
        )
    fields = getattr(queryset, "_fields", None)
    if fields is not None and not (len(fields) == 1 and own.issuperset(fields)):
        raise _refused(queryset, "it gives values()", "the step gets the primary key: leave values out")
    found: QuerySet[Any] = queryset.all()
    found.query.select_for_update = False
    keys: QuerySet[Any] = found.order_by("pk").values_list("pk", flat=True).distinct()
    return keys


def primary_keys(source: QuerySet[Any]) -> Iterator[Any]:
    """The keys in order; a page at a time is in memory. What comes behind the last page while it is read is in."""
    found = source
    while True:
        page = list(found[:PAGE])
        yield from page
        if len(page) < PAGE:
            return
        found = source.filter(pk__gt=page[-1])


def limit_of(options: str) -> int | None:
    """How many members of a map may run at once, by its recorded rules."""
    rules = json.loads(options) if options else {}
    limit: int | None = rules.get("limit")
    return limit


def _refused(queryset: Any, why: str, fix: str) -> BadValue:
    model = getattr(getattr(queryset, "model", None), "__name__", "")
    return BadValue(f"map_step cannot go through this queryset of {model} by primary key: {why}; {fix}", path="items")
