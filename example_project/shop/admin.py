from __future__ import annotations

from django.contrib import admin

from .models import Order, OrderLine, Payment, PaymentEvent, Product, Reservation, Shipment


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
