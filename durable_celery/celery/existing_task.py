"""Runs one attempt of an existing task as Celery's own tracer would, but for what it would send to a broker.

Rules of this file:
- The task sees the request, hooks, signals and log lines of a delivered message, under its own name and with the same
  id on every attempt. ``is_eager`` is set: ``self.retry`` publishes nothing then, and what it asks for is returned.
- The end is known before anyone is told: a result that cannot be kept is a failure to the hooks and signals as well.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import _state as _celery_state
from celery import signals, states
from celery.app.task import Context
from celery.app.trace import TraceInfo, task_has_custom, trace_ok_t
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded
from celery.result import ResultBase
from celery.utils.saferepr import saferepr
from celery.utils.time import maybe_make_aware
from kombu.utils.encoding import safe_repr

from durable_celery.core.failure import failure_of
from durable_celery.errors import NotSerializable, UsageError
from durable_celery.ports import TaskCall, TaskEnd

_state: Any = _celery_state
AGAIN = timedelta(seconds=1)  # until a rejected task that is to go back to its queue runs again

logger = logging.getLogger("celery.app.trace")


def run(app: Any, call: TaskCall) -> TaskEnd:
    """Run it here and now. What is no ``Exception`` goes through, as it does in Celery."""
    return _Attempt(app.tasks[call.name], call).run()


class NoReplacement(int):
    """What ``Task.replace`` counts up in the request; it may not, and says what to do instead."""

    refusal: UsageError | None = None

    def __add__(self, other: int) -> int:
        self.refusal = UsageError(
            "self.replace() in a task that is a step of a workflow would start a second task that nobody waits for; "
            "return the value that decides, and yield the other task in the workflow: yield other.s(...)"
        )
        raise self.refusal


class _Attempt:
    """One attempt and what is known of it so far."""

    def __init__(self, task: Any, call: TaskCall) -> None:
        self.task = task
        self.call = call
        self.args = list(call.args)
        self.kwargs = dict(call.kwargs)
        self.nesting = NoReplacement(0)
        self.began = time.monotonic()
        self.request = Context(self._headers(), args=self.args, kwargs=self.kwargs, called_directly=False)

    def run(self) -> TaskEnd:
        """As in Celery: the task on the stacks, ``task_prerun``, the body, its end told, ``task_postrun``."""
        task, told = self.task, {"task_id": self.call.id, "args": self.args, "kwargs": self.kwargs}
        _state._task_stack.push(task)
        task.request_stack.push(self.request)
        state: str | None = None
        retval: Any = None
        try:
            signals.task_prerun.send(sender=task, task=task, **told)
            task.app.loader.on_task_init(self.call.id, task)
            end = self._body()
            state, retval = end.state, end.value if end.state == states.SUCCESS else end.error
            return end
        finally:
            try:
                signals.task_postrun.send(sender=task, task=task, retval=retval, state=state, **told)
            finally:
                _state._task_stack.pop()
                task.request_stack.pop()

    def _body(self) -> TaskEnd:
        try:
            with self.call.limited():
                if task_has_custom(self.task, "before_start"):
                    self.task.before_start(self.call.id, self.args, self.kwargs)
                value = _function(self.task)(*self.args, **self.kwargs)
            if self.nesting.refusal is not None:
                raise self.nesting.refusal
            result = self._kept(value)
        except Exception as error:
            return self._ended(self.nesting.refusal or error)
        return self._succeeded(value, result)

    def _ended(self, error: Exception) -> TaskEnd:
        if isinstance(error, Reject):
            return self._rejected(error)
        if isinstance(error, Ignore):
            return self._ignored(error)
        if isinstance(error, Retry):
            return self._retried(error)
        return self._failed(error)

    def _kept(self, value: Any) -> str:
        if isinstance(value, ResultBase):
            raise NotSerializable(
                f"task {self.call.name} returned {type(value).__name__} {value!r:.80}, a task that it started and "
                "nobody waits for; yield that task in the workflow instead: yield other.s(...)"
            )
        return self.call.keep(value)

    # -- how it ended --------------------------------------------------------------------------------------------------

    def _succeeded(self, value: Any, result: str) -> TaskEnd:
        task, runtime = self.task, time.monotonic() - self.began
        shown = saferepr(self.call.tell_value(task.run, value), task.resultrepr_maxsize)
        if task_has_custom(task, "on_success"):
            self._told("on_success", lambda: task.on_success(value, self.call.id, self.args, self.kwargs))
        signals.task_success.send(sender=task, result=value, runtime=runtime)
        data = {"id": self.call.id, "name": self._name(), "return_value": shown, "runtime": runtime,
                "args": self.request.get("argsrepr"), "kwargs": self.request.get("kwargsrepr")}  # fmt: skip
        logger.info("Task %(name)s[%(id)s] succeeded in %(runtime)ss: %(return_value)s", data, extra={"data": data})
        self._after_return(states.SUCCESS, value)
        return TaskEnd(state=states.SUCCESS, value=value, result=result, traced=trace_ok_t(value, None, runtime, shown))

    def _failed(self, error: Exception) -> TaskEnd:
        failure = failure_of(error, timed_out=isinstance(error, SoftTimeLimitExceeded))
        told = self.call.tell_error(self.task.run, error)
        info = TraceInfo(states.FAILURE, told)
        traced = self._handled(told, lambda: info.handle_error_state(self.task, self.request, eager=True))
        self._after_return(states.FAILURE, error)
        return TaskEnd(
            state=states.FAILURE, error=error, failure=failure, traced=trace_ok_t(traced, info, self._lasted(), None)
        )

    def _retried(self, error: Any) -> TaskEnd:
        """Asked for by the task, or by Celery's own automatic retry around it; the message it would send is ours."""
        cause = error.exc if isinstance(error.exc, BaseException) else error
        failure, args, queue = failure_of(cause), None, None
        if cause is error:  # what it carries is the message that is not sent
            failure = replace(failure, attributes={})
        if error.sig is not None:
            try:
                args = self.call.keep_call(error.sig.args, error.sig.kwargs)
            except Exception as wrong:  # noqa: BLE001 - arguments that cannot be kept
                return self._failed(wrong)
            queue = error.sig.options.get("queue")
        told = self.call.tell_error(self.task.run, error)
        info = TraceInfo(states.RETRY, told)
        traced = self._handled(
            told, lambda: info.handle_error_state(self.task, self.request, eager=True, call_errbacks=False)
        )
        return TaskEnd(
            state=states.RETRY, error=cause, failure=failure, delay=self._delay(error.when), args=args,
            queue=None if queue is None else str(getattr(queue, "name", queue)),
            traced=trace_ok_t(traced, info, self._lasted(), None),
        )  # fmt: skip

    def _ignored(self, error: Ignore) -> TaskEnd:
        info = TraceInfo(states.IGNORED, error)
        traced = self._handled(error, lambda: info.handle_ignore(self.task, self.request))
        return TaskEnd(
            state=states.IGNORED, error=error, failure=failure_of(error),
            traced=trace_ok_t(traced or ExceptionInfo(internal=True), info, self._lasted(), None),
        )  # fmt: skip

    def _rejected(self, error: Any) -> TaskEnd:
        """Back to its queue: it runs again soon, and nothing is counted. For good: it has failed."""
        if not error.requeue:
            return self._failed(error)
        info = TraceInfo(states.REJECTED, error)
        self._handled(error, lambda: info.handle_reject(self.task, self.request))
        # To the broker there is nothing to give back: the row is sent again.
        ignored = self._handled(Ignore(), ExceptionInfo)
        traced = trace_ok_t(ignored, TraceInfo(states.IGNORED, Ignore()), self._lasted(), None)
        return TaskEnd(state=states.REJECTED, error=error, delay=AGAIN, traced=traced)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _headers(self) -> dict[str, Any]:
        options, (args, kwargs) = self.call.options, self.call.tell_call(self.task.run)
        return {
            "argsrepr": safe_repr(args),
            "kwargsrepr": safe_repr(kwargs),
            "lang": "py",
            "task": self.call.name,
            "id": self.call.id,
            "root_id": self.call.root_id,
            "parent_id": None,
            "correlation_id": self.call.id,
            "retries": self.call.retries,
            "is_eager": True,
            "ignore_result": True,
            "hostname": self.call.node,
            "headers": options.get("headers"),
            "shadow": options.get("shadow"),
            "timelimit": list(options.get("timelimit") or (None, None)),
            "replaced_task_nesting": self.nesting,
            "delivery_info": {
                "is_eager": True, "exchange": None, "routing_key": None, "priority": options.get("priority"),
                "redelivered": False,
            },
        }  # fmt: skip

    def _name(self) -> str:
        return self.call.options.get("shadow") or self.call.name

    def _lasted(self) -> float:
        return time.monotonic() - self.began

    def _delay(self, when: Any) -> timedelta:
        if isinstance(when, datetime):
            return max(maybe_make_aware(when, self.task.app.timezone) - datetime.now(timezone.utc), timedelta(0))
        seconds = self.task.default_retry_delay if when is None else when
        return max(timedelta(seconds=float(seconds)), timedelta(0))

    def _after_return(self, state: str, retval: Any) -> None:
        if task_has_custom(self.task, "after_return"):
            self._told(
                "after_return",
                lambda: self.task.after_return(state, retval, self.call.id, self.args, self.kwargs, None),
            )

    def _told(self, what: str, hook: Callable[[], Any]) -> None:
        """A hook that raises changes nothing about what has happened."""
        try:
            hook()
        except Exception:
            logger.exception("Task %s[%s] %s handler raised", self._name(), self.call.id, what)

    def _handled(self, error: BaseException, handle: Callable[[], Any]) -> Any:
        """Celery's handler of an error reads it from ``sys.exc_info()``; a hook in it that raises changes nothing."""
        if sys.exc_info()[1] is not error:
            context = error.__context__
            try:
                raise error
            except BaseException:  # noqa: BLE001 - the one just raised
                error.__context__ = context  # its own: the error at hand, which it may stand for, would be told with it
                return self._handled(error, handle)
        try:
            return handle()
        except Exception:
            logger.exception("Task %s[%s]: a handler of its end raised", self._name(), self.call.id)
            return ExceptionInfo()


def _function(task: Any) -> Any:
    """The body: a custom ``__call__`` if there is one, as in a worker."""
    return task if task_has_custom(task, "__call__") else task.run
