"""Ask instances to end: cleanup and compensations run."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.acts import CANCEL
from django_app.verbs.acting import act_on, add_targets
from django_app.verbs.console import Console


def arguments(parser: ArgumentParser) -> None:
    add_targets(parser, reason=True)


def run(options: Any, console: Console) -> int:
    return act_on(CANCEL, options, console)
