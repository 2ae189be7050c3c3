"""The pages of an instance and of a step, put together from what ``reading`` found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.admin import AdminSite
from django.core.paginator import Page, Paginator
from django.urls import NoReverseMatch, reverse

from django_app import looks, search, waiting
from django_app.admin import reading
from django_app.admin.parts import (
    Badge,
    Context,
    FailureShown,
    MessageShown,
    Sizes,
    StepShown,
    badge_of,
    failure_shown,
    message_shown,
    step_shown,
)
from django_app.admin.spans import line_of
from django_app.bench import Bench, bench_of
from django_app.models import StepAttempt, StepResult, WorkflowInstance
from django_app.records import scrubber_of
from django_app.timeline import Timeline, draw, words
from django_app.values import Budget, Shown, call_lines, value_text
from durable_celery import disclosure
from durable_celery.core import identity, journal
from durable_celery.core import transitions as t
from durable_celery.core.identity import sort_key

STEPS = 100  # on one page
MESSAGES = 100
CHILDREN = 50
ATTEMPTS = 5  # the last ones of a step in the table; the step's own page has all
BUDGET = 400_000  # characters of values on a page, escaped: with its markup, less than a megabyte
TABLE = Sizes(value=1_500, trace=4_000)
WHOLE = Sizes(value=200_000, trace=20_000)
ARGUMENTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    label: str
    text: str
    url: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    text: str
    url: str
    badge: Badge


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Where a paged table stands; numbers as text, which no locale dresses up."""

    text: str = ""
    previous: str = ""
    following: str = ""
    run: str = ""  # the number of the run, where its id alone does not say it


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePage:
    name: str
    key: str
    badge: Badge
    waiting_for: str
    status_text: str
    warning: str
    facts: Sequence[Fact]
    bench: Bench | None
    failure: FailureShown | None
    args: Shown
    result: Shown
    no_result: str
    timeline: Timeline | None
    steps: Sequence[StepShown]
    steps_count: str
    step_pages: Pages
    messages: Sequence[MessageShown]
    messages_count: str
    children: Sequence[Link]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPage:
    name: str
    instance: str
    instance_url: str
    facts: Sequence[Fact]
    step: StepShown
    members: Sequence[StepShown]  # of a map, one page of them
    pages: Pages


def instance_page(instance: WorkflowInstance, site: AdminSite, *, number: Any, now: datetime) -> InstancePage:
    """Everything the page shows; ``number`` is the page of the step table."""
    found = reading.steps(instance, number=number, size=STEPS)
    steps = sorted(found.object_list, key=lambda step: sort_key(step.position))
    records = reading.attempts(steps, ATTEMPTS)
    messages, messages_count = reading.messages(instance, MESSAGES)
    context = _context(instance, steps, TABLE)
    is_open = instance.state in t.OPEN_STATES
    return InstancePage(
        name=instance.name,
        key=instance.key or "",
        badge=badge_of(instance),
        waiting_for=context.scrub(waiting.words([instance], now=now, errors=True)[instance.pk]),
        status_text=context.scrub(instance.status_text),
        warning=looks.long_history(instance),
        facts=_instance_facts(instance, site, context, now),
        bench=bench_of(instance, context.scrub),
        failure=failure_shown(instance.failure, context),
        args=_arguments(instance, context),
        result=_result(instance, context),
        no_result="not yet" if is_open else "none",
        timeline=draw([line_of(step, records[step.pk]) for step in steps], now=now),
        steps=[step_shown(step, records[step.pk], context, _step_url(site, instance, step.position)) for step in steps],
        steps_count=f"{found.paginator.count:,}",
        step_pages=_pages(found, instance),
        messages=[message_shown(message, context) for message in messages],
        messages_count=_counted(messages_count, len(messages)),
        children=[
            Link(text=str(child), url=instance_url(site, child.pk), badge=badge_of(child))
            for child in reading.children(instance, CHILDREN)
        ],
    )


def step_page(instance: WorkflowInstance, step: StepResult, site: AdminSite, *, number: Any) -> StepPage:
    """One step with its whole values and all its attempts, or a map with its members, a page of them."""
    records: Page[Any] = Paginator(StepAttempt.objects.filter(step=step).order_by("id"), 50).get_page(number)
    members: list[StepShown] = []
    if step.kind == journal.MAP:
        reading.note_progress(instance, [step])
        records, members = _members(instance, step, site, number)
    context = _context(instance, [step], WHOLE)
    shown = step_shown(step, [] if members else list(records.object_list), context, "")
    return StepPage(
        name=shown.name,
        instance=str(instance),
        instance_url=run_url(site, instance),
        facts=_step_facts(step, shown, site),
        step=shown,
        members=members,
        pages=_pages(records, instance),
    )


def _members(
    instance: WorkflowInstance, step: StepResult, site: AdminSite, number: Any
) -> tuple[Page[Any], list[StepShown]]:
    found = reading.steps(instance, number=number, size=STEPS, of=step.position)
    rows = list(found.object_list)
    records = reading.attempts(rows, ATTEMPTS)
    context = _context(instance, rows, TABLE)
    return found, [step_shown(row, records[row.pk], context, _step_url(site, instance, row.position)) for row in rows]


def instance_url(site: AdminSite, instance_id: UUID) -> str:
    return reverse("admin:durable_celery_workflowinstance_change", args=[instance_id], current_app=site.name)


def run_url(site: AdminSite, run: WorkflowInstance) -> str:
    """The page of this very run: the id of the first one alone is that of the whole chain."""
    return instance_url(site, run.pk) + _query(run)


def _query(run: WorkflowInstance) -> str:
    return "?run=1" if run.pk == run.chain_id and run.state == t.CONTINUED else ""


def _step_url(site: AdminSite, instance: WorkflowInstance, position: str) -> str:
    name = "admin:durable_celery_workflowinstance_step"
    return reverse(name, args=[instance.pk, position], current_app=site.name) + _query(instance)


def _context(instance: WorkflowInstance, steps: Sequence[StepResult], sizes: Sizes) -> Context:
    workflow = disclosure.of_workflow(instance.name, instance.version)
    return Context(workflow=workflow, scrub=scrubber_of(instance, steps), budget=Budget(BUDGET), sizes=sizes)


def _arguments(instance: WorkflowInstance, context: Context) -> Shown:
    text = call_lines(instance.args, context.workflow, context.scrub.data) if instance.args else ""
    return context.budget.spend(text, ARGUMENTS)


def _result(instance: WorkflowInstance, context: Context) -> Shown:
    if instance.result is None:
        return Shown()
    return context.budget.spend(value_text(instance.result, context.workflow, context.scrub.data), ARGUMENTS)


def _instance_facts(instance: WorkflowInstance, site: AdminSite, context: Context, now: datetime) -> list[Fact]:
    ended = instance.finished_at or now
    facts = [
        Fact(label="Id", text=str(instance.chain_id)),
        *_runs(instance, site),
        Fact(label="Version", text=str(instance.version)),
        Fact(label="Created", text=looks.moment(instance.created_at)),
        Fact(
            label="Not before", text=looks.moment(instance.start_at) if instance.start_at > instance.created_at else ""
        ),
        Fact(
            label="Started",
            text=looks.moment(instance.started_at),
            note=_after(instance.created_at, instance.started_at),
        ),
        Fact(label="Finished", text=looks.moment(instance.finished_at)),
        Fact(
            label="Took" if instance.finished_at else "Open for",
            text=words(max(ended - instance.created_at, timedelta(0))),
        ),
        Fact(label="Paused", text=looks.moment(instance.paused_at), note=context.scrub(instance.pause_reason)),
        Fact(label="Cancel requested", text=looks.moment(instance.cancel_requested_at)),
        Fact(label="Ends as", text=instance.closing_as if instance.state == t.COMPENSATING else ""),
        Fact(label="Deadline", text=looks.moment(instance.deadline_at)),
        Fact(label="Expected by", text=looks.moment(instance.expected_at)),
        Fact(label="Waits too long from", text=looks.moment(instance.warn_at)),
        Fact(label="Turns", text=f"{instance.turn:,}"),
        Fact(label="History", text=f"{instance.history_length:,} rows" if instance.history_length else ""),
        Fact(label="Queue", text=instance.queue),
        Fact(label="Priority", text="" if instance.priority is None else str(instance.priority)),
        Fact(
            label="Parent",
            text=str(instance.parent_id or ""),
            url=instance_url(site, instance.parent_id) if instance.parent_id else "",
            note=f"position {instance.parent_position}" if instance.parent_position else "",
        ),
        Fact(
            label="Subject",
            text=f"{instance.subject_type} {instance.subject_id}".strip(),
            url=_subject_url(instance, site),
        ),
        *_attributes(instance, context),
    ]
    return [fact for fact in facts if fact.text]


def _step_facts(step: StepResult, shown: StepShown, site: AdminSite) -> list[Fact]:
    facts = [
        Fact(label="Position", text=step.position),
        Fact(label="Kind", text=step.kind),
        _child(step, site),
        Fact(label="Scheduled", text=shown.scheduled),
        Fact(label="Last start", text=shown.started),
        Fact(label="Finished", text=shown.finished),
        Fact(label="Attempts", text=shown.attempts, note=shown.deaths),
        Fact(label="Failures that count", text=str(step.failures or "")),
        Fact(label="Sent again", text=f"{step.resends} times" if step.resends else ""),
        Fact(label="Last heartbeat", text=looks.moment(step.heartbeat_at)),
        Fact(label="Queue", text=step.queue),
        Fact(label="Taken in by turn", text="" if step.taken_turn is None else str(step.taken_turn)),
    ]
    return [fact for fact in facts if fact.text]


def _child(step: StepResult, site: AdminSite) -> Fact:
    """The instance of a child; one whose key was taken never was."""
    if step.kind != journal.CHILD or not step.attempt:
        return Fact(label="", text="")
    child_id = identity.child_id(step.instance_id, step.position)
    return Fact(label="Child", text=str(child_id), url=instance_url(site, child_id))


def _runs(instance: WorkflowInstance, site: AdminSite) -> list[Fact]:
    """Of an instance that has gone on as a new run: which this is, and the way to its neighbours and to the newest."""
    if instance.run_number == 1 and instance.state != t.CONTINUED:
        return []
    before, after = search.beside(instance)
    newest = search.run_of(instance.chain_id) if after is not None else None
    links = {"Previous run": before, "Next run": after, "Newest run": newest if newest != after else None}
    return [
        Fact(label="Run", text=str(instance.pk), note=f"number {instance.run_number:,}"),
        *(
            Fact(label=label, text=str(run.pk), url=run_url(site, run), note=f"number {run.run_number:,}, {run.state}")
            for label, run in links.items()
            if run is not None
        ),
    ]


def _attributes(instance: WorkflowInstance, context: Context) -> list[Fact]:
    if not isinstance(instance.attributes, dict):
        return []
    shown = context.scrub.data(disclosure.redacted(instance.attributes, context.workflow))
    return [Fact(label=str(name), text=str(value)[:200], note="attribute") for name, value in list(shown.items())[:50]]


def _subject_url(instance: WorkflowInstance, site: AdminSite) -> str:
    """The subject's page in this admin, if it has one."""
    app_label, _, model = instance.subject_type.partition(".")
    if not model or not instance.subject_id:
        return ""
    try:
        return reverse(f"admin:{app_label}_{model}_change", args=[instance.subject_id], current_app=site.name)
    except NoReverseMatch:
        return ""


def _after(start: datetime, later: datetime | None) -> str:
    return f"after {words(later - start)}" if later is not None and later > start else ""


def _counted(count: int, shown: int) -> str:
    if count <= shown:
        return f"{count:,}"
    return f"the newest {shown:,} of {count:,}" + (" or more" if count >= MESSAGES * 10 else "")


def _pages(page: Page[Any], instance: WorkflowInstance) -> Pages:
    if page.paginator.num_pages <= 1:
        return Pages()
    return Pages(
        text=f"{page.start_index():,} to {page.end_index():,} of {page.paginator.count:,}",
        previous=str(page.previous_page_number()) if page.has_previous() else "",
        following=str(page.next_page_number()) if page.has_next() else "",
        run="1" if _query(instance) else "",
    )
