"""From the application to the money: days or weeks, most of them waiting for a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from durable_celery import Signal, Workflow, patched, set_attributes, set_status, workflow

from .compliance import check_compliance
from .steps import check_credit, pay_out, refuse

LOWEST_SCORE = 30
PATIENCE = timedelta(days=60)


@dataclass(frozen=True)
class Approval:
    by: str
    granted: bool = True


approval = Signal("approval", Approval)


@workflow(name="loans.decide", key=lambda application_id: f"loan-{application_id}")
def decide(application_id: int) -> Workflow[str]:
    """Check the credit, wait for an approval, pay out. Returns PAID, or why it was refused."""
    score = yield from check_credit(application_id)
    set_attributes(score=score)
    if score < LOWEST_SCORE:
        return (yield from _refuse(application_id, f"score {score}"))

    set_status("waiting for an approval")
    answer = yield from approval.wait(timeout=PATIENCE, default=Approval(by="nobody", granted=False))
    if not answer.granted:
        return (yield from _refuse(application_id, f"not approved by {answer.by}"))

    # Added while applications were open: those that had passed this place before go on without it.
    if patched("2026-11-compliance-check"):
        set_status("checking compliance")
        if not (yield from check_compliance(application_id)):
            return (yield from _refuse(application_id, "held by compliance"))

    set_status("paying out")
    yield from pay_out(application_id)
    return "PAID"


def _refuse(application_id: int, why: str) -> Workflow[str]:
    set_status(f"refused: {why}")
    yield from refuse(application_id, why)
    return why
