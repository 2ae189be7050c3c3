"""``@workflow``: a generator function whose instances live in the database."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, overload

from durable_celery import calls, children, runtime
from durable_celery.core import identity, labels, scope
from durable_celery.core.commands import Command
from durable_celery.core.retry import Duration, seconds_of
from durable_celery.errors import BadValue, NotInWorkflow, UsageError
from durable_celery.options import StartOptions, WorkflowOptions, from_celery, plain, workflow_options
from durable_celery.registry import registry
from durable_celery.twins import Starts, in_thread

if TYPE_CHECKING:
    from durable_celery.handle import WorkflowHandle

P = ParamSpec("P")
R = TypeVar("R")

NAME_LENGTH = 160  # characters; what the database's column holds

Workflow: TypeAlias = Generator[Any, Any, R]
"""Annotates a workflow body: ``def fulfil(order_id: int) -> Workflow[Shipment]``."""


class WorkflowDefinition(Starts[P, R]):
    """A workflow: its body under a name and version, and the ways to start instances; each with an ``a`` twin."""

    def __init__(self, body: Callable[P, Any], name: str, options: WorkflowOptions) -> None:
        self.body = body
        self.name = name
        self.version = options.version
        self.options = options
        self.signature = calls.signature_of(body)
        update_wrapper(self, body)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Command[R]:
        """In the body of another workflow: run as its child, ``value = yield from other(...)``.

        The value is the child's result; ``ChildFailed`` if it ends in any other way. It starts with the commit of the
        turn that yields it, on its newest version, in the context of its parent. ``using(...)(...)`` sets its key,
        queue, priority, attributes, memo, subject, first signal and ``execution_timeout`` (seconds), and what becomes
        of it when the parent ends: ``parent_close`` "cancel" (its cleanup and compensations run), "terminate" or
        "abandon" (it goes on). A key that an open instance has is a ``ChildFailed`` that matches ``KeyConflict``;
        ``conflict="terminate_existing"`` ends that one instead.
        """
        short = self.name.rpartition(".")[2]
        if scope.active() is None:
            raise NotInWorkflow(
                f"workflow {self.name} is started, not called: {short}.start(...) starts an instance and returns its "
                "handle"
            )
        return self._child(StartOptions(), args, kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.name} version {self.version}>"

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the body's code; a BLOCKED instance is tried again by each new one."""
        return identity.fingerprint(self.body)

    def start(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]:
        """Start an instance in the current transaction; it runs after the commit.

        A rollback takes it back; the broker may be away. Where ``key`` names an open instance, its handle is returned
        (``.created`` is False). ``TypeError``, ``NotSerializable`` or ``PayloadTooLarge`` for arguments,
        ``KeyConflict`` for a key that is taken by other arguments.
        """
        handle: WorkflowHandle[R] = self._start([(args, kwargs)], StartOptions())[0]
        return handle

    def using(
        self,
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        start_delay: Duration = 0,
        execution_timeout: Duration | None = None,
        attributes: Mapping[str, Any] | None = None,
        memo: Mapping[str, Any] | None = None,
        subject: Any = None,
        signal: tuple[Any, Any] | None = None,
        conflict: str = "use_existing",
        reuse: str = "allow",
        parent_close: str = "cancel",
        id: str | None = None,
    ) -> Starter[P, R]:
        """The workflow with options for what is started through what is returned: ``wf.using(key="7").start(7)``.

        ``key``: the business key, unique among open instances of the workflow. ``conflict``, where one is open:
        "use_existing" (its handle; ``KeyConflict`` if the arguments differ), "fail" (``KeyConflict``) or
        "terminate_existing". ``reuse``, where a closed one exists: "allow", "allow_if_failed" or "reject"
        (``KeyConflict``). ``start_delay`` and ``execution_timeout`` are timedelta or seconds. ``attributes``: plain
        JSON to search by, ``memo``: plain JSON to show. ``subject``: the model instance it is about. ``signal``: a
        ``(Signal, payload)`` that is there from the first turn on. ``parent_close``, of a child whose parent ends:
        "cancel", "terminate" or "abandon". ``queue``, ``priority``: Celery's. ``id``: a text that makes a start happen
        once; a second start with it gives the first one's handle. A bad value is a ``BadValue`` here.
        """
        for name, value, allowed in (
            ("conflict", conflict, ("use_existing", "fail", "terminate_existing")),
            ("reuse", reuse, ("allow", "allow_if_failed", "reject")),
            ("parent_close", parent_close, ("cancel", "terminate", "abandon")),
        ):
            if value not in allowed:
                raise BadValue(
                    f"{name}={value!r} is not allowed, expected one of {', '.join(map(repr, allowed))}", path=name
                )
        if signal is not None and (
            not isinstance(signal, tuple) or len(signal) != 2 or not hasattr(signal[0], "check")
        ):
            raise BadValue(f"signal={signal!r} is not allowed, expected (a Signal, its payload)", path="signal")
        if id is not None and (not isinstance(id, str) or not id.strip()):
            raise BadValue(
                f"id={id!r:.80} is not allowed, expected a non-empty str or None; write id=str(...)", path="id"
            )
        labels.check_text(id or "", "id")
        labels.check_routing(queue, priority)
        return Starter(
            self,
            StartOptions(
                key=identity.check_key(key),
                queue=queue,
                priority=priority,
                start_delay=seconds_of(start_delay, "start_delay", minimum=0),
                execution_timeout=None
                if execution_timeout is None
                else seconds_of(execution_timeout, "execution_timeout", minimum=0.001),
                attributes=plain(attributes, "attributes"),
                memo=plain(memo, "memo"),
                subject=subject,
                signal=signal,
                conflict=conflict,
                reuse=reuse,
                parent_close=parent_close,
                id=id,
            ),
        )

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]:
        """The same as ``start``, in Celery's word."""
        return self.start(*args, **kwargs)

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> WorkflowHandle[R]:
        """The same as ``start``, in Celery's form.

        ``countdown``, ``eta``, ``task_id``, ``queue`` and ``priority`` are known; any other is a ``BadValue``.
        """
        return Starter(self, StartOptions()).apply_async(args, kwargs, **options)

    def start_many(self, calls: Iterable[Sequence[Any]]) -> list[WorkflowHandle[R]]:
        """Start one instance for each tuple of arguments, in few statements; handles in order.

        All or none, in the current transaction. ``BadValue`` for what is no tuple or list of arguments, ``TypeError``,
        ``NotSerializable``, ``PayloadTooLarge`` and ``KeyConflict`` as for ``start``, ``UsageError`` with
        ``using(key=...)``, which would be one instance.
        """
        return Starter(self, StartOptions()).start_many(calls)

    def get(self, *, key: str) -> WorkflowHandle[R]:
        """The open instance with this key, else the newest closed one; ``InstanceNotFound``."""
        handle: WorkflowHandle[R] = runtime.client().get(self.name, key)
        return handle

    async def aget(self, *, key: str) -> WorkflowHandle[R]:
        """``get`` for async code."""
        return await in_thread(self.get)(key=key)

    def _child(self, options: StartOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Command[R]:
        command: Command[R] = children.child_command(self, options, args, kwargs)
        return command

    def _start(self, made: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], options: StartOptions) -> list[Any]:
        handles: list[Any] = runtime.client().start(self, made, options)
        return handles


class Starter(Starts[P, R]):
    """A workflow with options; ``workflow.using(...)``."""

    def __init__(self, definition: WorkflowDefinition[P, R], options: StartOptions) -> None:
        self._definition = definition
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Command[R]:
        """In the body of another workflow: run as its child with these options."""
        if scope.active() is None:
            return self._definition(*args, **kwargs)  # which says what to use instead
        return self._definition._child(self._options, args, kwargs)

    def start(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]:
        """Start an instance with these options."""
        handle: WorkflowHandle[R] = self._definition._start([(args, kwargs)], self._options)[0]
        return handle

    delay = start

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> WorkflowHandle[R]:
        """Start in Celery's form; see ``WorkflowDefinition.apply_async``."""
        if isinstance(args, (str, bytes)) or not isinstance(args, Iterable):
            raise BadValue(f"apply_async takes a tuple of arguments such as (1,), got {args!r:.80}", path="args")
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise BadValue(f"apply_async takes kwargs as a dict, got {kwargs!r:.80}", path="kwargs")
        handle: WorkflowHandle[R] = self._definition._start(
            [(tuple(args), dict(kwargs or {}))], from_celery(self._options, options)
        )[0]
        return handle

    def start_many(self, calls: Iterable[Sequence[Any]]) -> list[WorkflowHandle[R]]:
        """Start one instance for each tuple of arguments."""
        made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        if isinstance(calls, (str, bytes)) or not isinstance(calls, Iterable):
            raise BadValue(
                f"start_many takes tuples of arguments such as [(1,), (2,)], got {calls!r:.80}", path="calls"
            )
        for args in calls:
            if isinstance(args, (str, bytes)) or not isinstance(args, (list, tuple)):
                raise BadValue(
                    f"start_many takes tuples of arguments such as [(1,), (2,)], got {args!r:.80}",
                    path=f"[{len(made)}]",
                )
            made.append((tuple(args), {}))
        if self._options.key is not None and len(made) > 1:
            raise UsageError(
                "start_many with one key= would start one instance; give @workflow(key=...) to make keys of arguments"
            )
        handles: list[WorkflowHandle[R]] = self._definition._start(made, self._options)
        return handles


@overload
def workflow(body: Callable[P, Generator[Any, Any, R]], /) -> WorkflowDefinition[P, R]: ...
@overload
def workflow(body: Callable[P, R], /) -> WorkflowDefinition[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: int = 1,
    key: Callable[..., Any] | None = None,
    execution_timeout: Duration | None = None,
    expected: Duration | None = None,
    fails_on: Iterable[type[BaseException]] | type[BaseException] = (),
    redact: Iterable[str] = (),
    queue: str | None = None,
    priority: int | None = None,
) -> _WorkflowDecorator: ...
def workflow(body: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Make a generator function a workflow. A bad option is a ``BadValue`` here, at import.

    ``name``: what history stores, by default module.function. ``version`` is pinned per instance: several bodies may
    register one name with different versions, new instances take the highest. ``key``: callable of the arguments giving
    the business key. ``expected``: longer open than this counts as stuck. ``fails_on``: further exception types that
    mean "this workflow failed"; anything else that leaves the body, but ``WorkflowError``, is taken for a bug and
    blocks the instance. ``redact``: argument names never shown.
    ``execution_timeout``: of its whole life, thrown like a cancel; it ends FAILED with ``WorkflowTimedOut``. Both
    durations are timedelta or seconds. ``queue``, ``priority``: Celery's, where its turns run.
    """
    if body is None:
        checked = workflow_options(options)
        return lambda function: _make(function, name, checked)
    if name is not None or options:
        raise UsageError("@workflow takes either the function or options by keyword, not both")
    return _make(body, None, WorkflowOptions())


class _WorkflowDecorator:
    """What ``@workflow(...)`` returns, for type checkers."""

    @overload
    def __call__(self, body: Callable[P, Generator[Any, Any, R]], /) -> WorkflowDefinition[P, R]: ...
    @overload
    def __call__(self, body: Callable[P, R], /) -> WorkflowDefinition[P, R]: ...
    def __call__(self, body: Any, /) -> Any:
        raise NotImplementedError  # pragma: no cover - typing only


def _make(body: Any, name: str | None, options: WorkflowOptions) -> WorkflowDefinition[Any, Any]:
    if isinstance(body, WorkflowDefinition) or hasattr(body, "apply_async"):
        raise UsageError(
            f"@workflow over {body!r}, which is a task or workflow already; put it on the plain generator function"
        )
    if not inspect.isroutine(body):
        raise BadValue(f"@workflow needs a function, got {body!r:.80}", path="body")
    if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body):
        raise UsageError(
            f"@workflow over the async def {body.__qualname__}: a body is a plain generator (steps may be async)"
        )
    name = labels.check_name(name, f"{body.__module__}.{body.__name__}", NAME_LENGTH, "workflow")
    made: WorkflowDefinition[Any, Any] = WorkflowDefinition(body, name, options)
    registry.add_workflow(made)
    return made
