# ruff: noqa: PT009 - run by manage.py test, where there is no pytest
"""The loan and the edit that gave it a compliance check: with it, or without it by rule."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.test import TransactionTestCase

from django_app.models import WorkflowInstance
from durable_celery import Workflow, set_status, workflow
from durable_celery.registry import registry
from durable_celery.testing.replaying import disagreement_elsewhere, recorded
from loans.models import Application, ComplianceReport, Payout
from loans.steps import check_credit, pay_out
from loans.workflows import Approval, approval, decide
from tests.pump import Pump


def before_the_edit(application_id: int) -> Workflow[str]:
    yield from check_credit(application_id)
    set_status("waiting for an approval")
    yield from approval.wait(timeout=3600)
    yield from pay_out(application_id)
    return "PAID"


class DecideTests(TransactionTestCase):
    def setUp(self) -> None:
        self.pump = Pump()
        self.pump.__enter__()
        self.addCleanup(self.pump.__exit__, None, None, None)

    def tearDown(self) -> None:
        """Whatever has run asks for the same again under other hash seeds."""
        self.assertIsNone(disagreement_elsewhere([recorded(run.pk) for run in WorkflowInstance.objects.all()]))

    def apply(self, amount: int = 1000, income: int = 2000) -> tuple[Application, Any]:
        application = Application.objects.create(applicant="Ann", amount=Decimal(amount), income=Decimal(income))
        handle = decide.using(subject=application).start(application.pk)
        self.pump.drain()
        application.refresh_from_db()
        return application, handle

    def state(self, application: Application) -> tuple[str, str]:
        application.refresh_from_db()
        return application.state, application.refused_because

    def test_an_approved_loan_is_checked_and_paid_out(self) -> None:
        application, handle = self.apply()
        self.assertIn("signal 'approval'", handle.waiting_for)
        self.pump.advance_time(days=20)
        approval.send(handle, Approval(by="ben"))
        self.pump.drain()
        self.assertEqual(handle.result(timeout=0), "PAID")
        self.assertEqual(self.state(application), ("PAID", ""))
        self.assertEqual(Payout.objects.get().amount, 1000)
        self.assertTrue(ComplianceReport.objects.get().cleared)
        self.assertEqual(WorkflowInstance.objects.with_attributes(score=100).count(), 1)

    def test_a_low_score_is_refused_at_once(self) -> None:
        application, handle = self.apply(amount=1000, income=100)
        self.assertEqual(handle.result(timeout=0), "score 10")
        self.assertEqual(self.state(application), ("REFUSED", "score 10"))

    def test_what_nobody_approves_is_refused_in_the_end(self) -> None:
        application, handle = self.apply()
        self.pump.advance_time(days=60)
        self.assertEqual(handle.result(timeout=0), "not approved by nobody")
        self.assertEqual(self.state(application), ("REFUSED", "not approved by nobody"))

    def test_a_large_loan_is_held_by_the_new_check(self) -> None:
        application, handle = self.apply(amount=60_000, income=60_000)
        approval.send(handle, Approval(by="ben"))
        self.pump.drain()
        self.assertEqual(handle.result(timeout=0), "held by compliance")
        self.assertFalse(Payout.objects.exists())
        self.assertEqual(self.state(application), ("REFUSED", "held by compliance"))

    def test_open_applications_take_the_edit_up_where_they_are(self) -> None:
        before_the_edit.__module__, before_the_edit.__qualname__ = decide.body.__module__, decide.body.__qualname__
        registry._workflows[("loans.decide", 1)] = workflow(name="loans.decide", key=decide.options.key)(
            before_the_edit
        )
        try:
            waiting, waits = self.apply()
            passed, pays = self.apply()
            approval.send(pays, Approval(by="ben"))
            self.pump.deliver(next(hint for hint in self.pump.ready() if hint.instance is not None))
        finally:
            registry._workflows[("loans.decide", 1)] = decide
        self.pump.drain()
        approval.send(waits, Approval(by="ben"))
        self.pump.drain()
        self.assertEqual([pays.result(timeout=0), waits.result(timeout=0)], ["PAID", "PAID"])
        checked = ComplianceReport.objects.values_list("application_id", flat=True)
        self.assertEqual(list(checked), [waiting.pk])
        self.assertEqual(self.state(passed), ("PAID", ""))
