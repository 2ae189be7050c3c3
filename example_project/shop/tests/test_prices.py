# ruff: noqa: PT009, PT027 - run by manage.py test, where there is no pytest
from __future__ import annotations

import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from unittest import mock

from celery.schedules import crontab
from django.conf import settings
from django.core.management import call_command
from django.test import TransactionTestCase

from django_app.models import WorkflowInstance
from durable_celery import WorkflowFailed
from durable_celery.registry import registry
from shop import prices
from shop.models import PriceChange, Product
from shop.prices import LIMIT, PORTION, Imported, import_portion, import_prices
from tests.pump import Hint, Pump, counted

ROWS = 5000


class ImportTests(TransactionTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.price_list = Path(folder.name) / "prices.csv"
        patch = mock.patch("shop.conf.PRICE_LIST", self.price_list)
        patch.start()
        self.addCleanup(patch.stop)
        self.pump = Pump()
        self.pump.__enter__()
        self.addCleanup(self.pump.__exit__, None, None, None)
        self.most = 0
        self.pump.choose = self.watch

    def watch(self, ready: Sequence[Hint]) -> int:
        """Note how many portions are under way before each delivery; hand them out in the order they were sent."""
        self.most = max(self.most, sum(hint.name == import_portion.name for hint in self.pump.queue))
        return 0

    def stock_up(self, products: int = ROWS) -> None:
        Product.objects.bulk_create(
            Product(sku=f"sku-{number:05}", name=f"Product {number}", price=Decimal(10), stock=1)
            for number in range(products)
        )
        call_command("make_prices", rows=products, verbosity=0)

    def run_import(self) -> tuple[Imported, int]:
        """What a night brings, and in how many turns."""
        handle = import_prices.start()
        self.pump.drain()
        return handle.result(timeout=0), WorkflowInstance.objects.get(pk=handle.id).turn

    def test_each_of_5000_rows_is_imported_once_in_few_turns_and_a_rerun_changes_nothing(self) -> None:
        self.stock_up()
        with counted() as statements:
            done, turns = self.run_import()
        self.assertEqual(done, Imported(changed=ROWS, unchanged=0, unknown=0))
        self.assertEqual(self.pump.tasks()[import_portion.name], ROWS // PORTION)
        self.assertEqual(self.most, LIMIT)
        self.assertLessEqual(turns, 5)
        self.assertLess(len(statements), ROWS // PORTION * 30)
        self.assertEqual(PriceChange.objects.values("product").distinct().count(), ROWS)
        self.assertEqual(PriceChange.objects.count(), ROWS)
        self.assertEqual(Product.objects.filter(price=Decimal("10.30"), stock=1).count(), ROWS)

        again, _ = self.run_import()
        self.assertEqual(again, Imported(changed=0, unchanged=ROWS, unknown=0))
        self.assertEqual(PriceChange.objects.count(), ROWS)
        self.assertEqual(self.most, LIMIT)

    def test_a_worker_that_dies_after_a_portion_counts_its_rows_once(self) -> None:
        self.stock_up(products=PORTION * 3)
        self.pump.kill_at("atomic.after_commit")
        self.pump.kill_at("atomic.before_commit")
        handle = import_prices.start()
        self.pump.finish()
        self.assertEqual(handle.result(timeout=0).changed, PORTION * 3)
        self.assertEqual(PriceChange.objects.count(), PORTION * 3)

    def test_rows_of_products_the_shop_does_not_have_are_counted(self) -> None:
        self.price_list.write_text("sku,price\nglobe,200\nnowhere,1\n")
        Product.objects.create(sku="globe", name="Globe", price=Decimal(189), stock=1)
        self.assertEqual(self.run_import()[0], Imported(changed=1, unchanged=0, unknown=1))

    def test_a_night_without_a_list_imports_nothing(self) -> None:
        self.assertEqual(self.run_import()[0], Imported(changed=0, unchanged=0, unknown=0))

    def test_a_list_replaced_meanwhile_ends_the_import(self) -> None:
        self.stock_up(products=PORTION)
        digest = prices.look_at_price_list.call()
        assert digest is not None
        with mock.patch.object(prices, "_digest", side_effect=["the first", "another"]):
            handle = import_prices.start()
            self.pump.finish()
        with self.assertRaises(WorkflowFailed) as raised:
            handle.result(timeout=0)
        self.assertTrue("another list" in str(raised.exception), raised.exception)
        self.assertFalse(PriceChange.objects.exists())

    def test_beat_starts_it_at_night(self) -> None:
        (entry,) = settings.CELERY_BEAT_SCHEDULE.values()
        self.assertIn((entry["task"], 1), registry.workflows)
        self.assertEqual(entry["schedule"], crontab(hour="2", minute="30"))
