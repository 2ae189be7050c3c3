"""What a loan does to the world, one step each; a second run finds the row of the first."""

from __future__ import annotations

from django.db.models import F

from durable_celery import step

from .models import Application, CreditReport, Payout


@step
def check_credit(application_id: int) -> int:
    """Ask the agency for a score from 0 to 100."""
    application = Application.objects.get(pk=application_id)
    score = min(100, int(100 * application.income / application.amount))
    CreditReport.objects.get_or_create(application=application, defaults={"score": score})
    return score


@step
def pay_out(application_id: int) -> None:
    application = Application.objects.get(pk=application_id)
    _, created = Payout.objects.get_or_create(application=application, defaults={"amount": application.amount})
    if not created:
        Payout.objects.filter(application=application).update(requests=F("requests") + 1)
    _from_applied(application_id, state=Application.State.PAID)


@step
def refuse(application_id: int, why: str) -> None:
    _from_applied(application_id, state=Application.State.REFUSED, refused_because=why)


def _from_applied(application_id: int, **changes: str) -> None:
    Application.objects.filter(pk=application_id, state=Application.State.APPLIED).update(**changes)
