"""End instances at once: no cleanup, no compensation."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.acts import TERMINATE
from django_app.verbs.acting import act_on, add_targets
from django_app.verbs.console import Console


def arguments(parser: ArgumentParser) -> None:
    add_targets(parser, reason=True)


def run(options: Any, console: Console) -> int:
    return act_on(TERMINATE, options, console)
