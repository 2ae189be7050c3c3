"""``path("durable/", include("durable_celery.urls"))`` in a project's URLs."""

from __future__ import annotations

from django_app.urls import urlpatterns as urlpatterns
