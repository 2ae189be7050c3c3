# ruff: noqa: PT009, PT027 - run by manage.py test, where there is no pytest
"""The order process that a signal of the warehouse confirms."""

from __future__ import annotations

from datetime import timedelta
from unittest import mock

from django.core import mail

from durable_celery import InstanceClosed
from shop import deliveries
from shop.deliveries import deliver_order, recall_picking, record_shipment, request_picking, send_confirmation
from shop.models import Confirmation, Order, PickRequest, Shipment
from shop.tests.kit import DurableCase


class DeliveryTests(DurableCase):
    def test_the_warehouses_signal_confirms_the_order(self) -> None:
        order = self.order()
        run = self.durable.run_of(deliveries.order_on_account(order))
        self.durable.advance_time(days=3)
        self.assertEqual((run.status, self.state(order), self.stock()), ("WAITING", (Order.State.PLACED, ""), 3))
        self.assertIn("signal 'shipped'", run.waiting_for)
        for _ in range(2):  # the webhook's message comes again
            deliveries.note_shipment(order.pk, "PX1", message_id="evt-1")
        self.durable.run_until_idle()
        self.assertEqual(run.result, "PX1")
        self.assertEqual(self.state(order), (Order.State.SHIPPED, ""))
        self.assertEqual(Shipment.objects.get().tracking, "PX1")
        self.assertEqual([(letter.to, letter.body) for letter in mail.outbox],
                         [(["ada@example.com"], "It is on its way as PX1.")])  # fmt: skip

    def test_a_signal_that_is_there_before_the_order_waits_is_kept(self) -> None:
        order = self.order()
        handle = deliveries.order_on_account(order)
        deliveries.note_shipment(order.pk, "PX1", message_id="evt-1")
        self.durable.finish(handle)
        self.assertEqual(handle.result(timeout=0), "PX1")

    def test_a_silent_warehouse_is_told_to_stop_and_the_goods_go_back(self) -> None:
        order = self.order()
        began = self.durable.now
        run = self.durable.run(deliver_order, order.pk)
        self.assertEqual(self.durable.now - began, timedelta(days=5))
        self.assertEqual((run.status, self.state(order)), ("FAILED", (Order.State.CANCELLED, "not shipped in time")))
        self.assertEqual(run.steps[-2:], [recall_picking.name, "shop.steps.release_stock"])
        self.assertEqual((self.stock(), PickRequest.objects.get().state), (5, PickRequest.State.RECALLED))
        self.assertEqual(mail.outbox, [])
        with self.assertRaises(InstanceClosed):
            deliveries.note_shipment(order.pk, "PX1", message_id="evt-1")

    def test_what_is_sold_out_asks_nobody(self) -> None:
        order = self.order(quantity=6)
        run = self.durable.run(deliver_order, order.pk)
        self.assertIn("SoldOut", str(run.error))
        self.assertEqual((self.stock(), PickRequest.objects.count()), (5, 0))

    def test_a_mail_server_that_is_down_for_a_while_costs_nothing_but_time(self) -> None:
        order = self.order()
        sending = self.durable.mock(send_confirmation, side_effect=[ConnectionError(), None])
        run = self.durable.start(deliver_order, order.pk)
        deliveries.note_shipment(order.pk, "PX1", message_id="evt-1")
        self.durable.finish(run)
        self.assertEqual((run.result, sending.calls), ("PX1", [mock.call(order.pk)] * 2))

    def test_each_step_does_its_work_once_however_often_it_runs(self) -> None:
        order = self.order()
        Order.objects.update(state=Order.State.CONFIRMED)
        for tracking in ("PX1", "PX2"):
            record_shipment.call(order.pk, tracking)
            send_confirmation.call(order.pk)
        self.assertEqual(Shipment.objects.get().tracking, "PX1")
        self.assertEqual((len(mail.outbox), Confirmation.objects.count()), (1, 1))

    def test_a_request_that_comes_after_its_recall_asks_nobody(self) -> None:
        order = self.order()
        recall_picking.call(order.pk)
        request_picking.call(order.pk)
        self.assertEqual(PickRequest.objects.get().state, PickRequest.State.RECALLED)
