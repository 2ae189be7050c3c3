"""Take back the last failure or block of instances: the failed steps start afresh."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.acts import RETRY
from django_app.verbs.acting import act_on, add_targets
from django_app.verbs.console import Console


def arguments(parser: ArgumentParser) -> None:
    add_targets(parser, reason=False)


def run(options: Any, console: Console) -> int:
    return act_on(RETRY, options, console)
