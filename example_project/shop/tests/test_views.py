# ruff: noqa: PT009, PT027 - run by manage.py test, where there is no pytest
from __future__ import annotations

from decimal import Decimal
from typing import Any
from unittest import mock
from uuid import uuid4

from django.test import TestCase
from django.urls import reverse

from django_app.models import WorkflowInstance
from durable_celery import InstanceClosed, InstanceNotFound
from shop.models import Order, PaymentEvent, Product
from shop.workflows import PaymentNotice, fulfil_order


class CheckoutTests(TestCase):
    def setUp(self) -> None:
        Product.objects.create(sku="ruler", name="Ruler", price=Decimal("4.70"), stock=5)
        self.form = {
            "checkout_token": str(uuid4()),
            "customer": "Ada",
            "email": "ada@example.com",
            "address": "Mill Lane 1",
            "quantity_ruler": "2",
        }

    def submit(self, **changes: str) -> Any:
        return self.client.post(reverse("checkout"), self.form | changes)

    def test_an_order_starts_its_workflow(self) -> None:
        response = self.submit()
        order = Order.objects.get()
        self.assertRedirects(response, reverse("order", args=[order.pk]))
        self.assertEqual(fulfil_order.get(key=order.key).status, "PENDING")
        self.assertEqual(order.total, Decimal("9.40"))

    def test_a_second_click_finds_the_same_order(self) -> None:
        self.assertEqual(self.submit().headers["Location"], self.submit().headers["Location"])
        self.assertEqual((Order.objects.count(), WorkflowInstance.objects.count()), (1, 1))

    def test_an_empty_basket_is_refused(self) -> None:
        response = self.submit(quantity_ruler="0")
        self.assertContains(response, "The basket is empty.", status_code=400)
        self.assertFalse(Order.objects.exists())

    def test_the_shelf_shows_only_what_can_be_bought(self) -> None:
        Product.objects.create(sku="globe", name="Globe", price=Decimal(189), stock=0)
        Product.objects.create(sku="calendar", name="Calendar", price=Decimal(3), stock=9, for_sale=False)
        page = self.client.get(reverse("checkout"))
        self.assertContains(page, "Ruler")
        self.assertNotContains(page, "Globe")
        self.assertNotContains(page, "Calendar")

    def test_a_failing_request_leaves_neither_order_nor_workflow(self) -> None:
        self.client.raise_request_exception = False
        with mock.patch("shop.views.redirect", side_effect=RuntimeError("after the start")):
            self.assertEqual(self.submit().status_code, 500)
        self.assertEqual((Order.objects.count(), WorkflowInstance.objects.count()), (0, 0))


class WebhookTests(TestCase):
    def setUp(self) -> None:
        details = {"customer": "Ada", "email": "ada@example.com", "address": "Mill Lane 1"}
        self.order = Order.objects.create(checkout_token=uuid4(), **details)

    def notify(self, **changes: Any) -> Any:
        message = {"event_id": "evt-1", "order_id": self.order.pk, "card": "tok_good"} | changes
        return self.client.post(reverse("payment-webhook"), message, content_type="application/json")

    def test_a_payment_is_accepted_once(self) -> None:
        fulfil_order.start(self.order.pk)
        answers = [self.notify().json()["status"], self.notify().json()["status"]]
        self.assertEqual(answers, ["accepted", "duplicate"])

    def test_the_event_id_is_the_signal_id(self) -> None:
        handle = fulfil_order.start(self.order.pk)
        with mock.patch("shop.views.payment") as payment:
            self.notify()
        (target, notice), options = payment.send.call_args
        self.assertEqual((target.id, options), (handle.id, {"signal_id": "evt-1"}))
        self.assertEqual(notice, PaymentNotice(event_id="evt-1", card="tok_good"))

    def test_a_closed_order_answers_gone(self) -> None:
        fulfil_order.start(self.order.pk)
        with mock.patch("shop.views.payment") as payment:
            payment.send.side_effect = InstanceClosed("closed")
            self.assertEqual(self.notify().status_code, 410)
        self.assertFalse(PaymentEvent.objects.exists())

    def test_a_repeated_message_is_fine_also_after_the_end(self) -> None:
        fulfil_order.start(self.order.pk)
        self.notify()
        with mock.patch("shop.views.payment") as payment:
            payment.send.side_effect = InstanceClosed("closed")
            self.assertEqual(self.notify().json(), {"status": "duplicate"})

    def test_a_message_nobody_can_read_is_a_bad_request(self) -> None:
        for changes in ({"order_id": "x"}, {"order_id": None}):
            self.assertEqual(self.notify(**changes).status_code, 400)
        answer = self.client.post(reverse("payment-webhook"), "no json", content_type="application/json")
        self.assertEqual(answer.status_code, 400)

    def test_an_unknown_order_is_not_found(self) -> None:
        self.assertEqual(self.notify(order_id=self.order.pk + 1).status_code, 404)


class OrderPageTests(TestCase):
    def setUp(self) -> None:
        details = {"customer": "Ada", "email": "ada@example.com", "address": "Mill Lane 1"}
        self.order = Order.objects.create(checkout_token=uuid4(), **details)

    def test_an_open_order_is_looked_at_again(self) -> None:
        fulfil_order.start(self.order.pk)
        page = self.client.get(reverse("order", args=[self.order.pk]))
        self.assertContains(page, "PENDING")
        self.assertContains(page, 'http-equiv="refresh"')

    def test_an_order_whose_workflow_was_purged_still_has_a_page(self) -> None:
        with self.assertRaises(InstanceNotFound):
            fulfil_order.get(key=self.order.key)
        page = self.client.get(reverse("order", args=[self.order.pk]))
        self.assertContains(page, "no longer kept")
        self.assertNotContains(page, 'http-equiv="refresh"')

    def test_an_unknown_order_has_none(self) -> None:
        self.assertEqual(self.client.get(reverse("order", args=[0])).status_code, 404)
