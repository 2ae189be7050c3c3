"""The console: a list of instances and a page of each, to read, with the acts of ``steering``."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.options import ShowFacets
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.text import Truncator

from django_app import looks, search, vitals, waiting
from django_app.admin import pages
from django_app.admin.filters import StateFilter, WorkflowFilter
from django_app.admin.paginator import CappedPaginator
from django_app.admin.parts import badge_of
from django_app.admin.steering import SteeringAdmin
from django_app.models import StepResult, WorkflowInstance
from django_app.records import BIG
from durable_celery.core.labels import is_storable

STYLE = {"all": ["durable_celery/admin.css"]}
SHOWN_WAITING = 200  # characters in a cell of the list


class InstanceList(ChangeList):
    """The list, with what its rows wait for read for all of them at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        told = waiting.told(rows, now=datetime.now(timezone.utc))
        for row in rows:
            row.waits = told[row.pk].waits
        self.result_list = rows


@admin.register(WorkflowInstance)
class WorkflowInstanceAdmin(SteeringAdmin):
    """Rows are read-only: they change by acts alone. Searches by id, or by the beginning of a key."""

    list_display = ["name", "key", "shown_state", "shown_waiting", "shown_created", "shown_finished"]
    list_display_links = ["name", "key"]
    list_filter = [StateFilter, WorkflowFilter]
    list_per_page = 50
    list_max_show_all = 0
    ordering = ["-created_at"]
    search_fields = ["id", "key"]
    search_help_text = "An id, or the beginning of a key"
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    paginator = CappedPaginator
    change_form_template = "admin/durable_celery/workflowinstance/change_form.html"
    step_template = "admin/durable_celery/workflowinstance/step.html"

    class Media:
        css = STYLE

    # -- the list ------------------------------------------------------------------------------------------------------

    @admin.display(description="state", ordering="state")
    def shown_state(self, instance: WorkflowInstance) -> str:
        badge, long = badge_of(instance), looks.long_history(instance)
        state = format_html('<span class="durable-badge durable-{}">{}</span>', badge.look, badge.text)
        if not long:
            return state
        return format_html('{} <span class="durable-badge durable-undo" title="{}">long history</span>', state, long)

    @admin.display(description="waiting for")
    def shown_waiting(self, instance: WorkflowInstance) -> str:
        text = Truncator(getattr(instance, "waits", "")).chars(SHOWN_WAITING)
        return format_html('<span class="durable-waits">{}</span>', text) if text else ""

    @admin.display(description="created", ordering="created_at")
    def shown_created(self, instance: WorkflowInstance) -> str:
        return looks.moment(instance.created_at)

    @admin.display(description="finished", ordering="finished_at")
    def shown_finished(self, instance: WorkflowInstance) -> str:
        return looks.moment(instance.finished_at)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return InstanceList

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkflowInstance]:
        rows: QuerySet[WorkflowInstance] = super().get_queryset(request).defer(*BIG)
        return rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (search.by_term(queryset, term) if term else queryset), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Over the list, a banner if Beat is dead."""
        if request.method == "GET" and self.has_view_permission(request) and (text := vitals.beat_warning()):
            messages.warning(request, text)
        page: HttpResponse = super().changelist_view(request, extra_context)
        return page

    # -- the pages -----------------------------------------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        step = path(
            "<uuid:instance_id>/steps/<str:position>/",
            self.admin_site.admin_view(self.step_view),
            name="durable_celery_workflowinstance_step",
        )
        return [step, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of an instance: its newest run (``?run=1``: that one), or a later run by its own id."""
        instance_id = search.as_id(object_id)
        instance = search.run_of(instance_id, _run_number(request)) if instance_id else None
        self._allow(request, instance)
        if instance is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        page = pages.instance_page(
            instance, self.admin_site, number=request.GET.get("p"), now=datetime.now(timezone.utc)
        )
        name = "admin:durable_celery_workflowinstance_history"
        extra = {
            "original": instance,
            "buttons": self.buttons(request, instance),
            "log_url": reverse(name, args=[instance.pk], current_app=self.admin_site.name),
            **(extra_context or {}),
        }
        return self._page(request, self.change_form_template, page, extra)

    def step_view(self, request: HttpRequest, instance_id: Any, position: str) -> HttpResponse:
        """The page of one step, with its whole values and all its attempts."""
        instance = search.run_of(instance_id, _run_number(request))
        self._allow(request, instance)
        known = instance is not None and is_storable(position)
        step = StepResult.objects.filter(instance=instance, position=position).first() if known else None
        if instance is None or step is None:
            raise Http404(f"there is no step at position {position} of {instance_id}")
        page = pages.step_page(instance, step, self.admin_site, number=request.GET.get("p"))
        return self._page(request, self.step_template, page, {"original": step})

    def _allow(self, request: HttpRequest, instance: WorkflowInstance | None) -> None:
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request, instance):
            raise PermissionDenied

    def _page(self, request: HttpRequest, template: Any, page: Any, extra: dict[str, Any]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": page.name,
            "page": page,
            "media": self.media,
            **extra,
        }
        return TemplateResponse(request, template, context)

    # -- permissions ---------------------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _run_number(request: HttpRequest) -> int | None:
    text = request.GET.get("run", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
