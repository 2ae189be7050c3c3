"""What a project may put among its URLs; the console needs none of it, it lives in the admin."""

from __future__ import annotations

from django.urls import path

from django_app.health import health

urlpatterns = [
    path("health/", health, name="durable_celery_health"),
    path("healthz", health, name="durable_celery_healthz"),
]
