"""Reading the rows of a journal: thousands in each turn, so each costs as little as it can.

Django converts each value of each row apart, and drivers what they take for a time: half of a long turn. When a row
ended is read only of those that no turn has taken in yet, and flags are as good as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections
from django.db.models import Case, F, QuerySet, TextField, Value, When
from django.db.models.sql.constants import MULTI

from django_app.models.moments import MomentField
from durable_celery.core import journal

FIELDS = (
    "id", "position", "kind", "name", "state", "members", "result", "failure", "attempt", "taken_turn", "taken_order",
    "compensation", "abandoned", "unknown_end", "taken_at", "due_at",
)  # fmt: skip
AS_THEY_COME = tuple(map(FIELDS.index, ("abandoned", "unknown_end")))
ARGS = len(FIELDS)

Convert = Callable[[Any], Any]


def read(found: QuerySet[Any], *, args: bool) -> Sequence[journal.Entry]:
    """The entries of these rows, in one query and in chunks; ``args``: with the encoded arguments of each."""
    # Of a gather its rules as recorded, of a child its terms; of a step, its terms are nothing to replay.
    rules = Case(When(kind__in=journal.WITH_OPTIONS, then=F("options")), default=Value(""), output_field=TextField())
    ended_at = Case(When(taken_turn__isnull=True, then=F("finished_at")), output_field=MomentField())
    shown = (*FIELDS, "args") if args else FIELDS
    named = found.annotate(rules=rules, ended_at=ended_at).values_list(*shown, "rules", "ended_at")
    compiler = named.query.get_compiler(using=named.db)
    chunks = compiler.execute_sql(MULTI)
    converters = _converters(compiler, named.db)
    return [_entry(row, converters, args) for chunk in chunks for row in chunk]


def _converters(compiler: Any, alias: str) -> Sequence[tuple[int, Convert]]:
    """What makes the value of a column of what the driver gives, for the columns that need it."""
    connection = connections[alias]

    def chained(steps: Sequence[Any], expression: Any) -> Convert:
        def convert(value: Any) -> Any:
            for step in steps:
                value = step(value, expression, connection)
            return value

        return convert

    found = compiler.get_converters([column[0] for column in compiler.select])
    return [(place, chained(*both)) for place, both in found.items() if place not in AS_THEY_COME]


def _entry(row: Sequence[Any], converters: Sequence[tuple[int, Convert]], args: bool) -> journal.Entry:
    values = list(row)
    for place, convert in converters:
        if values[place] is not None:
            values[place] = convert(values[place])
    return journal.Entry(
        id=values[0], position=values[1], kind=values[2], name=values[3], state=values[4], members=values[5],
        result=values[6], failure=values[7], attempt=values[8], taken_turn=values[9], taken_order=values[10],
        compensation=values[11], abandoned=bool(values[12]), unknown_end=bool(values[13]), taken_at=values[14],
        due_at=values[15], args=values[ARGS] if args else "", options=values[-2], finished_at=values[-1],
    )  # fmt: skip
