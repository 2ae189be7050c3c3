from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django import forms

from .models import Order, OrderLine, Product


class CheckoutForm(forms.Form):
    """A basket and where to send it. Fields ``quantity_<sku>`` hold the basket."""

    checkout_token = forms.UUIDField(widget=forms.HiddenInput, initial=uuid4)
    customer = forms.CharField(max_length=100)
    email = forms.EmailField()
    address = forms.CharField(max_length=200)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.products = list(Product.objects.all())
        for product in self.products:
            self.fields[_field(product)] = forms.IntegerField(min_value=0, max_value=20, required=False)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not any(cleaned.get(_field(product)) for product in self.products):
            raise forms.ValidationError("The basket is empty.")
        return cleaned

    def place(self) -> tuple[Order, bool]:
        """The order of this form, and whether it is new: the same checkout token always gives the same order."""
        token: UUID = self.cleaned_data["checkout_token"]
        details = {name: self.cleaned_data[name] for name in ("customer", "email", "address")}
        order, created = Order.objects.get_or_create(checkout_token=token, defaults=details)
        if created:
            OrderLine.objects.bulk_create(self._lines(order))
        return order, created

    def shelf(self) -> list[tuple[Product, forms.BoundField]]:
        """What can be bought now, each with its quantity field."""
        return [(product, self[_field(product)]) for product in self.products if product.for_sale and product.stock]

    def _lines(self, order: Order) -> list[OrderLine]:
        return [
            OrderLine(order=order, product=product, quantity=quantity, unit_price=product.price)
            for product in self.products
            if (quantity := self.cleaned_data.get(_field(product)))
        ]


def _field(product: Product) -> str:
    return f"quantity_{product.sku}"
