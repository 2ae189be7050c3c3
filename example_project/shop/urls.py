from __future__ import annotations

from django.urls import path

from . import views

urlpatterns = [
    path("", views.checkout, name="checkout"),
    path("orders/<int:order_id>/", views.order_status, name="order"),
    path("webhooks/payment/", views.payment_webhook, name="payment-webhook"),
]
