"""The verbs of ``manage.py durable``: a module each, found by its name (``retry_step`` is the verb ``retry-step``).

Rules of this package:
- A module's docstring begins with the help of its verb. ``arguments(parser)`` says what it takes, ``run(options,
  console)`` does it and returns the exit code: 0 fine, 1 a finding or a refusal. What was asked wrongly raises
  ``WrongUsage``: 2, and then nothing was done. Tables that are not there are a finding, whatever verb meets them.
- A verb that reads has ``--json`` and then writes one JSON document on stdout, nothing else.
- Nothing here knows Django's commands or Celery's: both command lines offer the same verbs.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from types import ModuleType
from typing import Any

from django.db import DatabaseError

from django_app.models.querysets import engine_alias
from django_app.store.retries import is_ours, not_migrated, what_to_do
from django_app.verbs.console import Console as Console
from django_app.verbs.console import WrongUsage as WrongUsage
from durable_celery.errors import NotConfigured

NOT_VERBS = {"acting", "answering", "console", "plain", "stepping", "target"}


def names() -> list[str]:
    """Every verb, in order of the alphabet."""
    found = {module.name for module in pkgutil.iter_modules(__path__)} - NOT_VERBS
    return sorted(name.replace("_", "-") for name in found)


def add_to(parser: argparse.ArgumentParser) -> None:
    """Give a parser all verbs; the one chosen is ``options.verb``."""
    choices = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name in names():
        module = _module(name)
        summary = (module.__doc__ or "").partition("\n")[0]
        module.arguments(choices.add_parser(name, help=summary, description=summary))


def run(options: Any, console: Console) -> int:
    """Do what was asked; returns the exit code."""
    try:
        return int(_module(options.verb).run(options, console))
    except WrongUsage as error:
        console.error(str(error))
        return 2
    except NotConfigured as error:
        console.error(str(error))
        return 1
    except DatabaseError as error:
        if not (not_migrated(error) and is_ours(error)):
            raise
        console.error(what_to_do(engine_alias(), error))
        return 1


def _module(verb: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{verb.replace('-', '_')}")
