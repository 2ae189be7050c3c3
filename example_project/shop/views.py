from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from durable_celery import InstanceClosed, InstanceNotFound

from .forms import CheckoutForm
from .models import Order, PaymentEvent
from .workflows import PaymentNotice, fulfil_order, payment

FINAL_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TERMINATED")


@require_http_methods(["GET", "POST"])
def checkout(request: HttpRequest) -> HttpResponse:
    """Place an order. With ``ATOMIC_REQUESTS`` the order and its workflow are one commit."""
    form = CheckoutForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        order, created = form.place()
        if created:
            fulfil_order.start(order.pk)
        return redirect("order", order_id=order.pk)
    return render(request, "shop/checkout.html", {"form": form}, status=400 if form.errors else 200)


@csrf_exempt
@require_POST
def payment_webhook(request: HttpRequest) -> JsonResponse:
    """Take a message of the payment provider: ``{"event_id": ..., "order_id": ..., "card": ...}``.

    The provider repeats a message until it is answered with 200 or 410. A repeated one is dropped by its id; 410 says
    that the order no longer waits for money, so the provider lets the customer go.
    """
    try:
        message = json.loads(request.body)
        order = Order.objects.get(pk=int(message["order_id"]))
        notice = PaymentNotice(event_id=str(message["event_id"]), card=str(message["card"]))
    except (ValueError, KeyError, TypeError) as error:
        return JsonResponse({"error": f"expected event_id, order_id and card: {error!r}"}, status=400)
    except Order.DoesNotExist:
        return JsonResponse({"error": "no such order"}, status=404)
    try:
        payment.send(fulfil_order.get(key=order.key), notice, signal_id=notice.event_id)
    except InstanceNotFound:
        return JsonResponse({"error": "no such order"}, status=404)
    except InstanceClosed:
        return _answer_of_a_closed_order(notice)
    _, new = PaymentEvent.objects.get_or_create(event_id=notice.event_id, defaults={"order": order})
    return JsonResponse({"status": "accepted" if new else "duplicate"})


def _answer_of_a_closed_order(notice: PaymentNotice) -> JsonResponse:
    if PaymentEvent.objects.filter(event_id=notice.event_id).exists():
        return JsonResponse({"status": "duplicate"})
    return JsonResponse({"error": "the order is closed"}, status=410)


@require_GET
def order_status(request: HttpRequest, order_id: int) -> HttpResponse:
    order = get_object_or_404(Order.objects.prefetch_related("lines__product"), pk=order_id)
    try:
        handle = fulfil_order.get(key=order.key)
        history = handle.history()
    except InstanceNotFound:
        handle, history = None, []
    closed = handle is None or handle.status in FINAL_STATES
    context = {"order": order, "handle": handle, "history": history, "closed": closed}
    return render(request, "shop/order.html", context)
