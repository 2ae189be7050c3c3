"""``@step``: a function that workflows run durably, one idempotent Celery task an attempt."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, overload

from durable_celery import calls, context, runtime
from durable_celery.bodies import run_body
from durable_celery.core import labels
from durable_celery.core.commands import Command, StepCommand, StepTerms, Undo
from durable_celery.core.retry import Duration, RetryPolicy, policy_of, seconds_of
from durable_celery.errors import BadValue, UsageError
from durable_celery.registry import registry

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

NAME_LENGTH = 255  # characters; what the database's column holds
UNSET: Any = type("Unset", (), {"__repr__": lambda self: "<the default>"})()

_CELERY_OPTIONS = {
    "autoretry_for": "retry=RetryPolicy(retry_on=...)",
    "max_retries": "retry= (maximum attempts, the first included)",
    "default_retry_delay": "retry=RetryPolicy(initial_interval=...)",
    "retry_backoff": "retry=RetryPolicy(backoff_coefficient=...)",
    "retry_backoff_max": "retry=RetryPolicy(maximum_interval=...)",
    "retry_jitter": "retry=RetryPolicy(jitter=...)",
    "retry_kwargs": "retry=RetryPolicy(...)",
    "throws": "retry=RetryPolicy(non_retryable=...)",
    "dont_autoretry_for": "retry=RetryPolicy(non_retryable=...)",
    "time_limit": "start_to_close_timeout=",
    "soft_time_limit": "start_to_close_timeout= (the body is stopped at it, its process 3 s later)",
    "expires": "schedule_to_start_timeout=",
    "bind": "current_step()",
    "acks_late": "on_lost= (a lost attempt is found by its lease)",
    "reject_on_worker_lost": "on_lost=",
    "ignore_result": "nothing: results live in the instance's journal",
    "store_errors_even_if_ignored": "nothing: errors live in the instance's journal",
    "track_started": "nothing: starts live in the instance's journal",
    "typing": "nothing: calls are checked where they are made",
    "serializer": "nothing: messages carry ids only; register_type() for values",
    "base": "app.Task (task_cls): steps are built on the app's own Task class",
    "pydantic": "nothing: pydantic models pass as values",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """The options of ``@step``, checked. ``None`` for retry and start_to_close_timeout means the project's default."""

    retry: RetryPolicy | None = None
    start_to_close_timeout: float | None = None
    schedule_to_start_timeout: float | None = None
    schedule_to_close_timeout: float | None = None
    heartbeat_timeout: float | None = None
    on_lost: str = "rerun"
    atomic: bool = False
    redact: tuple[str, ...] = ()
    queue: str | None = None
    priority: int | None = None
    rate_limit: str | None = None


class Step(Generic[P, R]):
    """A step, as ``@step`` makes it. Calling it builds a command, inside a running workflow only.

    ``result = yield from charge(7)``: the result of its body; ``StepFailed`` once its attempts are used up. The call is
    checked and its arguments are encoded at once: ``TypeError``, ``NotSerializable`` or ``PayloadTooLarge`` there.
    Outside a workflow it raises ``NotInWorkflow``. ``using(...)`` gives the same step on other terms.

    ``call`` runs the body here (unit tests); ``delay``, ``apply_async``, ``s``, ``si`` and ``apply`` are plain Celery,
    without durability. ``task`` is the Celery task of its name.
    """

    def __init__(self, body: Callable[P, Any], name: str, options: StepOptions) -> None:
        self.body = body
        self.name = name
        self.options = options
        self.signature = calls.signature_of(body)
        self._shape = calls.Shape(self.signature, name)
        self._terms: tuple[object, StepTerms] | None = None
        update_wrapper(self, body)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Command[R]:
        command: StepCommand[R] = _placeholder(self)
        self._shape.check(args, kwargs)
        encode = partial(calls.encode_values, self.name, args, kwargs)
        command.call_with(encode if command.replaying and calls.never_change(args, kwargs) else encode())
        return command

    def __repr__(self) -> str:
        return f"<step {self.name}>"

    def __reduce__(self) -> Any:
        return _found, (self.name,)

    def using(
        self,
        *,
        retry: RetryPolicy | int | None = UNSET,
        start_to_close_timeout: Duration | None = UNSET,
        schedule_to_start_timeout: Duration | None = UNSET,
        schedule_to_close_timeout: Duration | None = UNSET,
        heartbeat_timeout: Duration | None = UNSET,
        on_lost: str = UNSET,
        queue: str | None = UNSET,
        priority: int | None = UNSET,
    ) -> Step[P, R]:
        """The same step on other terms, for the calls made through what is returned: ``charge.using(retry=None)(7)``.

        The options are those of ``@step``, durations timedelta or seconds; what is not given stays. A bad one is a
        ``BadValue`` here.
        """
        given = {k: v for k, v in locals().items() if k != "self" and v is not UNSET}
        other: Step[P, R] = object.__new__(type(self))  # copy.copy would find the registered one by its name
        other.__dict__.update(self.__dict__)
        other.options = replace(self.options, **_checked(self.name, given))
        other._terms = None
        return other

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the body here and now, for unit tests; ``current_step()`` has attempt 1, a fresh key and no token."""
        result: R = self.run_here(context.plain(self.name), args, kwargs)
        return result

    def run_here(self, current: context.CurrentStep, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body without durability; of an ``atomic`` step in a transaction, as it is used to."""
        here = runtime.current().store.transaction() if self.options.atomic else contextlib.nullcontext()
        with context.running(current), here:
            return run_body(self.body, args, kwargs)

    @property
    def task(self) -> Any:
        """The Celery task of this name on the current app."""
        return runtime.current().transport.task(self.name)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Plain Celery ``delay``: no durability, an AsyncResult."""
        return self.task.delay(*args, **kwargs)

    def apply_async(self, *args: Any, **kwargs: Any) -> Any:
        """Plain Celery ``apply_async``: no durability, an AsyncResult."""
        return self.task.apply_async(*args, **kwargs)

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Plain Celery ``apply``: runs here, an EagerResult."""
        return self.task.apply(*args, **kwargs)

    def s(self, *args: Any, **kwargs: Any) -> Any:
        """A Celery signature; yielding it in a workflow equals yielding the call."""
        return self.task.s(*args, **kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Any:
        """An immutable Celery signature."""
        return self.task.si(*args, **kwargs)

    def terms(self) -> StepTerms:
        """The terms a row of this step gets now; kept until the settings change."""
        settings = runtime.settings()
        if self._terms is None or self._terms[0] is not settings:
            self._terms = (settings, _terms(self.options, settings))
        return self._terms[1]

    def undo_with(self, args: str | None = None) -> Undo:
        """This step as a compensation, with an encoded call or (None) with the result of what it takes back."""
        return Undo(name=self.name, args=args, terms=self.terms().text, queue=self.options.queue or "")


@overload
def step(body: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(body: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: RetryPolicy | int | None = UNSET,
    start_to_close_timeout: Duration | None = UNSET,
    schedule_to_start_timeout: Duration | None = None,
    schedule_to_close_timeout: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    on_lost: str = "rerun",
    atomic: bool = False,
    redact: Iterable[str] = (),
    queue: str | None = None,
    priority: int | None = None,
    rate_limit: str | None = None,
) -> _StepDecorator: ...
def step(body: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Make a function a step. A bad option is a ``BadValue`` here, at import.

    ``retry``: a RetryPolicy, an int >= 1 (maximum attempts) or None (one attempt); by default the project's policy.
    ``start_to_close_timeout`` (one attempt; default ``STEP_TIMEOUT``), ``schedule_to_start_timeout`` (in the queue),
    ``schedule_to_close_timeout`` (all attempts and waits) and ``heartbeat_timeout`` are timedelta or seconds.
    ``on_lost``: "rerun" (at least once) or "fail" (at most once) when the process running it died.
    ``atomic``: the body runs in a transaction of the engine's database that its result is committed with: exactly once
    for what it does there by the ORM, at least once for anything else. A write on another database is refused. Keep it
    short: its row locks are held until it returns. ``CompleteLater`` commits what was done with the hand-over.
    ``redact``: argument names that are never shown. ``queue``, ``priority``, ``rate_limit``: Celery's.
    """
    if body is None:
        checked = _options_of(name or "", options)
        return lambda function: _make(function, name, checked)
    if name is not None or options:
        raise UsageError("@step takes either the function or options by keyword, not both")
    return _make(body, None, StepOptions())


class _StepDecorator:
    """What ``@step(...)`` returns, for type checkers."""

    @overload
    def __call__(self, body: Callable[P, Coroutine[Any, Any, T]], /) -> Step[P, T]: ...
    @overload
    def __call__(self, body: Callable[P, T], /) -> Step[P, T]: ...
    def __call__(self, body: Any, /) -> Any:
        raise NotImplementedError  # pragma: no cover - typing only


def _make(body: Any, name: str | None, options: StepOptions) -> Step[Any, Any]:
    if hasattr(body, "apply_async") or isinstance(body, Step):
        raise UsageError(
            f"@step over {getattr(body, 'name', body)!r}, which is a task already: put @step on the plain function "
            "instead (a step is a Celery task of its own name); an existing task can be yielded as task.s(...)"
        )
    if not inspect.isroutine(body):
        raise BadValue(f"@step needs a function, got {body!r:.80}", path="body")
    if options.atomic and inspect.iscoroutinefunction(body):
        raise UsageError(
            f"@step(atomic=True) over the async def {body.__qualname__}: Django's transactions are synchronous, what "
            "it awaits would run outside; make it a plain def, or leave atomic out"
        )
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise UsageError(
            f"@step over the generator function {body.__qualname__}: a step body returns; a workflow yields (@workflow)"
        )
    name = labels.check_name(name, f"{body.__module__}.{body.__name__}", NAME_LENGTH, "step")
    _check_redact(name, body, options.redact)
    made: Step[Any, Any] = Step(body, name, options)
    registry.add_step(made)
    return made


def _placeholder(step: Step[Any, Any]) -> StepCommand[Any]:
    # Built before the arguments are encoded: outside a workflow NotInWorkflow must come first.
    return StepCommand(name=step.name, args="", terms=step.terms(), queue=step.options.queue or "")


def _found(name: str) -> Step[Any, Any]:
    return registry.steps[name]


def _terms(options: StepOptions, settings: Any) -> StepTerms:
    limit = options.start_to_close_timeout
    data = {
        "retry": (options.retry or settings.retry).as_data(),
        "start_to_close": settings.step_timeout.total_seconds() if limit is None else limit,
        "schedule_to_start": options.schedule_to_start_timeout,
        "schedule_to_close": options.schedule_to_close_timeout,
        "heartbeat": options.heartbeat_timeout,
        "on_lost": options.on_lost,
        "priority": options.priority,
        "atomic": options.atomic or None,
    }
    return StepTerms(
        text=json.dumps({k: v for k, v in data.items() if v is not None}, separators=(",", ":")),
        schedule_to_start=options.schedule_to_start_timeout,
        schedule_to_close=options.schedule_to_close_timeout,
    )


# -- checking options -------------------------------------------------------------------------------------------------


def _options_of(name: str, given: dict[str, Any]) -> StepOptions:
    known = [f.name for f in fields(StepOptions)]
    for option in given:
        if option in _CELERY_OPTIONS:
            raise BadValue(f"@step does not take Celery's {option}=; use {_CELERY_OPTIONS[option]}", path=option)
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            raise BadValue(
                f"@step has no option {option!r}; "
                + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"),
                path=option,
            )
    return StepOptions(**_checked(name, {k: v for k, v in given.items() if v is not UNSET}))


def _checked(name: str, given: dict[str, Any]) -> dict[str, Any]:
    checked = dict(given)
    whose = f" of step {name}" if name else ""
    if "retry" in checked:
        checked["retry"] = policy_of(checked["retry"])
    for option in (
        "start_to_close_timeout",
        "schedule_to_start_timeout",
        "schedule_to_close_timeout",
        "heartbeat_timeout",
    ):
        if checked.get(option) is not None:
            seconds = seconds_of(checked[option], option + whose, minimum=0)
            if seconds == 0:
                raise BadValue(f"{option}={given[option]!r}{whose} must be over 0 (None: no such limit)", path=option)
            checked[option] = seconds
    if checked.get("on_lost", "rerun") not in ("rerun", "fail"):
        raise BadValue(f"on_lost={checked['on_lost']!r} is not allowed, expected 'rerun' or 'fail'", path="on_lost")
    if checked.get("rate_limit") is not None:
        checked["rate_limit"] = _rate(checked["rate_limit"])
    labels.check_routing(checked.get("queue"), checked.get("priority"))
    if not isinstance(checked.get("atomic", False), bool):
        raise BadValue(f"atomic={checked['atomic']!r} is not allowed, expected True or False", path="atomic")
    if "redact" in checked:
        names = checked["redact"]
        if isinstance(names, str) or not all(isinstance(n, str) for n in names):
            raise BadValue(f"redact={names!r} is not allowed, expected a tuple of argument names", path="redact")
        checked["redact"] = tuple(names)
    return checked


def _rate(value: Any) -> Any:
    number, _, unit = str(value).partition("/")
    try:
        good = float(number) >= 0 and unit in ("", "s", "m", "h") and not isinstance(value, bool)
    except ValueError:
        good = False
    if not good:
        raise BadValue(
            f"rate_limit={value!r} is not allowed, expected a number or '10/s', '10/m', '10/h'", path="rate_limit"
        )
    return value


def _check_redact(name: str, body: Callable[..., Any], redact: tuple[str, ...]) -> None:
    signature = inspect.signature(body)
    if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        return
    for pattern in redact:
        if "*" not in pattern and pattern not in signature.parameters:
            raise BadValue(f"redact={pattern!r} names no argument of {name}{signature}", path="redact")
