from __future__ import annotations

import csv
from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from shop import conf
from shop.models import Product


class Command(BaseCommand):
    help = "Plays the supplier: writes a price list with a new price for each product and for others of theirs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--rows", type=int, default=5000, help="default: %(default)s")
        parser.add_argument("--percent", type=int, default=3, help="how much dearer; default: %(default)s")

    def handle(self, *args: Any, rows: int, percent: int, verbosity: int, **options: Any) -> None:
        products = dict(Product.objects.order_by("sku").values_list("sku", "price")[:rows])
        others = {f"supplier-{number:05}": Decimal(number) for number in range(1, rows - len(products) + 1)}
        factor = Decimal(100 + percent) / 100
        beside = conf.PRICE_LIST.with_suffix(".new")
        with beside.open("w", encoding="utf-8", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(["sku", "price"])
            out.writerows(
                (sku, (price * factor).quantize(Decimal("0.01"))) for sku, price in (products | others).items()
            )
        beside.replace(conf.PRICE_LIST)
        if verbosity:
            self.stdout.write(f"{rows} rows are in {conf.PRICE_LIST}.")
