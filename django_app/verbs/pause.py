"""Let instances rest: attempts that run are finished, nothing else happens."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.acts import PAUSE
from django_app.verbs.acting import act_on, add_targets
from django_app.verbs.console import Console


def arguments(parser: ArgumentParser) -> None:
    add_targets(parser, reason=True)


def run(options: Any, console: Console) -> int:
    return act_on(PAUSE, options, console)
