"""Settings for the type checker: ours and the example's, all models, and no wiring, which may be broken meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "example_project"))

from django_app.apps import DurableCeleryConfig
from project.settings import *  # noqa: F403
from tests.project.settings import *  # noqa: F403
from tests.project.settings import INSTALLED_APPS as INSTALLED


class ModelsOnly(DurableCeleryConfig):
    def ready(self) -> None:
        pass


INSTALLED_APPS = [f"{__name__}.ModelsOnly" if name == "durable_celery" else name for name in INSTALLED]
INSTALLED_APPS += ["shop", "loans"]
