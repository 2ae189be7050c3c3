"""The shop's own settings, and what holds without them."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

PAYMENT_WINDOW: timedelta = getattr(settings, "SHOP_PAYMENT_WINDOW", timedelta(minutes=30))
PARTNER_LATENCY: timedelta = getattr(settings, "SHOP_PARTNER_LATENCY", timedelta(milliseconds=30))
