"""Puts the parts together when Django starts; nothing else in a project needs wiring."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.utils.module_loading import autodiscover_modules

from durable_celery import runtime
from durable_celery.conf import Settings, settings_of


class DurableCeleryConfig(AppConfig):
    """The app, under ``"durable_celery"`` or ``"django_app"`` in INSTALLED_APPS: one and the same."""

    name = "django_app"
    label = "durable_celery"
    verbose_name = "Durable workflows"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Install the parts of this process, wire Celery, register the checks, import workflows and steps. No query."""
        from django_app import checks as checks
        from django_app import localization, readiness
        from django_app.breaking import BreakingDatabase
        from durable_celery import faults
        from durable_celery.celery.install import install as install_celery

        runtime.install(assembled(settings_in_force()))
        setting_changed.connect(_follow_settings, dispatch_uid="durable_celery.settings")
        install_celery()
        localization.register()
        readiness.watch()
        faults.break_by(BreakingDatabase())
        autodiscover_modules("workflows", "steps")


def settings_in_force() -> Settings:
    """``settings.DURABLE_CELERY`` as a value; what is wrong in it has its default here, and the checks report it."""
    from django.conf import settings

    return settings_of(getattr(settings, "DURABLE_CELERY", {}))[0]


def assembled(settings: Settings) -> runtime.Runtime:
    """The store, transport and clock these settings ask for; builds them and touches neither database nor broker."""
    from django_app.announcing import AnnouncingStore
    from durable_celery.celery.transport import CeleryTransport

    store = AnnouncingStore(settings.database)
    return runtime.Runtime(
        store=store, transport=CeleryTransport(settings), settings=settings, clock=runtime.Clock(store)
    )


def _follow_settings(*, setting: str, **_: Any) -> None:
    """Keep up with ``override_settings``."""
    if setting == "DURABLE_CELERY":
        runtime.follow(assembled(settings_in_force()))
