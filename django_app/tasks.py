"""Where Celery's autodiscovery, which goes by ``AppConfig.name``, finds the engine's tasks."""

from __future__ import annotations

import durable_celery.celery.tasks  # noqa: F401
