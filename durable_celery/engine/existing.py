"""One attempt of an existing Celery task: run by the transport as Celery would, its end as an ``Outcome``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from durable_celery import calls, context, disclosure, faults, payloads
from durable_celery.core import identity
from durable_celery.core.failure import failure_of
from durable_celery.engine import discretion, verdicts
from durable_celery.engine.execution import Guard, Outcome, current_step, in_order, stopped_by
from durable_celery.ports import Claimed, OpenStep, TaskCall, TaskEnd
from durable_celery.runtime import Runtime


def execute(rt: Runtime, claimed: Claimed, guard: Guard, node: str) -> Outcome:
    """Run it. Raises only what stops the process itself; its lease tells the others."""
    terms = verdicts.terms_of(claimed.step.options)
    try:
        with context.running(current_step(rt, claimed, terms)):
            end = rt.transport.run_task(_call(rt, claimed, terms, guard, node))
    except BaseException as error:
        if stopped_by(error, guard):
            raise
        return Outcome(failure=failure_of(error, timed_out=guard.fired), error=error, unknown_end=guard.fired)
    faults.reach("body.after")
    return _outcome(end)


def task_id(instance_id: Any, position: str) -> str:
    """The id a task at this position has on every attempt, as Celery writes ids."""
    return str(uuid.uuid5(identity.NAMESPACE, identity.idempotency_key(instance_id, position)))


def _call(rt: Runtime, claimed: Claimed, terms: verdicts.Terms, guard: Guard, node: str) -> TaskCall:
    step = claimed.step
    args, kwargs = calls.decode_call(claimed.args)
    faults.reach("body.before")
    return TaskCall(
        name=step.name,
        id=task_id(step.instance_id, step.position),
        root_id=str(step.instance_id),
        args=args,
        kwargs=kwargs,
        retries=step.failures,
        node=node,
        options={**(terms.task or {}), "timelimit": [terms.start_to_close, terms.soft]},
        limited=lambda: _around(rt, step, terms, guard),
        keep=partial(payloads.encode, settings=rt.settings, root=f"the result of task {step.name}"),
        keep_call=partial(_changed_call, step.name, claimed.args),
        tell_call=lambda function: discretion.call(claimed, disclosure.of_function(function), args, kwargs),
        tell_value=lambda function, value: discretion.value(claimed, value, disclosure.of_function(function)),
        tell_error=lambda function, error: discretion.error(rt, claimed, error, disclosure.of_function(function)),
    )


@contextmanager
def _around(rt: Runtime, step: OpenStep, terms: verdicts.Terms, guard: Guard) -> Iterator[None]:
    with in_order(rt, step.name), guard.limits(terms.soft, terms.start_to_close, step.token or ""):
        yield


def _changed_call(name: str, before: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    after = calls.encode_values(name, tuple(args), dict(kwargs))
    return after if after != before else None


def _outcome(end: TaskEnd) -> Outcome:
    if end.state == "SUCCESS":
        return Outcome(result=end.result, value=end.value, task=end)
    if end.state == "IGNORED":
        return Outcome(result="null", task=end)
    if end.state == "REJECTED":
        return Outcome(later=max(end.delay, timedelta(0)), error=end.error, task=end)
    unknown_end = end.failure is not None and end.failure.timed_out
    return Outcome(failure=end.failure, error=end.error, unknown_end=unknown_end, task=end)
