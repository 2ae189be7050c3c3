from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

from django.test import TestCase

from django_app.models import WorkflowInstance
from durable_celery.testing import Harness
from shop.models import Order, Product


class DurableCase(TestCase):
    """Workflows run in the test itself, in virtual time and inside the test's transaction; five rulers on the shelf."""

    def setUp(self) -> None:
        self.durable = Harness()
        self.durable.__enter__()
        self.addCleanup(self.durable.__exit__, None, None, None)
        self.product = Product.objects.create(sku="ruler", name="Ruler", price=Decimal("4.70"), stock=5)

    def tearDown(self) -> None:
        """Whatever has run asks for the same again, under other hash seeds too."""
        for chain_id in set(WorkflowInstance.objects.values_list("chain_id", flat=True)):
            self.durable.check_replay(str(chain_id))
        super().tearDown()

    def order(self, quantity: int = 2, address: str = "Mill Lane 1") -> Order:
        order: Order = Order.objects.create(
            checkout_token=uuid4(), customer="Ada", email="ada@example.com", address=address
        )
        order.lines.create(product=self.product, quantity=quantity, unit_price=self.product.price)
        return order

    def stock(self) -> int:
        self.product.refresh_from_db()
        return int(self.product.stock)

    def state(self, order: Order) -> tuple[str, str]:
        order.refresh_from_db()
        return order.state, order.cancelled_because
