# ruff: noqa: PT009, PT027 - run by manage.py test, where there is no pytest
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

from django.contrib.auth.models import User
from django.core import mail
from django.test import TransactionTestCase
from django.urls import reverse

from django_app.models import WorkflowInstance
from durable_celery import InstanceClosed, Workflow, now, runtime, sleep, step, workflow
from durable_celery.registry import registry
from shop import documents
from shop.documents import approve_document, approved, record_decision, remind
from shop.models import Document, Reminder
from shop.tests.kit import DurableCase
from tests.pump import Pump


@step(name="shop.tests.notify")
def notify(document_id: int) -> None: ...


class ApprovalCase(DurableCase):
    def setUp(self) -> None:
        super().setUp()
        self.document = Document.objects.create(title="Price list", approver="ada@example.com")

    def status(self) -> str:
        self.document.refresh_from_db()
        return str(self.document.state)


class ApprovalTests(ApprovalCase):
    def test_an_approval_on_the_third_day_follows_two_reminders(self) -> None:
        handle = documents.submit(self.document)
        self.durable.advance_time(days=2, hours=12)
        documents.approve(self.document, by="ada")
        self.durable.run_until_idle()
        self.assertIs(handle.result(timeout=0), True)
        self.assertEqual((self.status(), self.document.approved_by), (Document.State.APPROVED, "ada"))
        self.assertEqual([letter.subject for letter in mail.outbox], [f"Reminder {n}: Price list" for n in (1, 2)])

    def test_a_document_that_nobody_approves_is_rejected_after_seven_days(self) -> None:
        handle = documents.submit(self.document)
        self.durable.advance_time(days=7, seconds=-1)
        self.assertEqual((handle.status, self.status()), ("WAITING", Document.State.SUBMITTED))
        self.durable.advance_time(seconds=1)
        self.assertIs(handle.result(timeout=0), False)
        self.assertEqual((self.status(), self.document.approved_by), (Document.State.REJECTED, ""))
        self.assertEqual((len(mail.outbox), Reminder.objects.count()), (6, 6))
        with self.assertRaises(InstanceClosed):
            documents.approve(self.document, by="ada")

    def test_a_reminder_is_sent_once_however_often_its_step_runs(self) -> None:
        for _ in range(2):
            remind.call(self.document.pk, 1)
        self.assertEqual((len(mail.outbox), Reminder.objects.count()), (1, 1))

    def test_the_first_decision_stands(self) -> None:
        record_decision.call(self.document.pk, "APPROVED", "ada")
        record_decision.call(self.document.pk, "REJECTED", "")
        self.assertEqual((self.status(), self.document.approved_by), (Document.State.APPROVED, "ada"))


class ApprovalInTheAdminTests(ApprovalCase):
    def setUp(self) -> None:
        super().setUp()
        self.client.force_login(User.objects.create_superuser("ada"))

    def approve(self) -> Any:
        chosen = {"action": "approve", "_selected_action": [self.document.pk]}
        return self.client.post(reverse("admin:shop_document_changelist"), chosen, follow=True)

    def test_the_action_approves_in_the_name_of_the_user(self) -> None:
        handle = documents.submit(self.document)
        self.durable.advance_time(days=1)
        for _ in range(2):
            self.assertContains(self.approve(), "Price list is approved.")
        self.durable.run_until_idle()
        self.assertEqual((handle.status, self.status(), self.document.approved_by), ("COMPLETED", "APPROVED", "ada"))
        self.assertContains(self.approve(), "no longer waits for an approval; it is approved.")

    def test_a_document_without_an_approval_is_said_so(self) -> None:
        self.assertContains(self.approve(), "no longer waits for an approval; it is submitted.")

    def test_a_user_who_may_only_look_is_not_offered_the_action(self) -> None:
        documents.submit(self.document)
        with mock.patch("shop.admin.DocumentAdmin.has_change_permission", return_value=False):
            self.approve()
        self.durable.run_until_idle()
        self.assertEqual(self.status(), Document.State.SUBMITTED)

    def test_a_new_document_is_submitted_and_its_page_shows_what_it_waits_for(self) -> None:
        form = {"title": "Catalogue", "approver": "ada@example.com"}
        inline = {f"durable_instances-{name}_FORMS": "0" for name in ("TOTAL", "INITIAL")}
        self.client.post(reverse("admin:shop_document_add"), form | inline)
        document = Document.objects.get(title="Catalogue")
        self.durable.run_until_idle()
        page = self.client.get(reverse("admin:shop_document_change", args=[document.pk]))
        handle = approve_document.get(key=document.key)
        self.assertContains(page, reverse("admin:durable_celery_workflowinstance_change", args=[handle.id]))
        self.assertContains(page, "approved")
        self.assertEqual(WorkflowInstance.objects.for_subject(document).count(), 1)


def asks_another_first(document_id: int) -> Workflow[bool]:
    yield from notify(document_id)  # before the wait that the open ones are in: does not fit their journal
    was_approved: bool = yield from approve_document.body(document_id)
    return was_approved


def tells_afterwards(document_id: int) -> Workflow[bool]:
    was_approved: bool = yield from approve_document.body(document_id)
    yield from notify(document_id)
    return was_approved


def waits_longer_afterwards(document_id: int) -> Workflow[bool]:
    deadline = now() + timedelta(days=7)
    number = 0
    while now() < deadline:
        approval = yield from approved.wait(timeout=timedelta(days=1), default=None)
        if approval is not None:
            yield from sleep(hours=1)
            yield from record_decision(document_id, "APPROVED", approval.by)
            return True
        if now() < deadline:
            number += 1
            yield from remind(document_id, number)
    return False


class DeployWhileWaitingTests(TransactionTestCase):
    """Approvals wait for days, so releases come meanwhile. None of them may leave one behind that nobody wakes."""

    def setUp(self) -> None:
        self.pump = Pump()
        self.pump.__enter__()
        self.addCleanup(self.pump.__exit__, None, None, None)
        self.addCleanup(registry.add_workflow, approve_document)
        self.document = Document.objects.create(title="Price list", approver="ada@example.com")
        self.handle = documents.submit(self.document)
        self.pump.advance_time(days=1, hours=1)
        self.assertEqual(self.handle.status, "WAITING")

    def state(self) -> str:
        self.document.refresh_from_db()
        return str(self.document.state)

    def deploy(self, body: Callable[[int], Any]) -> None:
        """The next release, with this body in the place of the one before."""
        body.__module__, body.__qualname__ = approve_document.body.__module__, approve_document.body.__qualname__
        workflow(name=approve_document.name, key=lambda document_id: f"document-{document_id}")(body)

    def assert_nobody_is_without_a_reason(self) -> None:
        for instance in WorkflowInstance.objects.open():
            self.assertTrue(approve_document.get(key=instance.key or "").waiting_for, instance)

    def test_a_body_changed_before_the_wait_blocks_with_the_reason_and_goes_on_with_code_that_fits(self) -> None:
        self.deploy(asks_another_first)
        self.pump.advance_time(days=1)
        self.assertEqual(self.handle.status, "BLOCKED")
        for words in ("NonDeterminism", notify.name, "approved", "position 1"):
            self.assertIn(words, self.handle.waiting_for)
        self.assertNotIn(notify.name, self.pump.tasks())
        self.assert_nobody_is_without_a_reason()

        documents.approve(self.document, by="ada")
        self.pump.advance_time(hours=1)
        self.assertEqual(self.handle.status, "BLOCKED")

        registry.add_workflow(approve_document)
        self.pump.advance_time(minutes=1)
        self.assertEqual((self.handle.status, self.state()), ("COMPLETED", Document.State.APPROVED))

    def test_an_approval_that_is_blocked_past_its_deadline_ends_once_code_fits(self) -> None:
        self.deploy(asks_another_first)
        self.pump.advance_time(days=9)
        self.assertEqual((self.handle.status, self.state()), ("BLOCKED", Document.State.SUBMITTED))
        registry.add_workflow(approve_document)
        self.pump.advance_time(minutes=1)
        self.assertEqual((self.handle.status, self.state()), ("COMPLETED", Document.State.REJECTED))

    def test_a_body_changed_after_the_wait_goes_on_and_does_what_is_new(self) -> None:
        for body in (tells_afterwards, waits_longer_afterwards):
            with self.subTest(body=body.__name__):
                document = Document.objects.create(title="Catalogue", approver="ada@example.com")
                registry.add_workflow(approve_document)
                handle = documents.submit(document)
                self.pump.advance_time(hours=30)
                self.deploy(body)
                self.assert_nobody_is_without_a_reason()
                documents.approve(document, by="ada")
                self.pump.advance_time(hours=2)
                document.refresh_from_db()
                self.assertEqual((handle.status, document.state), ("COMPLETED", Document.State.APPROVED))
                self.assertEqual(document.reminders.count(), 1)
        self.assertEqual(self.pump.tasks()[notify.name], 1)

    def test_a_release_without_the_workflow_keeps_it_with_a_reason(self) -> None:
        place = (approve_document.name, approve_document.version)
        with mock.patch.dict(registry._workflows):
            del registry._workflows[place]
            self.pump.advance_time(days=1)
            self.assertIn(self.handle.status, ("WAITING", "BLOCKED"))
            self.assertTrue(self.handle.waiting_for)
        self.pump.advance_time(minutes=10)
        documents.approve(self.document, by="ada")
        self.pump.finish()
        self.assertEqual((self.handle.status, self.state()), ("COMPLETED", Document.State.APPROVED))

    def test_a_sweep_that_finds_nothing_for_days_loses_nobody(self) -> None:
        with finding(due_steps=(), due_instances=(), due_messages=()):
            self.skip_days(2)
            self.assertEqual(self.handle.status, "WAITING")
            self.assert_nobody_is_without_a_reason()
        self.pump.advance_time(days=4)
        self.assertEqual((self.handle.status, self.state()), ("COMPLETED", Document.State.REJECTED))

    def test_an_approval_comes_through_while_the_sweep_finds_nothing(self) -> None:
        with finding(due_steps=(), due_instances=(), due_messages=()):
            self.skip_days(1)
            documents.approve(self.document, by="ada")
            self.pump.drain()
        self.assertEqual((self.handle.status, self.state()), ("COMPLETED", Document.State.APPROVED))

    def test_a_sweep_that_wakes_whoever_waits_changes_nothing(self) -> None:
        before = self.handle.history()
        for _ in range(20):
            for instance in WorkflowInstance.objects.open():
                self.pump.advance(instance.pk)
            self.pump.tick()
            self.pump.drain()
        self.assertEqual((self.handle.status, self.handle.history()), ("WAITING", before))
        self.pump.advance_time(days=6)
        self.assertEqual((self.handle.status, Reminder.objects.count()), ("COMPLETED", 6))

    def skip_days(self, days: int) -> None:
        """Time passes, and the clock finds nothing to do in it."""
        for _ in range(days * 24):
            self.pump.now += timedelta(hours=1)
            self.pump.tick()
            self.pump.drain()


@contextmanager
def finding(**rows: Sequence[Any]) -> Iterator[None]:
    """A release whose sweep finds these rows and no others."""
    with mock.patch.multiple(
        runtime.current().store, **{name: mock.Mock(return_value=found) for name, found in rows.items()}
    ):
        yield
