from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from demo.run import Plan, run


class Command(BaseCommand):
    help = (
        "Serves the orders of orders.json on a worker and a Beat that are killed on the way, then checks the books. "
        "Empties the shop's and the workflows' tables first."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--orders", type=int, default=500, help="only the first so many of the file")
        parser.add_argument("--per-second", type=float, default=9, help="checkouts a second")
        parser.add_argument("--time-scale", type=float, default=90, help="30 minutes pass in 30 * 60 / this seconds")
        parser.add_argument("--deadline", type=float, default=220, help="seconds until an open order counts as stuck")

    def handle(self, *args: Any, **options: Any) -> None:
        # Ended from outside, the demo still takes its worker and Beat with it.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        os.environ["SHOP_TIME_SCALE"] = str(options["time_scale"])
        plan = Plan(
            orders=options["orders"],
            per_second=options["per_second"],
            time_scale=options["time_scale"],
            deadline=timedelta(seconds=options["deadline"]),
        )
        sys.exit(run(plan))
