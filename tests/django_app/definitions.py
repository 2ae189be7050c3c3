"""A workflow and a step with secrets, for tests of what is shown of them."""

from __future__ import annotations

from dataclasses import dataclass

from durable_celery import Workflow, step, workflow


@dataclass
class Card:
    holder: str
    number: str
    pin: str


@step(name="tests.console.pay", redact=("pin",))
def pay(order_id: int, pin: str, card: Card | None = None) -> str:
    return f"{order_id}"


@workflow(name="tests.console.purchase", redact=("*voucher*",))
def purchase(order_id: int, voucher_code: str, password: str = "") -> Workflow[str]:
    return (yield from pay(order_id, "1234"))
