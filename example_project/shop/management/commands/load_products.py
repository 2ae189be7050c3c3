from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from demo.orders import read_orders_file
from shop.models import Product


class Command(BaseCommand):
    help = "Puts the products of orders.json on the shelf, with the stock the file gives them."

    def handle(self, *args: Any, verbosity: int, **options: Any) -> None:
        products = read_orders_file().products
        for product in products:
            details = {
                "name": product.name,
                "price": product.price,
                "stock": product.stock,
                "for_sale": product.for_sale,
            }
            Product.objects.update_or_create(sku=product.sku, defaults=details)
        if verbosity:
            self.stdout.write(f"{len(products)} products are on the shelf.")
