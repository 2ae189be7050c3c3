# ruff: noqa: PT009, PT027 - run by manage.py test, where there is no pytest
"""The order that is paid, cancelled or forgotten; in each case the books agree."""

from __future__ import annotations

from datetime import timedelta
from unittest import mock

from durable_celery import InstanceClosed
from shop import gateway, purchases
from shop.gateway import DECLINED_CARD, GatewayDown
from shop.models import Order, Payment, Reservation, Shipment
from shop.steps import capture, ship
from shop.tests.kit import DurableCase


class PurchaseTests(DurableCase):
    def setUp(self) -> None:
        super().setUp()
        weather = mock.patch.object(gateway, "_weather", return_value="fair")
        weather.start()
        self.addCleanup(weather.stop)
        self.bought = self.order()
        self.buying = self.durable.run_of(purchases.buy(self.bought))
        self.durable.run_until_idle()

    def assert_closed_as(self, reason: str) -> None:
        self.assertEqual(self.buying.status, "FAILED")
        self.assertEqual(self.state(self.bought), (Order.State.CANCELLED, reason))
        self.assertEqual((self.stock(), Reservation.objects.get().state), (5, Reservation.State.RELEASED))
        self.assertEqual(purchases.status_of(self.bought), reason)
        self.assertFalse(Shipment.objects.exists())

    def test_a_paid_order_is_shipped(self) -> None:
        self.assertEqual((purchases.status_of(self.bought), self.stock()), ("waiting for the payment", 3))
        self.durable.advance_time(minutes=29)
        for _ in range(2):
            purchases.pay(self.bought, "tok_good", event_id="evt-1")
        self.durable.finish(self.buying)
        shipment = Shipment.objects.get()
        self.assertEqual(self.buying.result, shipment.tracking)
        self.assertEqual(self.state(self.bought), (Order.State.SHIPPED, ""))
        self.assertEqual(purchases.status_of(self.bought), f"shipped as {shipment.tracking}")
        self.assertEqual((Payment.objects.get().state, self.stock()), (Payment.State.CAPTURED, 3))

    def test_an_order_nobody_pays_in_half_an_hour_gives_its_stock_back(self) -> None:
        began = self.durable.now
        self.durable.advance_time(minutes=30, seconds=-1)
        self.assertEqual((self.buying.status, self.stock()), ("WAITING", 3))
        self.durable.finish(self.buying)
        self.assertEqual(self.durable.now - began, timedelta(minutes=30))
        self.assert_closed_as("not paid in time")
        self.assertFalse(Payment.objects.exists())
        with self.assertRaises(InstanceClosed):
            purchases.pay(self.bought, "tok_good", event_id="evt-1")

    def test_a_customer_who_cancels_gets_nothing_and_pays_nothing(self) -> None:
        self.durable.advance_time(minutes=10)
        for _ in range(2):
            purchases.cancel(self.bought)
        self.durable.run_until_idle()
        self.assert_closed_as("cancelled by the customer")
        self.assertFalse(Payment.objects.exists())

    def test_of_a_payment_and_a_cancel_the_first_counts(self) -> None:
        purchases.pay(self.bought, "tok_good", event_id="evt-1")
        purchases.cancel(self.bought)
        self.durable.finish(self.buying)
        self.assertEqual(self.state(self.bought), (Order.State.SHIPPED, ""))

    def test_a_declined_card_releases_the_stock(self) -> None:
        purchases.pay(self.bought, DECLINED_CARD, event_id="evt-1")
        self.durable.finish(self.buying)
        self.assert_closed_as("card declined")
        self.assertEqual(Payment.objects.get().state, Payment.State.DECLINED)

    def test_money_goes_back_when_nothing_can_be_shipped(self) -> None:
        shipping = self.durable.mock(ship, side_effect=GatewayDown("no answer"))
        purchases.pay(self.bought, "tok_good", event_id="evt-1")
        self.durable.finish(self.buying)
        self.assertEqual(len(shipping.calls), 10)
        self.assert_closed_as("something went wrong")
        self.assertEqual(self.buying.steps[-2:], ["shop.steps.refund", "shop.steps.release_stock"])
        self.assertEqual(Payment.objects.get().state, Payment.State.REFUNDED)

    def test_a_provider_that_is_down_for_a_while_is_asked_again(self) -> None:
        capturing = self.durable.mock(capture, side_effect=[GatewayDown(), GatewayDown(), None])
        purchases.pay(self.bought, "tok_good", event_id="evt-1")
        self.durable.finish(self.buying)
        self.assertEqual((self.buying.status, len(capturing.calls)), ("COMPLETED", 3))

    def test_the_body_is_the_same_on_every_replay(self) -> None:
        self.durable.check_replay(self.buying)
        self.durable.finish(self.buying)
        self.durable.check_replay(self.buying)
