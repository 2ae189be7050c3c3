"""The import of the supplier's price list, every night: 5,000 rows in portions, a few of them at a time."""

from __future__ import annotations

import csv
import hashlib
import io
from dataclasses import dataclass
from decimal import Decimal

from durable_celery import NonRetryable, Workflow, gather, set_status, step, workflow

from . import conf
from .models import PriceChange, Product

PORTION = 100  # rows in one step
LIMIT = 5  # steps at a time


@dataclass(frozen=True)
class PriceList:
    digest: str
    rows: int


@dataclass(frozen=True)
class Imported:
    changed: int
    unchanged: int
    unknown: int  # rows of products the shop does not have


@step
def look_at_price_list() -> PriceList | None:
    """What has come from the supplier; None if nothing has."""
    try:
        content = conf.PRICE_LIST.read_bytes()
    except FileNotFoundError:
        return None
    return PriceList(digest=_digest(content), rows=len(_prices(content)))


@step(atomic=True)
def import_portion(digest: str, first: int, last: int) -> Imported:
    """Set the prices of these rows. Prices, their changes and the result are one transaction: each row counts once."""
    content = conf.PRICE_LIST.read_bytes()
    if _digest(content) != digest:
        raise NonRetryable(f"{conf.PRICE_LIST} is another list than the one this import began with")
    prices = dict(_prices(content)[first:last])
    products = list(Product.objects.select_for_update().filter(sku__in=prices).order_by("pk"))
    changes = [
        PriceChange(product=product, price_before=product.price, price=prices[product.sku])
        for product in products
        if product.price != prices[product.sku]
    ]
    for change in changes:
        change.product.price = change.price
    Product.objects.bulk_update([change.product for change in changes], ["price"])
    PriceChange.objects.bulk_create(changes)
    return Imported(changed=len(changes), unchanged=len(products) - len(changes), unknown=len(prices) - len(products))


@workflow(name="shop.import_prices", key=lambda: "prices")
def import_prices() -> Workflow[Imported]:
    """One import at a time: a night that begins before the last one has ended joins it."""
    price_list = yield from look_at_price_list()
    if price_list is None:
        set_status("no price list has come")
        return Imported(changed=0, unchanged=0, unknown=0)
    set_status(f"importing {price_list.rows} rows")
    portions = [
        import_portion(price_list.digest, first, min(first + PORTION, price_list.rows))
        for first in range(0, price_list.rows, PORTION)
    ]
    done = yield from gather(*portions, limit=LIMIT)
    total = Imported(
        changed=sum(one.changed for one in done),
        unchanged=sum(one.unchanged for one in done),
        unknown=sum(one.unknown for one in done),
    )
    set_status(f"{total.changed} prices changed, {total.unchanged} as before, {total.unknown} unknown")
    return total


def _prices(content: bytes) -> list[tuple[str, Decimal]]:
    """Of each product once, by its last row, in an order that the content alone decides."""
    rows = csv.DictReader(io.StringIO(content.decode()))
    return list({row["sku"]: Decimal(row["price"]) for row in rows}.items())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
