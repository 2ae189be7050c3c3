"""Which Celery app is meant, in whatever thread and process this runs."""

from __future__ import annotations

from typing import Any

from celery import _state as _celery_state
from celery import current_app as _fallback

_state: Any = _celery_state
fallback: Any = _fallback


def current_app() -> Any:
    """The current app, else the default one, else the only one there is; as a last resort Celery's own empty app.

    Celery keeps the current app by thread. A web server's threads see the default app, which only a project with
    ``DJANGO_SETTINGS_MODULE`` in its environment sets.
    """
    app = getattr(_state._tls, "current_app", None) or _state.default_app
    if app is None:
        active = list(_state._get_active_apps())
        if len(active) == 1:
            app = active[0]
    return app if app is not None else fallback._get_current_object()
