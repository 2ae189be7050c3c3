"""The Celery tasks: one for each step, one for each workflow, and the engine's own.

Each is made on every app there is and will be, built on that app's own Task class, as ``shared_task`` does.

Rules of this file:
- A step's task with our header runs an attempt. Without it, it is plain Celery: the body and the arguments given.
- What Celery sees of an attempt: success, ``Retry`` when another follows, the body's own error once, at the end. A
  message that found nothing to do is ignored.
- Our messages store no result, are acknowledged early, and have time limits of their own, whatever the project's
  settings say for its other tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from celery import _state as _celery_state
from celery.exceptions import Ignore, Retry
from celery.utils.functional import head_from_fun
from celery.utils.serialization import get_pickleable_exception

from durable_celery import context, disclosure, purging, runtime, sweeps
from durable_celery.celery import seat as seats
from durable_celery.celery.carrier import Tracer, run_task
from durable_celery.celery.deadlines import NoGuard
from durable_celery.celery.quiet import PURGE, TICK
from durable_celery.celery.requests import request_class
from durable_celery.celery.slots import SLOT
from durable_celery.celery.transport import ADVANCE, HEADER, RUN_TASK
from durable_celery.client import start_by_message, start_by_schedule
from durable_celery.engine import attempts, discretion, turns
from durable_celery.errors import BadValue, DurableError, NonRetryable, NotConfigured
from durable_celery.registry import registry
from durable_celery.runtime import Incarnation
from durable_celery.steps import Step

_state: Any = _celery_state
MARK = "durable_kind"  # class attribute that tells our tasks from others of the same name
ENGINE = {ADVANCE, TICK, PURGE, RUN_TASK}
PLAIN = {"rate_limit", "serializer", "expires", "autoretry_for"}  # attributes of plain calls
PURGE_SECONDS = 60.0  # of one message; then others have the pool's process, and another message goes on
RETRIES = (1, 2, 5, 10, 30, 60)  # seconds between tries of a start that met a database out of reach

logger = logging.getLogger(__name__)


# -- what runs ---------------------------------------------------------------------------------------------------------


def run_step(task: Any, *args: Any, **kwargs: Any) -> Any:
    """One message of a step."""
    header = _header(task)
    if "step" not in header:
        return registry.steps[task.name].run_here(context.plain(task.name, task.request.id), args, kwargs)
    _note_wait(header)
    ended = _contained(task, lambda: _attempt(int(header["step"]), header.get("after") or (None, None)))
    return _shown(ended)


def run_advance(task: Any, instance_id: str | None = None) -> None:
    """Take the turns an instance has to take. The id comes in our header, or as an argument."""
    header = _header(task)
    _note_wait(header)
    given = header.get("instance", instance_id)
    if given is None:
        raise BadValue(f"{ADVANCE} needs the id of an instance", path="instance_id")
    _contained(task, lambda: _in_seat(lambda: turns.advance(UUID(str(given)))))


def run_tick(task: Any) -> None:
    """Do what the clock must do, unless another process does it in this interval."""
    _contained(task, lambda: _in_seat(lambda: sweeps.tick(by=str(task.request.hostname or "beat"), by_beat=True)))


def run_purge(task: Any) -> None:
    """Remove what ended longer ago than ``RETENTION``; what there was no time for is left to another message."""
    report = _contained(task, lambda: _in_seat(lambda: purging.purge(seconds=PURGE_SECONDS)))
    if report is not None and report.more:
        task.apply_async()


def run_workflow(task: Any, *args: Any, **kwargs: Any) -> str:
    """Start an instance of the workflow of this name; returns its id, which is the task's: again starts nothing."""
    slot = task.request.get(SLOT)
    try:
        if isinstance(slot, dict):
            return ", ".join(str(pk) for pk in _start_by_schedule(task.name, args, kwargs, slot))
        return str(start_by_message(task.name, args, kwargs, task.request.id))
    except Exception as error:
        raised = error
    # Raised out here, where the error as it was is no context of the one that Celery logs.
    told: Any = discretion.refusal(raised, disclosure.of_child(task.name), args, kwargs)
    wrong = isinstance(raised, (DurableError, TypeError, ValueError, LookupError))
    if wrong and not isinstance(raised, NotConfigured):  # a migration that is missing will come
        raise told
    wait = RETRIES[min(task.request.retries, len(RETRIES) - 1)]
    raise task.retry(exc=told, countdown=wait, max_retries=None) from told


def _start_by_schedule(name: str, args: Any, kwargs: Any, slot: dict[str, Any]) -> list[UUID]:
    every = timedelta(seconds=slot["every"]) if slot.get("every") else None
    at = datetime.fromisoformat(slot["at"])
    return start_by_schedule(name, args, kwargs, f"{slot['entry']} {name}", at, every)


def _note_wait(header: dict[str, Any]) -> None:
    """Tell the board how long this message was on its way."""
    seat = seats.taken()
    if seat is not None and isinstance(header.get("sent"), (int, float)):
        # By the database's clock on both sides: one machine whose clock is ahead would hold up every re-send.
        seat.note_wait(runtime.current().clock.guess().timestamp() - header["sent"])


def _attempt(step_id: int, after: Any) -> attempts.Ended:
    seat = seats.taken()
    if seat is None:
        return attempts.run(step_id, incarnation=Incarnation(), guard=NoGuard(), timing=tuple(after))
    incarnation = seat.incarnation()
    if incarnation is None:
        logger.debug("step %s waits: this worker has no lease yet", step_id)
        return attempts.Ended(kind="refused")
    with seat.message() as guard:
        return attempts.run(step_id, incarnation=incarnation, guard=guard, timing=tuple(after))


def _task_attempt(step_id: int, header: Mapping[str, Any]) -> attempts.Ended:
    """One message of an existing task."""
    _note_wait(dict(header))
    return _attempt(step_id, header.get("after") or (None, None))


def _in_seat(work: Callable[[], Any]) -> Any:
    seat = seats.taken()
    if seat is None:
        return work()
    with seat.message():
        return work()


def _contained(task: Any, work: Callable[[], Any]) -> Any:
    """An error of the engine or its database is no failure of the step: the row stands, the tick comes back to it."""
    try:
        return work()
    except (NotConfigured, BadValue):
        raise
    except Exception as error:
        logger.exception("%s [%s] was interrupted; the tick goes on with it", task.name, task.request.id)
        raise Ignore() from error


def _shown(ended: attempts.Ended) -> Any:
    """The end of an attempt, as Celery's signals, hooks and logs are to see it."""
    if ended.kind == "succeeded":
        return ended.value
    if ended.kind == "retrying":
        error = ended.error if isinstance(ended.error, Exception) else RuntimeError(repr(ended.error))
        raise Retry(exc=get_pickleable_exception(error), when=ended.retry_at)
    if ended.kind == "failed":
        raise _own_error(ended.error)
    raise Ignore()


def _own_error(error: BaseException | None) -> Exception:
    """The error a person looks for: what the body raised, not what it was wrapped in for us."""
    if isinstance(error, NonRetryable) and isinstance(error.why, Exception):
        return error.why if error.why.__traceback__ is not None else error.why.with_traceback(error.__traceback__)
    return error if isinstance(error, Exception) else DurableError(f"the step failed: {error!r}")


def _header(task: Any) -> dict[str, Any]:
    header = task.request.get(HEADER)
    return header if isinstance(header, dict) else {}


# -- on which apps -----------------------------------------------------------------------------------------------------


def register() -> None:
    """Make the tasks of all steps and workflows, present and to come, on all apps; a second call does nothing."""
    global _registered
    if _registered:
        return
    _registered = True
    _state.connect_on_app_finalize(_make_all)
    for app in _finalized():
        _make_all(app)
    registry.on_register(_make_everywhere)


_registered = False


def _finalized() -> list[Any]:
    return [app for app in _state._get_active_apps() if app.finalized]


def _make_all(app: Any) -> None:
    _make(app, ADVANCE, run_advance, {}, {})
    _make(app, TICK, run_tick, {}, {})
    _make(app, PURGE, run_purge, {}, {})
    # Falsy limits: the project's own for all tasks are those of the task it carries, and held there.
    carrier = {"time_limit": 0, "soft_time_limit": 0, "__trace__": Tracer(_task_attempt)}
    _make(app, RUN_TASK, run_task, carrier, {})
    for step in list(registry.steps.values()):
        _make_one(app, step)
    for workflow in list(registry.workflows.values()):
        _make_one(app, workflow)


def _make_everywhere(definition: Any) -> None:
    for app in _finalized():
        with app._finalize_mutex:
            _make_one(app, definition)


def _make_one(app: Any, definition: Any) -> None:
    if isinstance(definition, Step):
        _make(app, definition.name, run_step, _step_options(definition), _routing(definition))
    else:
        _make(app, definition.name, run_workflow, _workflow_options(definition), _routing(definition))


def _make(app: Any, name: str, run: Callable[..., Any], options: dict[str, Any], routing: dict[str, Any]) -> None:
    present = app._tasks.get(name)
    if present is not None:
        if not hasattr(type(present), MARK):
            logger.error("the name %r belongs to another Celery task: give the step or workflow another name=", name)
            return
        del app._tasks[name]
    common = _common(app)
    task = app._task_from_fun(run, name=name, bind=True, **{**common, MARK: run.__name__, **options})
    # Annotations of the project ("*" above all) are set over a class's own. What is about plain calls of a step or
    # workflow is theirs to change; a rate limit of the engine's own tasks would hold up all others.
    for attribute in common.keys() - (set() if name in ENGINE else PLAIN):
        setattr(type(task), attribute, options.get(attribute, common[attribute]))
    # On the task, not its class: there Celery 5.7 calls them deprecated. For plain calls; messages give their own.
    for option, value in routing.items():
        setattr(task, option, value)


def _common(app: Any) -> dict[str, Any]:
    """Attributes that hold against the project's settings and its Task class's own."""
    return {
        "Request": request_class(app.Task.Request),
        "acks_late": False,
        "acks_on_failure_or_timeout": True,
        "reject_on_worker_lost": False,
        "retry_on_worker_lost": False,
        "ignore_result": True,
        "store_errors_even_if_ignored": False,
        "track_started": False,
        "serializer": "json",
        "autoretry_for": (),
        "rate_limit": 0,
        "expires": None,
    }


def _step_options(step: Step[Any, Any]) -> dict[str, Any]:
    return {
        **_description(step.body),
        "ignore_result": property(_ignores_result),
        "serializer": None,
        "rate_limit": step.options.rate_limit,
        "__header__": staticmethod(_head(step.body)),
    }


def _workflow_options(workflow: Any) -> dict[str, Any]:
    # Redelivered if the worker dies: the task id makes a second start the first.
    return {
        **_description(workflow.body),
        "__header__": staticmethod(_head(workflow.body)),
        "serializer": None,
        "acks_late": True,
        "reject_on_worker_lost": True,
    }


def _routing(definition: Any) -> dict[str, Any]:
    given = {"queue": definition.options.queue, "priority": definition.options.priority}
    return {option: value for option, value in given.items() if value is not None}


def _head(body: Callable[..., Any]) -> Callable[..., Any]:
    """What Celery checks the arguments of a call against; of a body without a proper name (a lambda) anything."""
    return head_from_fun(body) if body.__name__.isidentifier() else _anything


def _anything(*args: Any, **kwargs: Any) -> None:
    """Takes any arguments."""


def _description(body: Callable[..., Any]) -> dict[str, Any]:
    return {"__doc__": body.__doc__, "__module__": body.__module__, "__wrapped__": staticmethod(body)}


def _ignores_result(task: Any) -> bool:
    """For a step's task: our messages do, plain calls as the project says. Celery 5.4 asks the class alone."""
    return HEADER in task.request.__dict__ or bool(task.app.conf.task_ignore_result)
