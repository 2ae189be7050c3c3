"""``manage.py durable VERB``."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_app import verbs


class Command(BaseCommand):
    """Exits with 0 (fine), 1 (a finding) or 2 (wrong usage)."""

    help = "See and steer durable workflows"
    # The doctor is called when something is broken, and says more about it than Django's checks.
    requires_system_checks: Any = []

    def add_arguments(self, parser: CommandParser) -> None:
        verbs.add_to(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        code = verbs.run(Namespace(**options), verbs.Console(self.stdout, self.stderr))  # type: ignore[arg-type]
        if code:
            sys.exit(code)
