"""Acts in the admin: on the page of an instance and on rows chosen in the list, each with a page that asks first.

An act needs its own permission beside that to view, comes by POST with a CSRF token alone, and is logged with the user,
the state before and after, and the reason. A refusal of the engine is a message, never an error page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.options import IS_POPUP_VAR
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_app import acts, bench, looks, repairs, search
from django_app.admin.forms import ReasonForm, RepairForm, SignalForm
from django_app.admin.parts import badge_of
from django_app.models import StepResult, WorkflowInstance
from django_app.models.querysets import engine_alias
from durable_celery.core import journal
from durable_celery.core import transitions as t

MOST = 500  # instances at once; their ids are fields of one form
TOLD = 10  # refusals told one by one
SIGNAL = "signal"
NAMES = (SIGNAL, *acts.ACTS)
PAGE_NAMES = (*NAMES, *repairs.REPAIRS)  # those of one position stand on the page of an instance alone
LABELS: dict[str, str | Promise] = {
    SIGNAL: _("Signal"),
    **{act.name: act.label for act in acts.ACTS.values()},
    **{act.name: act.label for act in repairs.REPAIRS.values()},
}
SUMMARIES: dict[str, str | Promise] = {
    SIGNAL: _("A message that the body waits for, or will; one of a name that nobody waits for is kept and shown."),
    **{act.name: act.summary for act in acts.ACTS.values()},
    **{act.name: act.summary for act in repairs.REPAIRS.values()},
}
HARSH = ("cancel", "terminate")


class SteeringAdmin(admin.ModelAdmin):
    """The acts of ``django_app.acts``, and sending signals."""

    confirm_template = "admin/durable_celery/workflowinstance/confirm.html"

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.act_view)
        own = [
            path(f"<uuid:instance_id>/{name}/", view, {"act": name}, name=f"durable_celery_workflowinstance_{name}")
            for name in PAGE_NAMES
        ]
        return [*own, *super().get_urls()]

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """``action_location``: where they will stand, since Django 6.1; on the page of one instance, buttons do."""
        where = {} if action_location is None else {"action_location": action_location}
        found: dict[str, Any] = super().get_actions(request, **where)
        if IS_POPUP_VAR not in request.GET and getattr(action_location, "name", "CHANGE_LIST") == "CHANGE_LIST":
            for name in NAMES:
                if self.may(request, name):
                    found[name] = (_list_action(name), name, _("%(act)s chosen ones") % {"act": LABELS[name]})
        return found

    def may(self, request: HttpRequest, act: str) -> bool:
        """Whether the user has the permission of this act, and that to see what it does."""
        permission = _permission(act)
        allowed: bool = request.user.has_perm(f"{self.opts.app_label}.{permission}_{self.opts.model_name}")
        return allowed and self.has_view_permission(request)

    def buttons(self, request: HttpRequest, instance: WorkflowInstance) -> list[dict[str, Any]]:
        """The acts that the user may do and that make sense now."""
        return [
            {"label": LABELS[name], "url": self.act_url(instance, name), "harsh": name in HARSH}
            for name in PAGE_NAMES
            if self.may(request, name) and _is_possible(name, instance)
        ]

    def act_url(self, instance: WorkflowInstance, act: str) -> str:
        name = f"admin:durable_celery_workflowinstance_{act}"
        return reverse(name, args=[instance.pk], current_app=self.admin_site.name)

    def page_url(self, instance: WorkflowInstance) -> str:
        name = "admin:durable_celery_workflowinstance_change"
        return reverse(name, args=[instance.pk], current_app=self.admin_site.name)

    # -- the two ways in -----------------------------------------------------------------------------------------------

    def act_view(self, request: HttpRequest, instance_id: UUID, act: str) -> HttpResponse:
        """The page that asks (GET), and the act (POST), for one instance."""
        if not self.may(request, act):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        instance = search.run_of(instance_id)
        if instance is None:
            missing: HttpResponse = self._get_obj_does_not_exist_redirect(request, self.opts, str(instance_id))  # type: ignore[attr-defined]
            return missing
        data = request.POST if request.method == "POST" else None
        form = _form(act, [instance], data, position=request.GET.get("position", ""))
        if request.method == "POST" and form.is_valid():
            self.act_on(request, act, [instance], form.cleaned_data)
            return HttpResponseRedirect(self.page_url(instance))
        return self._ask(request, act, [instance], form, back=self.page_url(instance))

    def act_on_chosen(self, request: HttpRequest, act: str, chosen: QuerySet[WorkflowInstance]) -> HttpResponse | None:
        """The same for rows of the list; None when it is done."""
        instances = list(chosen.order_by("created_at")[: MOST + 1])
        if len(instances) > MOST:
            text = f"At most {MOST} instances can be chosen at once; use the filters, or manage.py durable {act}."
            self.message_user(request, text, messages.ERROR)
            return None
        confirmed = "confirmed" in request.POST
        form = _form(act, instances, request.POST if confirmed else None)
        if confirmed and form.is_valid():
            self.act_on(request, act, instances, form.cleaned_data)
            return None
        return self._ask(request, act, instances, form, back=request.get_full_path())

    # -- doing it ------------------------------------------------------------------------------------------------------

    def act_on(
        self, request: HttpRequest, act: str, instances: Sequence[WorkflowInstance], given: dict[str, Any]
    ) -> None:
        """Do it to one after the other, each in a transaction with its log entry, and say what came of it."""
        outcomes = [(instance, self._act_on_one(request, act, instance, given)) for instance in instances]
        done = [(instance, outcome) for instance, outcome in outcomes if outcome.ok]
        refused = [(instance, outcome) for instance, outcome in outcomes if not outcome.ok]
        if len(done) == 1:
            self.message_user(request, f"{done[0][1].text}: {done[0][0]}", messages.SUCCESS)
        elif done:
            self.message_user(request, f"{done[0][1].text}: {len(done)} instances", messages.SUCCESS)
        for instance, outcome in refused[:TOLD]:
            self.message_user(request, f"refused for {instance}: {outcome.text}", messages.WARNING)
        if len(refused) > TOLD:
            self.message_user(request, f"{len(refused) - TOLD} more were refused as well", messages.WARNING)

    def _act_on_one(
        self, request: HttpRequest, act: str, instance: WorkflowInstance, given: dict[str, Any]
    ) -> acts.Outcome:
        if instance.state == t.CONTINUED:
            return acts.Outcome(ok=False, text="it went on as a newer run; open that one")
        before = looks.state_of(instance)
        # Nothing is read inside before the act has written: SQLite could not make a writer of a reader.
        with transaction.atomic(using=engine_alias()):
            if act in repairs.REPAIRS:
                _become_writer(instance)
                outcome = repairs.perform(repairs.REPAIRS[act], instance, given["position"], given["result"])
            elif act == SIGNAL:
                outcome = acts.send(instance, given["name"], given["payload"], given["signal_id"])
            else:
                outcome = acts.perform(acts.ACTS[act], instance, given["reason"])
            if outcome.ok:
                after = looks.state_of(WorkflowInstance.objects.only("state", "paused_at").get(pk=instance.pk))
                reason = f". Reason: {given['reason']}" if given["reason"] else ""
                self.log_change(request, instance, f"{LABELS[act]}: {before} -> {after}, {outcome.text}{reason}")
        return outcome

    def _ask(
        self, request: HttpRequest, act: str, instances: Sequence[WorkflowInstance], form: Any, *, back: str
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": LABELS[act],
            "act": act,
            "harsh": act in HARSH,
            "label": LABELS[act],
            "summary": SUMMARIES[act],
            "form": form,
            "rows": [{"pk": str(row.pk), "text": str(row), "badge": badge_of(row)} for row in instances],
            "back": back,
            "checkbox": helpers.ACTION_CHECKBOX_NAME,
            "media": self.media,
        }
        return TemplateResponse(request, self.confirm_template, context)


def _list_action(act: str) -> Callable[..., HttpResponse | None]:
    def action(model_admin: Any, request: HttpRequest, chosen: QuerySet[WorkflowInstance]) -> HttpResponse | None:
        done: HttpResponse | None = model_admin.act_on_chosen(request, act, chosen)
        return done

    return action


def _permission(act: str) -> str:
    if act in repairs.REPAIRS:
        return repairs.PERMISSION
    return "signal" if act == SIGNAL else acts.ACTS[act].permission


def _become_writer(instance: WorkflowInstance) -> None:
    """What repairs reads first; SQLite must hold the lock of a writer before."""
    rows = WorkflowInstance.objects.filter(pk=instance.pk)
    if connections[rows.db].vendor == "sqlite":
        rows.update(name=F("name"))


def _form(act: str, instances: Sequence[WorkflowInstance], data: Any, position: str = "") -> ReasonForm:
    if act in repairs.REPAIRS:
        sides = bench.sides_of(instances[0]) or {}
        known = position or str(sides.get("position", ""))
        return RepairForm(data, act=repairs.REPAIRS[act], instance=instances[0], position=known)
    return SignalForm(data, awaited=_awaited(instances)) if act == SIGNAL else ReasonForm(data)


def _awaited(instances: Sequence[WorkflowInstance]) -> list[str]:
    """The names of the signals they wait for now."""
    rows = StepResult.objects.filter(instance__in=[row.pk for row in instances], kind=journal.SIGNAL, state=t.SCHEDULED)
    return sorted(set(rows.values_list("name", flat=True)[:1000]))


def _is_possible(act: str, instance: WorkflowInstance) -> bool:
    if act in repairs.REPAIRS:
        return repairs.REPAIRS[act].possible(instance)
    return acts.is_open(instance) if act == SIGNAL else acts.ACTS[act].possible(instance)
