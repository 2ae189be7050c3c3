from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from django_app.admin.subjects import WorkflowInstancesInline
from durable_celery import InstanceClosed, InstanceNotFound

from . import documents
from .models import (
    Document,
    Order,
    OrderLine,
    Payment,
    PaymentEvent,
    PickRequest,
    PriceChange,
    Product,
    Reservation,
    Shipment,
)


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ["sku", "name", "price", "stock", "for_sale"]
    list_filter = ["for_sale"]
    search_fields = ["sku", "name"]


class OrderLineInline(admin.TabularInline):
    model = OrderLine
    extra = 0
    autocomplete_fields = ["product"]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["id", "customer", "state", "cancelled_because", "placed_at"]
    list_filter = ["state", "cancelled_because"]
    search_fields = ["=id", "customer", "email"]
    inlines = [OrderLineInline]


@admin.register(Reservation)
class ReservationAdmin(admin.ModelAdmin):
    list_display = ["order_id", "state"]
    list_filter = ["state"]
    raw_id_fields = ["order"]


@admin.register(Payment)
class PaymentAdmin(admin.ModelAdmin):
    list_display = ["reference", "amount", "state", "requests"]
    list_filter = ["state"]
    search_fields = ["=reference", "=idempotency_key"]


@admin.register(PaymentEvent)
class PaymentEventAdmin(admin.ModelAdmin):
    list_display = ["event_id", "order_id", "received_at"]
    raw_id_fields = ["order"]


@admin.register(Shipment)
class ShipmentAdmin(admin.ModelAdmin):
    list_display = ["order_id", "tracking", "shipped_at"]
    raw_id_fields = ["order"]


@admin.register(PickRequest)
class PickRequestAdmin(admin.ModelAdmin):
    list_display = ["order_id", "state", "asked_at"]
    list_filter = ["state"]
    raw_id_fields = ["order"]


@admin.register(Document)
class DocumentAdmin(admin.ModelAdmin):
    """A new document is submitted for approval when it is saved; the action approves."""

    list_display = ["title", "approver", "state", "approved_by", "submitted_at"]
    list_filter = ["state"]
    search_fields = ["title"]
    readonly_fields = ["state", "approved_by", "submitted_at"]
    inlines = [WorkflowInstancesInline]
    actions = ["approve"]

    def save_model(self, request: HttpRequest, obj: Document, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change:
            documents.submit(obj)

    @admin.action(description="Approve selected documents", permissions=["change"])
    def approve(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        for document in queryset:
            try:
                documents.approve(document, by=request.user.get_username())
            except (InstanceClosed, InstanceNotFound):
                text = f"{document} no longer waits for an approval; it is {document.state.lower()}."
                self.message_user(request, text, messages.WARNING)
            else:
                self.log_change(request, document, "Approved.")
                self.message_user(request, f"{document} is approved.", messages.SUCCESS)


@admin.register(PriceChange)
class PriceChangeAdmin(admin.ModelAdmin):
    list_display = ["product", "price_before", "price", "changed_at"]
    list_select_related = ["product"]
    raw_id_fields = ["product"]
