"""What reaches the shop from outside: customers through the checkout view, payments through the webhook.

Real views behind Django's own request handling (``ATOMIC_REQUESTS`` included), called in this process. The calls of all
orders stand in one queue by the time they are due; answering late moves later calls, it drops none.
"""

from __future__ import annotations

import heapq
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from django.db import connections
from django.test import Client
from django.urls import reverse

from .orders import CustomerOrder, CustomerPayment

Call = Callable[[], None]


@dataclass
class Answers:
    """What the shop answered. ``paid_in_time`` holds the orders whose payment was accepted inside the window."""

    order_ids: dict[str, int] = field(default_factory=dict)
    paid_in_time: dict[int, CustomerPayment] = field(default_factory=dict)
    webhook: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)


class Traffic:
    """Sends all ``orders``, so many ``per_second``; a minute of the shop's day takes ``60 / time_scale`` seconds."""

    def __init__(self, orders: tuple[CustomerOrder, ...], per_second: float, time_scale: float) -> None:
        self.answers = Answers()
        self._client = Client(SERVER_NAME="localhost", raise_request_exception=False)
        self._minute = 60 / time_scale
        self._window = 30 * self._minute
        self._order_in_line = itertools.count()
        self._queue: list[tuple[float, int, Call]] = []
        self._now = 0.0
        self._stopped = False
        for number, order in enumerate(orders):
            self._at(number / per_second, partial(self._check_out, order))

    def stop(self) -> None:
        """Have ``run`` return before its next call."""
        self._stopped = True

    def run(self) -> None:
        """Make all calls, then return. To be run in a thread of its own; it closes its database connections."""
        started = time.monotonic()
        try:
            while self._queue and not self._stopped:
                due, _, call = heapq.heappop(self._queue)
                while (ahead := started + due - time.monotonic()) > 0 and not self._stopped:
                    time.sleep(min(ahead, 0.2))
                self._now = time.monotonic() - started
                call()
        finally:
            connections.close_all()

    def _at(self, due: float, call: Call) -> None:
        heapq.heappush(self._queue, (due, next(self._order_in_line), call))

    def _check_out(self, order: CustomerOrder) -> None:
        form = {name: getattr(order, name) for name in ("checkout_token", "customer", "email", "address")}
        form |= {f"quantity_{sku}": str(quantity) for sku, quantity in order.basket.items()}
        placed_at = time.monotonic()
        for _ in range(order.submits - 1):
            self._client.post(reverse("checkout"), form)
        response = self._client.post(reverse("checkout"), form)
        page = re.fullmatch(r"/orders/(\d+)/", response.headers.get("Location", ""))
        if not page:
            self._complain("checkout", order.checkout_token, response.status_code, response.content)
            return
        order_id = self.answers.order_ids[order.checkout_token] = int(page[1])
        if order.payment:
            self._pay(order_id, order.payment, placed_at)

    def _pay(self, order_id: int, payment: CustomerPayment, placed_at: float) -> None:
        first = self._now + payment.after_minutes * self._minute
        for delivery in range(payment.deliveries):
            # The provider repeats itself four minutes later: often before the order is closed, at times after.
            due = first + delivery * 4 * self._minute
            self._at(due, partial(self._notify, order_id, payment, placed_at))

    def _notify(self, order_id: int, payment: CustomerPayment, placed_at: float) -> None:
        body = json.dumps({"event_id": payment.event_id, "order_id": order_id, "card": payment.card})
        response = self._client.post(reverse("payment-webhook"), body, content_type="application/json")
        if response.status_code not in (200, 410):
            self._complain("webhook", payment.event_id, response.status_code, response.content)
            return
        answer = "closed" if response.status_code == 410 else response.json()["status"]
        self.answers.webhook[answer] += 1
        # The window opens after the checkout, never before it: accepted this early is in time whatever the workers do.
        if answer == "accepted" and time.monotonic() - placed_at < self._window:
            self.answers.paid_in_time[order_id] = payment

    def _complain(self, what: str, subject: str, status: int, content: bytes) -> None:
        text = re.sub(r"\s+", " ", content.decode(errors="replace"))
        self.answers.unexpected.append(f"{what} of {subject} was answered with {status}: {text[:200]}")
