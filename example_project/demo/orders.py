"""The demo's input: 500 orders, what each customer does about paying, and the shelf they buy from.

``orders.json`` holds them; ``manage.py make_orders`` writes it. Times are minutes of the shop's day, which the demo
runs through faster than life.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

ORDERS_FILE = Path(__file__).resolve().parent.parent / "orders.json"

GOOD_CARD, DECLINED_CARD = "tok_good", "tok_declined"
SCARCE, WITHDRAWN = "globe", "calendar-2019"

SHELF = (
    ("notebook-a5", "Notebook A5", "6.90"),
    ("notebook-a4", "Notebook A4", "9.50"),
    ("sketchbook", "Sketchbook", "14.20"),
    ("fountain-pen", "Fountain pen", "39.00"),
    ("ballpoint", "Ballpoint pen", "2.40"),
    ("pencils", "Pencils, box of 12", "7.80"),
    ("eraser", "Eraser", "1.10"),
    ("ink-blue", "Ink, blue", "8.60"),
    ("ink-black", "Ink, black", "8.60"),
    ("envelopes", "Envelopes, pack of 50", "5.30"),
    ("ruler", "Ruler, steel", "4.70"),
    ("scissors", "Scissors", "11.90"),
)

FIRST = ("Ada", "Béla", "Chen", "Dilek", "Émile", "Farid", "Greta", "Hiro", "Inés", "Jonas", "Kwame", "Łucja")
LAST = ("Adeyemi", "Brandt", "Costa", "Dvořák", "Eriksen", "Farkas", "Garcia", "Huber", "Ito", "Jansen")
STREETS = ("Mill Lane", "Station Road", "Market Square", "Church Street", "River Walk", "Hill Rise")


@dataclass(frozen=True)
class ShelfProduct:
    sku: str
    name: str
    price: str
    stock: int
    for_sale: bool


@dataclass(frozen=True)
class CustomerPayment:
    """The customer enters ``card`` so many minutes after the checkout; the provider tells us ``deliveries`` times."""

    event_id: str
    card: str
    after_minutes: float
    deliveries: int


@dataclass(frozen=True)
class CustomerOrder:
    """A basket, and what follows. ``submits`` above 1 is a customer who clicks twice; no payment is one who forgets."""

    checkout_token: str
    customer: str
    email: str
    address: str
    basket: dict[str, int]
    submits: int
    payment: CustomerPayment | None


@dataclass(frozen=True)
class OrdersFile:
    products: tuple[ShelfProduct, ...]
    orders: tuple[CustomerOrder, ...]


def read_orders_file(path: Path = ORDERS_FILE) -> OrdersFile:
    content = json.loads(path.read_text(encoding="utf-8"))
    return OrdersFile(
        products=tuple(ShelfProduct(**product) for product in content["products"]),
        orders=tuple(_order(order) for order in content["orders"]),
    )


def _order(content: dict[str, Any]) -> CustomerOrder:
    payment = content.pop("payment")
    return CustomerOrder(**content, payment=CustomerPayment(**payment) if payment else None)


def write_orders_file(content: OrdersFile, path: Path = ORDERS_FILE) -> None:
    """One product or order a line, so that a change of the file can be read."""
    lines = ['{"products": [']
    lines += _rows(content.products)
    lines += ['], "orders": [']
    lines += _rows(content.orders)
    lines += ["]}", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def _rows(values: tuple[Any, ...]) -> Iterator[str]:
    for number, value in enumerate(values, start=1):
        yield json.dumps(asdict(value), ensure_ascii=False) + ("," if number < len(values) else "")


def make_orders(seed: int, count: int = 500) -> OrdersFile:
    """The file of this seed: about one order in eight ends without a parcel, for one of six reasons."""
    dice = random.Random(seed)
    orders = tuple(_make_order(dice, number) for number in range(1, count + 1))
    sold = {sku: sum(order.basket.get(sku, 0) for order in orders) for sku, _, _ in SHELF}
    products = [ShelfProduct(sku, name, price, sold[sku] + 20, True) for sku, name, price in SHELF]
    products.append(ShelfProduct(SCARCE, "Globe, hand made", "189.00", 6, True))
    products.append(ShelfProduct(WITHDRAWN, "Calendar 2019", "3.00", 40, False))
    return OrdersFile(products=tuple(products), orders=orders)


def _make_order(dice: random.Random, number: int) -> CustomerOrder:
    first, last = dice.choice(FIRST), dice.choice(LAST)
    basket = {sku: dice.randint(1, 3) for sku, _, _ in dice.sample(SHELF, dice.choice((1, 1, 2, 3)))}
    fate = dice.random()
    if fate < 0.025:
        basket[SCARCE] = 1
    elif fate < 0.04:
        basket[WITHDRAWN] = 1
    street = "PO Box" if 0.04 <= fate < 0.055 else dice.choice(STREETS)
    return CustomerOrder(
        checkout_token=str(UUID(int=dice.getrandbits(128), version=4)),
        customer=f"{first} {last}",
        email=f"customer{number}@example.com",
        address=f"{street} {dice.randint(1, 120)}",
        basket=basket,
        submits=2 if dice.random() < 0.04 else 1,
        payment=_make_payment(dice, number),
    )


def _make_payment(dice: random.Random, number: int) -> CustomerPayment | None:
    """Most pay within 20 minutes, some at once; a few never, too late, or with a card the bank declines."""
    habit = dice.random()
    if habit < 0.07:
        return None
    at_once, late = habit < 0.22, habit > 0.985
    after = 0.0 if at_once else 45.0 if late else round(dice.triangular(0.5, 20, 3), 1)
    return CustomerPayment(
        event_id=f"evt-{number:04d}",
        card=DECLINED_CARD if dice.random() < 0.06 else GOOD_CARD,
        after_minutes=after,
        deliveries=2 if dice.random() < 0.15 else 1,
    )
