# ruff: noqa: PT009 - run by manage.py test, where there is no pytest
"""Whatever process dies, and wherever: each workflow ends as it does on a good day, and the books agree.

SHOP_CRASH_POINTS=all dies at each point that a workflow passes, not only at a few of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import TestCase, tag

from durable_celery.testing import Harness, Report
from loans.models import Application, ComplianceReport, Payout
from loans.workflows import Approval, approval, decide
from shop import deliveries, documents, gateway, purchases
from shop.deliveries import deliver_order
from shop.documents import approve_document
from shop.models import (
    Confirmation,
    Document,
    Order,
    Payment,
    PickRequest,
    PriceChange,
    Product,
    Reminder,
    Reservation,
    Shipment,
)
from shop.prices import import_prices
from shop.purchases import purchase
from shop.tests.kit import DurableCase
from shop.workflows import PaymentNotice, fulfil_order, payment

FEW = 25


def crash(durable: Harness, flow: Any, *args: Any, **terms: Any) -> Report:
    sample = None if os.environ.get("SHOP_CRASH_POINTS") == "all" else FEW
    report = durable.crash_everywhere(flow, *args, sample=sample, **terms)
    print(str(report) if sample is None else str(report).splitlines()[0])
    return report


def once_it_waits_for(what: str, act: Callable[[Any], object]) -> Callable[[Any], None]:
    """What the outside does when the workflow says that it waits for this."""

    def during(run: Any) -> None:
        if what in run.waiting_for:
            act(run)

    return during


@tag("crashes")
class OrderCrashes(DurableCase):
    def setUp(self) -> None:
        super().setUp()
        for name, value in (("_weather", lambda reference, attempt: "fair"), ("PARTNER_LATENCY", timedelta(0))):
            patch = mock.patch.object(gateway, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def books(self) -> Mapping[str, Any]:
        """Everything that counts; ``Payment.requests`` and mails may be more by one for each crash."""
        return {
            "orders": list(Order.objects.values_list("state", "cancelled_because")),
            "stock": list(Product.objects.values_list("stock", flat=True)),
            "reserved": list(Reservation.objects.values_list("state", flat=True)),
            "paid": list(Payment.objects.values_list("state", "amount")),
            "shipped": list(Shipment.objects.values_list("tracking", flat=True)),
            "picked": list(PickRequest.objects.values_list("state", flat=True)),
            "confirmed": Confirmation.objects.count(),
        }

    def assert_safe(self, flow: Any, order: Order, act: Callable[[Any], object] = lambda run: None, **end: Any) -> None:
        seen: list[Mapping[str, Any]] = []

        def effects() -> Mapping[str, Any]:
            seen.append(self.books())
            return seen[-1]

        during = once_it_waits_for("signal", act)
        self.assertTrue(crash(self.durable, flow, order.pk, during=during, effects=effects).all_equal)
        self.assertEqual({name: seen[0][name] for name in end}, end)

    def test_an_order_that_is_paid(self) -> None:
        order = self.order()
        self.assert_safe(
            fulfil_order, order, lambda run: self.durable.signal(run, payment, PaymentNotice("evt-1", "tok_good")),
            orders=[("SHIPPED", "")], stock=[3], paid=[("CAPTURED", Decimal("9.40"))],
        )  # fmt: skip

    def test_an_order_that_nobody_can_ship(self) -> None:
        order = self.order(address="PO Box 7")
        self.assert_safe(
            fulfil_order, order, lambda run: self.durable.signal(run, payment, PaymentNotice("evt-1", "tok_good")),
            orders=[("CANCELLED", "address not served")], stock=[5], paid=[("REFUNDED", Decimal("9.40"))],
        )  # fmt: skip

    def test_a_delivery_that_the_warehouse_confirms(self) -> None:
        order = self.order()
        self.assert_safe(
            deliver_order.using(key=f"delivery-{order.pk}"), order,
            lambda run: deliveries.note_shipment(order.pk, "PX1", message_id="evt-1"),
            orders=[("SHIPPED", "")], shipped=["PX1"], confirmed=1,
        )  # fmt: skip

    def test_a_delivery_that_the_warehouse_never_answers(self) -> None:
        self.assert_safe(
            deliver_order, self.order(), orders=[("CANCELLED", "not shipped in time")], stock=[5], picked=["RECALLED"]
        )

    def test_a_purchase_that_is_paid(self) -> None:
        order = self.order()
        self.assert_safe(
            purchase, order, lambda run: purchases.pay(order, "tok_good", event_id="evt-1"),
            orders=[("SHIPPED", "")], paid=[("CAPTURED", Decimal("9.40"))],
        )  # fmt: skip

    def test_a_purchase_that_the_customer_cancels(self) -> None:
        order = self.order()
        self.assert_safe(
            purchase, order, lambda run: purchases.cancel(order),
            orders=[("CANCELLED", "cancelled by the customer")], stock=[5], paid=[],
        )  # fmt: skip


@tag("crashes")
class OtherCrashes(DurableCase):
    def test_an_approval_after_a_reminder(self) -> None:
        document = Document.objects.create(title="Price list", approver="ada@example.com")

        def during(run: Any) -> None:
            if "signal 'approved'" in run.waiting_for and Reminder.objects.exists():
                documents.approve(document, by="Ada")

        report = crash(
            self.durable, approve_document, document.pk, during=during,
            effects=lambda: [Reminder.objects.count(), *Document.objects.values_list("state", "approved_by")],
        )  # fmt: skip
        self.assertTrue(report.all_equal)

    def test_the_nightly_import(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        price_list = Path(folder.name, "prices.csv")
        price_list.write_text("sku,price\nruler,5.10\npen,2\nink,3\n")
        Product.objects.create(sku="pen", name="Pen", price=Decimal(1), stock=1)
        with (
            mock.patch("shop.conf.PRICE_LIST", price_list),
            mock.patch("shop.prices.PORTION", 1),
            mock.patch("shop.prices.LIMIT", 2),
        ):
            report = crash(
                self.durable, import_prices,
                effects=lambda: sorted(PriceChange.objects.values_list("product__sku", "price")),
            )  # fmt: skip
        self.assertTrue(report.all_equal)


@tag("crashes")
class LoanCrashes(TestCase):
    def test_a_loan_that_is_approved(self) -> None:
        application = Application.objects.create(applicant="Ann", amount=Decimal(1000), income=Decimal(2000))
        with Harness() as durable:
            report = crash(
                durable, decide, application.pk,
                during=once_it_waits_for("signal", lambda run: durable.signal(run, approval, Approval(by="ben"))),
                effects=lambda: [
                    list(Application.objects.values_list("state")),
                    list(Payout.objects.values_list("amount")),
                    list(ComplianceReport.objects.values_list("cleared")),
                ],
            )  # fmt: skip
        self.assertTrue(report.all_equal)
