"""The shop's own settings, and what holds without them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from django.conf import settings

PAYMENT_WINDOW: timedelta = getattr(settings, "SHOP_PAYMENT_WINDOW", timedelta(minutes=30))
SHIPPING_WINDOW: timedelta = getattr(settings, "SHOP_SHIPPING_WINDOW", timedelta(days=5))
PARTNER_LATENCY: timedelta = getattr(settings, "SHOP_PARTNER_LATENCY", timedelta(milliseconds=30))
APPROVAL_WINDOW: timedelta = getattr(settings, "SHOP_APPROVAL_WINDOW", timedelta(days=7))
REMINDER_INTERVAL: timedelta = getattr(settings, "SHOP_REMINDER_INTERVAL", timedelta(days=1))
PRICE_LIST: Path = Path(getattr(settings, "SHOP_PRICE_LIST", "prices.csv"))
