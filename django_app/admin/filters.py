"""Filters of the list. Their choices come from the code, never from a scan of the table."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import SEARCH_VAR
from django.utils.translation import gettext_lazy as _

from django_app import search
from durable_celery.core import transitions as t
from durable_celery.core.labels import is_storable
from durable_celery.registry import registry

ASKED = {"open": _("Open"), "retrying": _("Retrying"), "stuck": _("Stuck")}


class StateFilter(SimpleListFilter):
    """One state, or one of the questions people ask: what is open, what is being retried, what takes too long."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        states = (*t.OPEN_STATES, t.PAUSED, *t.FINAL_STATES)
        return [*ASKED.items(), *((state, state.capitalize()) for state in states)]

    def queryset(self, request: Any, queryset: Any) -> Any:
        value = self.value()
        if not value:
            # Of a chain the newest run; who asks for a certain run by its id gets that one as well.
            by_id = search.as_id(request.GET.get(SEARCH_VAR, "")) is not None
            return queryset if by_id else queryset.exclude(state=t.CONTINUED)
        if value in ASKED:
            return getattr(queryset, value)()
        if value == t.PAUSED:
            return queryset.filter(state__in=t.OPEN_STATES, paused_at__isnull=False)
        return queryset.filter(state=value) if is_storable(value) else queryset.none()


class WorkflowFilter(SimpleListFilter):
    """The workflows this process knows; another name works in the address too (``?name=``)."""

    title = _("workflow")
    parameter_name = "name"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted({name for name, _version in registry.workflows})]

    def has_output(self) -> bool:
        return bool(self.lookup_choices)

    def queryset(self, request: Any, queryset: Any) -> Any:
        value = self.value()
        return search.by_name(queryset, value) if value else queryset
