from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from .models import Application
from .workflows import Approval, approval, decide


@admin.register(Application)
class ApplicationAdmin(admin.ModelAdmin):
    """Adding an application starts its workflow; approving it sends the signal it waits for."""

    list_display = ["id", "applicant", "amount", "state", "refused_because", "applied_at"]
    list_filter = ["state"]
    search_fields = ["=id", "applicant"]
    readonly_fields = ["state", "refused_because"]
    actions = ["approve"]

    def save_model(self, request: HttpRequest, obj: Application, form: Any, change: bool) -> None:
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            if not change:
                decide.using(subject=obj).start(obj.pk)

    @admin.action(description="Approve the chosen applications")
    def approve(self, request: HttpRequest, queryset: QuerySet[Application]) -> None:
        for application in queryset.filter(state=Application.State.APPLIED):
            handle = decide.get(key=f"loan-{application.pk}")
            approval.send(handle, Approval(by=request.user.get_username()), signal_id=f"approved-{application.pk}")
