"""The approval of a document: a reminder a day until somebody approves it, or a week has passed."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.mail import send_mail

from durable_celery import Signal, Workflow, WorkflowHandle, now, set_status, step, workflow

from .conf import APPROVAL_WINDOW, REMINDER_INTERVAL
from .models import Document, Reminder


@dataclass(frozen=True)
class Approval:
    by: str


approved = Signal("approved", Approval)


@step
def remind(document_id: int, number: int) -> None:
    """Write to the approver. The row comes after the mail: a process killed between them writes once more."""
    document = Document.objects.get(pk=document_id)
    if document.reminders.filter(number=number).exists():
        return
    body = f"{document.title!r} waits for your approval since {document.submitted_at:%d %B}."
    send_mail(f"Reminder {number}: {document.title}", body, None, [document.approver])
    Reminder.objects.get_or_create(document=document, number=number)


@step
def record_decision(document_id: int, state: str, approved_by: str) -> None:
    """The first decision stands."""
    submitted = Document.objects.filter(pk=document_id, state=Document.State.SUBMITTED)
    submitted.update(state=state, approved_by=approved_by)


@workflow(name="shop.approve_document", key=lambda document_id: f"document-{document_id}")
def approve_document(document_id: int) -> Workflow[bool]:
    """Whether the document was approved in time."""
    deadline = now() + APPROVAL_WINDOW
    number = 0
    while (left := deadline - now()).total_seconds() > 0:
        set_status(f"waiting for the approval, {number} reminders sent")
        approval = yield from approved.wait(timeout=min(REMINDER_INTERVAL, left), default=None)
        if approval is not None:
            set_status(f"approved by {approval.by}")
            yield from record_decision(document_id, str(Document.State.APPROVED), approval.by)
            return True
        if now() < deadline:
            number += 1
            yield from remind(document_id, number)
    set_status("nobody approved it in time")
    yield from record_decision(document_id, str(Document.State.REJECTED), "")
    return False


def submit(document: Document) -> WorkflowHandle[bool]:
    """Start the approval, in the current transaction; a second call finds the first."""
    return approve_document.using(subject=document).start(document.pk)


def approve(document: Document, by: str) -> None:
    """Approve in this person's name; again changes nothing. ``InstanceClosed`` once it is decided."""
    approved.send(approve_document.get(key=document.key), Approval(by=by), signal_id=f"approved-{document.pk}")
