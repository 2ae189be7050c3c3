# ruff: noqa: PT009, PT027 - run by manage.py test, where there is no pytest
"""Each step is run twice here, as it may be in life, and must do its work once."""

from __future__ import annotations

from decimal import Decimal
from unittest import mock
from uuid import uuid4

from django.test import TestCase

from shop import gateway, steps
from shop.models import Order, Payment, Product, Reservation, Shipment
from shop.refusals import CardDeclined, NotForSale, SoldOut, Undeliverable


def make_order(product: Product, quantity: int = 2, address: str = "Mill Lane 1") -> Order:
    order: Order = Order.objects.create(
        checkout_token=uuid4(), customer="Ada", email="ada@example.com", address=address
    )
    order.lines.create(product=product, quantity=quantity, unit_price=product.price)
    return order


class StockTests(TestCase):
    def setUp(self) -> None:
        self.product = Product.objects.create(sku="ruler", name="Ruler", price=Decimal("4.70"), stock=5)
        self.order = make_order(self.product)

    def assert_stock(self, stock: int) -> None:
        self.product.refresh_from_db()
        self.assertEqual(self.product.stock, stock)

    def test_stock_is_reserved_once(self) -> None:
        steps.reserve_stock.call(self.order.pk)
        steps.reserve_stock.call(self.order.pk)
        self.assert_stock(3)

    def test_stock_is_released_once(self) -> None:
        steps.reserve_stock.call(self.order.pk)
        steps.release_stock.call(self.order.pk)
        steps.release_stock.call(self.order.pk)
        self.assert_stock(5)

    def test_a_reservation_that_comes_after_its_release_takes_nothing(self) -> None:
        steps.release_stock.call(self.order.pk)
        steps.reserve_stock.call(self.order.pk)
        self.assert_stock(5)
        self.assertEqual(Reservation.objects.get().state, Reservation.State.RELEASED)

    def test_a_sold_out_line_takes_nothing_of_the_other_lines(self) -> None:
        pen = Product.objects.create(sku="pen", name="Pen", price=Decimal(2), stock=1)
        self.order.lines.create(product=pen, quantity=2, unit_price=pen.price)
        with self.assertRaises(SoldOut):
            steps.reserve_stock.call(self.order.pk)
        self.assert_stock(5)
        self.assertFalse(Reservation.objects.exists())

    def test_an_order_of_a_withdrawn_product_is_refused(self) -> None:
        Product.objects.update(for_sale=False)
        with self.assertRaisesMessage(NotForSale, "ruler"):
            steps.validate.call(self.order.pk)

    def test_a_quote_has_the_total_of_all_lines(self) -> None:
        self.assertEqual(steps.validate.call(self.order.pk), steps.Quote(self.order.key, Decimal("9.40")))


class GatewayTests(TestCase):
    def capture(self, weather: str, card: str = "tok_good", attempt: int = 1) -> str:
        with mock.patch.object(gateway, "_weather", return_value=weather):
            return gateway.capture("order-1", Decimal(10), card, idempotency_key="key-1", attempt=attempt)

    def test_a_payment_whose_answer_was_lost_is_not_taken_again(self) -> None:
        with self.assertRaises(gateway.GatewayDown):
            self.capture("answer lost")
        self.capture("fair", attempt=2)
        payment = Payment.objects.get()
        self.assertEqual((payment.state, payment.requests), (Payment.State.CAPTURED, 2))

    def test_a_lost_request_takes_nothing(self) -> None:
        with self.assertRaises(gateway.GatewayDown):
            self.capture("request lost")
        self.assertFalse(Payment.objects.exists())

    def test_a_declined_card_stays_declined(self) -> None:
        for attempt in (1, 2):
            with self.assertRaises(CardDeclined):
                self.capture("fair", card=gateway.DECLINED_CARD, attempt=attempt)
        self.assertEqual(Payment.objects.get().state, Payment.State.DECLINED)

    def test_money_goes_back_once(self) -> None:
        self.capture("fair")
        self.assertEqual([gateway.refund("order-1"), gateway.refund("order-1")], [1, 0])

    def test_the_weather_is_fair_after_three_attempts(self) -> None:
        late = {gateway._weather(f"order-{number}", 4) for number in range(500)}
        early = {gateway._weather(f"order-{number}", 1) for number in range(500)}
        self.assertEqual((late, early), ({"fair"}, {"fair", "request lost", "answer lost"}))

    def test_the_capture_step_hands_its_idempotency_key_on(self) -> None:
        with mock.patch.object(gateway, "_weather", return_value="fair"):
            receipt = steps.capture.call("order-1", Decimal(10), "tok_good")
        self.assertEqual(receipt.amount, Decimal(10))
        self.assertTrue(Payment.objects.get().idempotency_key)


class ShippingTests(TestCase):
    def setUp(self) -> None:
        self.product = Product.objects.create(sku="ruler", name="Ruler", price=Decimal("4.70"), stock=5)

    def test_one_parcel_is_shipped(self) -> None:
        order = make_order(self.product)
        steps.confirm.call(order.pk)
        self.assertEqual(steps.ship.call(order.pk), steps.ship.call(order.pk))
        order.refresh_from_db()
        self.assertEqual((order.state, Shipment.objects.count()), (Order.State.SHIPPED, 1))

    def test_an_address_the_carrier_does_not_serve_is_refused(self) -> None:
        with self.assertRaises(Undeliverable):
            steps.ship.call(make_order(self.product, address="PO Box 7").pk)

    def test_a_shipped_order_is_not_cancelled(self) -> None:
        order = make_order(self.product)
        steps.confirm.call(order.pk)
        steps.ship.call(order.pk)
        steps.cancel_order.call(order.pk, str(Order.Reason.OTHER))
        order.refresh_from_db()
        self.assertEqual(order.state, Order.State.SHIPPED)
