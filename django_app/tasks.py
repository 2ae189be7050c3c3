"""Where Celery's autodiscovery, which goes by ``AppConfig.name``, finds the engine's tasks."""

from __future__ import annotations

from durable_celery.celery import tasks as tasks
