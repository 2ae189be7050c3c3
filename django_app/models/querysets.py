"""What people ask for: ``WorkflowInstance.objects.stuck()`` and the like. All read the engine's database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connections, models
from django.db.models import Exists, F, Lookup, OuterRef, Q
from django.db.models.fields.json import KeyTransform

from django_app.models.subjects import subject_hash
from durable_celery import runtime
from durable_celery.core import transitions as t
from durable_celery.core.journal import COMPOSITES, MAP, WAITS
from durable_celery.core.labels import is_storable

if TYPE_CHECKING:
    from django_app.models.instance import WorkflowInstance
    from django_app.models.step import StepResult

    Instances = models.QuerySet[WorkflowInstance]
    Steps = models.QuerySet[StepResult]
    AnyLookup = Lookup[Any]
else:
    Instances = Steps = models.QuerySet
    AnyLookup = Lookup

NEVER_STARTED = Q(state=t.CANCELLED, attempt=0)
OUTCOME = Q(taken_turn__isnull=True, mapped=False, abandoned=False, state__in=t.STEP_FINAL) & ~NEVER_STARTED
NO_STEP = (*WAITS, *COMPOSITES, MAP)


class _Not(AnyLookup):
    """``NOT column``, the words of the partial index: Django 6.1 asks SQLite for ``column = False``, and misses it."""

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        column, params = self.process_lhs(compiler, connection)
        return f"NOT {column}", params


IN_JOURNAL = Q(_Not(F("mapped"), True))


def engine_alias() -> str:
    """The database of the engine: ``DURABLE_CELERY["DATABASE"]``."""
    given = getattr(settings, "DURABLE_CELERY", None)
    alias = given.get("DATABASE") if isinstance(given, Mapping) else None
    return alias if isinstance(alias, str) and alias.strip() else "default"


class InstanceQuerySet(Instances):
    """Instances by what they are doing. Each method narrows the set it is called on."""

    def open(self) -> InstanceQuerySet:
        """Not ended yet, paused and blocked ones included."""
        return self._only(state__in=t.OPEN_STATES)

    def closed(self) -> InstanceQuerySet:
        """Ended, in whatever way; a run that has gone on as a new one has not."""
        return self._only(state__in=[state for state in t.FINAL_STATES if state != t.CONTINUED])

    def waiting(self) -> InstanceQuerySet:
        """Nothing to do but wait, for steps as well."""
        return self._only(state=t.WAITING)

    def blocked(self) -> InstanceQuerySet:
        """Held up by a bug or a mismatch, until new code or a person comes."""
        return self._only(state=t.BLOCKED)

    def retrying(self) -> InstanceQuerySet:
        """Open, with a step that failed and will be tried again."""
        from django_app.models import StepResult

        steps = StepResult.objects.filter(instance_id=OuterRef("pk"), state=t.RETRYING)
        return self.open()._only(Exists(steps))

    def stuck(self, before: datetime | None = None) -> InstanceQuerySet:
        """Open for longer than their workflow's ``expected``, or with a signal waited for longer than its
        ``warn_after``, at ``before`` (default: now, by the clock of the engine)."""
        before = before or runtime.current().clock.guess()
        return self.open()._only(Q(expected_at__lt=before) | Q(warn_at__lt=before))

    def for_subject(self, subject: models.Model) -> InstanceQuerySet:
        """Started with ``using(subject=...)`` of this model instance."""
        return self._only(subject_hash=subject_hash(subject))

    def for_key(self, key: str) -> InstanceQuerySet:
        """With exactly this business key, of any workflow."""
        nothing: InstanceQuerySet = self.none()
        if key is None or not is_storable(key):
            return nothing
        found = self._only(key=key)
        if connections[self.db].vendor == "mysql":
            # Collations ignore case, accents and trailing blanks; these two lookups compare bytes.
            found = found._only(key__startswith=key, key__endswith=key)
        return found

    def with_attributes(self, **values: Any) -> InstanceQuerySet:
        """With all of these attributes, as ``set_attributes`` or ``using(attributes=...)`` wrote them."""
        nothing: InstanceQuerySet = self.none()
        if not is_storable(values):
            return nothing
        found = self
        if values and connections[self.db].vendor == "postgresql":
            found = found.filter(attributes__contains=values)
        for name, value in values.items():
            alias = f"attribute_{len(found.query.annotations)}"
            found = found.alias(**{alias: KeyTransform(name, "attributes")}).filter(**{alias: value})
        return found

    def _only(self, *conditions: Any, **values: Any) -> InstanceQuerySet:
        found: InstanceQuerySet = self.filter(*conditions, **values)
        return found


class StepQuerySet(Steps):
    """Rows of the journal."""

    def due(self, now: datetime) -> StepQuerySet:
        """At which the sweep must look, oldest first; none of paused, blocked or closed instances."""
        active = tuple(state for state in t.OPEN_STATES if state != t.BLOCKED)
        found = self.filter(look_at__lte=now, instance__state__in=active, instance__paused_at__isnull=True)
        ordered: StepQuerySet = found.order_by("look_at", "id")
        return ordered

    def outcomes(self) -> StepQuerySet:
        """Ended steps that no turn has taken in yet."""
        found: StepQuerySet = self.filter(OUTCOME).exclude(kind__in=NO_STEP)
        return found


class EngineManager(models.Manager[Any]):
    """Reads and writes the engine's database, whatever the routers of the project say."""

    def get_queryset(self) -> models.QuerySet[Any]:
        found = super().get_queryset()
        return found if self._db is not None else found.using(engine_alias())


class InstanceManager(EngineManager.from_queryset(InstanceQuerySet)):  # type: ignore[misc]
    """``WorkflowInstance.objects``."""

    if TYPE_CHECKING:  # what the queryset has; type checkers without Django's plugin do not know

        def open(self) -> InstanceQuerySet: ...
        def closed(self) -> InstanceQuerySet: ...
        def waiting(self) -> InstanceQuerySet: ...
        def blocked(self) -> InstanceQuerySet: ...
        def retrying(self) -> InstanceQuerySet: ...
        def stuck(self, before: datetime | None = None) -> InstanceQuerySet: ...
        def for_subject(self, subject: models.Model) -> InstanceQuerySet: ...
        def for_key(self, key: str) -> InstanceQuerySet: ...
        def with_attributes(self, **values: Any) -> InstanceQuerySet: ...
