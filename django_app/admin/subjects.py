"""The instances about an object, on the object's own page in the admin.

from django_app.admin.subjects import WorkflowInstancesInline

class OrderAdmin(admin.ModelAdmin):
    inlines = [WorkflowInstancesInline]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.checks import InlineModelAdminChecks
from django.db.models import QuerySet
from django.forms import BaseModelFormSet, modelformset_factory
from django.http import HttpRequest
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from django_app import looks, waiting
from django_app.admin.parts import Badge, badge_of
from django_app.models import WorkflowInstance
from django_app.records import BIG

SHOWN = 20  # the newest
SHOWN_WAITING = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceShown:
    pk: UUID
    text: str
    badge: Badge
    waits: str
    created: str
    finished: str


class SubjectChecks(InlineModelAdminChecks):
    """Django's, without the foreign key: a subject is kept as label and primary key."""

    def _check_exclude_of_parent_model(self, obj: Any, parent_model: Any) -> list[Any]:
        return []

    def _check_relation(self, obj: Any, parent_model: Any) -> list[Any]:
        return []


class SubjectFormSet(BaseModelFormSet):
    """The newest instances about one object, as ``rows``. It has no forms: reads nothing posted and saves nothing."""

    def __init__(self, data: Any = None, files: Any = None, instance: Any = None, **options: Any) -> None:
        found: QuerySet[WorkflowInstance] = options.pop("queryset")
        is_saved = instance is not None and instance.pk is not None
        self.rows = _rows(found.for_subject(instance)) if is_saved else []  # type: ignore[attr-defined]
        super().__init__(prefix=options.get("prefix"), queryset=found.none())

    @classmethod
    def get_default_prefix(cls) -> str:
        return "durable_instances"

    def is_valid(self) -> bool:
        return True

    def save(self, commit: bool = True) -> list[Any]:
        self.new_objects: list[Any] = []
        self.changed_objects: list[Any] = []
        self.deleted_objects: list[Any] = []
        return []


class WorkflowInstancesInline(admin.TabularInline):
    """The newest instances started with ``using(subject=...)`` of the object: state, what they wait for, a link.

    Goes into ``inlines`` of any ``ModelAdmin``. Seen by those who may view workflow instances; costs two queries,
    and a few more if one of them shows a text of its body.
    """

    model = WorkflowInstance
    checks_class = SubjectChecks
    template = "admin/durable_celery/subject_instances.html"
    verbose_name = _("workflow")
    verbose_name_plural = _("workflows")

    class Media:
        css = {"all": ["durable_celery/admin.css"]}

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        return modelformset_factory(WorkflowInstance, formset=SubjectFormSet, fields=[], extra=0, max_num=0)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkflowInstance]:
        """Of whom it shows rows has been asked before: who may not view them gets no inline."""
        found: QuerySet[WorkflowInstance] = WorkflowInstance.objects.all()
        return found

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is not None and super().has_view_permission(request, obj)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _rows(found: QuerySet[WorkflowInstance]) -> Sequence[InstanceShown]:
    instances = list(found.order_by("-created_at").defer(*BIG)[:SHOWN])
    told = waiting.told(instances, now=datetime.now(timezone.utc)) if instances else {}
    return [
        InstanceShown(
            pk=instance.pk,
            text=str(instance),
            badge=badge_of(instance),
            waits=Truncator(told[instance.pk].waits or told[instance.pk].status).chars(SHOWN_WAITING),
            created=looks.moment(instance.created_at),
            finished=looks.moment(instance.finished_at),
        )
        for instance in instances
    ]
