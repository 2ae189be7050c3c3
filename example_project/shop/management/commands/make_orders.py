from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from demo.orders import ORDERS_FILE, make_orders, write_orders_file


class Command(BaseCommand):
    help = "Writes orders.json, the demo's input. The same seed gives the same file."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seed", type=int, default=2026)

    def handle(self, *args: Any, seed: int, **options: Any) -> None:
        write_orders_file(make_orders(seed))
        self.stdout.write(f"Wrote {ORDERS_FILE}.")
