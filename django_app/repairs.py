"""What people do to one position of an instance, from the admin: one value for each act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_app import bench
from django_app.acts import Outcome, is_open
from django_app.models import StepResult, WorkflowInstance
from durable_celery import repair
from durable_celery.codec.plain import hints_of
from durable_celery.core import transitions as t
from durable_celery.errors import DurableError
from durable_celery.registry import registry

PERMISSION = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """``do`` gets the id of the chain, the position and the result (of ``takes_result``), and says what came of it."""

    name: str
    label: str | Promise
    summary: str | Promise
    takes_result: bool
    possible: Callable[[WorkflowInstance], bool]
    do: Callable[[UUID, str, Any], str]


def perform(act: Repair, instance: WorkflowInstance, position: str, result: Any) -> Outcome:
    """Do it, in the current transaction; a refusal is an outcome, never an error."""
    try:
        return Outcome(ok=True, text=f"position {position}: {act.do(instance.chain_id, position, result)}")
    except DurableError as refusal:
        return Outcome(ok=False, text=str(refusal))


def result_type(instance: WorkflowInstance, position: str, name: str = "") -> Any:
    """What the step there (or of this name) says that it returns; None where this process does not know it."""
    rows = StepResult.objects.filter(instance__chain_id=instance.chain_id, position=position)
    step = registry.steps.get(name or rows.order_by("-id").values_list("name", flat=True).first() or "")
    return hints_of(step.body).get("return") if step is not None else None


def skipped_type(instance: WorkflowInstance, position: str) -> Any:
    """The same of what ``skip`` puts there: where the body does not fit the journal, the step that it asks for."""
    sides = bench.sides_of(instance) or {}
    command = sides.get("requested_command") or {}
    name = str(command.get("name", "")) if sides.get("position") == position else ""
    return result_type(instance, position, name)


def _skip(instance_id: UUID, position: str, result: Any) -> str:
    repair.skip(instance_id, position, result)
    return "skipped"


def _retry_step(instance_id: UUID, position: str, _result: Any) -> str:
    repair.retry_step(instance_id, position)
    return "will be tried again"


def _fork(instance_id: UUID, position: str, _result: Any) -> str:
    return f"forked as {repair.fork(instance_id, position)}"


SKIP = Repair(
    name="skip",
    label=_("Skip"),
    summary=_(
        "It goes on as if what stands at this position had ended with this result: an open step, the last failure, or "
        "what the body asks for where it does not fit the journal."
    ),
    takes_result=True,
    possible=lambda instance: is_open(instance) or instance.state == t.FAILED,
    do=_skip,
)
RETRY_STEP = Repair(
    name="retry-step",
    label=_("Retry step"),
    summary=_("The step at this position is tried again now, if the body has not gone on after it."),
    takes_result=False,
    possible=lambda instance: is_open(instance) or instance.state == t.FAILED,
    do=_retry_step,
)
FORK = Repair(
    name="fork",
    label=_("Fork"),
    summary=_(
        "A new instance starts from everything recorded before this position; its steps do not run again. This one "
        "stays as it is."
    ),
    takes_result=False,
    possible=lambda instance: instance.turn > 0,
    do=_fork,
)
REPAIRS = {act.name: act for act in (SKIP, RETRY_STEP, FORK)}
