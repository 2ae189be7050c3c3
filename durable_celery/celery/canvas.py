"""Celery signatures as commands: what is known of a canvas before anything runs, and how its parts follow each other.

A signature is read once into a *plan* of plain parts, which refuses what has no durable form and names what to use
instead; a plan makes commands inside a running workflow. Rules of Celery's that hold here:
- What a member of a chain gets is the value before it, put before its own arguments, unless it is immutable.
- A group in a group counts as its members; an empty chain in one as nothing; an empty group in a chain is passed over.
- Options set on a group hold for its members, on a chain for its first, on a chord for its header and its body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from celery.canvas import Signature, _chain, chord, chunks, group, maybe_signature
from celery.utils.time import maybe_make_aware

from durable_celery import calls
from durable_celery.core import scope
from durable_celery.core.chaining import ChainCommand, GroupCommand
from durable_celery.core.commands import Command, StepCommand, StepTerms, TimerCommand
from durable_celery.core.retry import seconds_of
from durable_celery.errors import UsageError
from durable_celery.registry import registry

FIELDS = {"task", "args", "kwargs", "options"}  # of a signature as plain data
MARK = "durable_kind"  # class attribute of our own tasks

# Options with no meaning where nothing is published for the task, or no result is stored.
NO_MATTER = {
    "add_to_parent", "compression", "delivery_mode", "ignore_result", "reply_to", "retry", "retry_policy", "serializer",
}  # fmt: skip
TAKEN = {
    "countdown", "eta", "expires", "headers", "priority", "queue", "shadow", "soft_time_limit", "time_limit",
}  # fmt: skip
REFUSED = {
    "link": "a workflow waits for the value; yield the callback next: yield callback.s(value)",
    "link_error": "a workflow gets the error; write try/except StepFailed around the yield, the callback in it",
    "task_id": "a step has the same id on every attempt, made of instance and position; read it as self.request.id",
    "stamped_headers": "a step is found by its instance; set headers= instead, or attributes= on the instance",
    "exchange": "give queue=, or route the task's name in task_routes",
    "routing_key": "give queue=, or route the task's name in task_routes",
    "chord": "yield the whole chord",
    "chain": "yield the whole chain",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task with what the signature says about it."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    immutable: bool = False
    route: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Parts one after the other; ``args`` and ``kwargs`` go to the first."""

    parts: tuple[Plan, ...]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    immutable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Parts side by side. The lists of those in ``flat`` are spliced into the group's own."""

    parts: tuple[Plan, ...]
    flat: tuple[int, ...] = ()
    args: tuple[Any, ...] = ()


Plan = Task | Chain | Group


def is_canvas(thing: Any) -> bool:
    """Whether it is a signature, or one as plain data."""
    return isinstance(thing, Signature) or (isinstance(thing, dict) and thing.keys() >= FIELDS)


def command_of(app: Any, canvas: Any) -> Command[Any]:
    """The command a canvas stands for; inside a running workflow only. ``UsageError`` for what has no durable form."""
    return _Maker(app).make(plan_of(app, canvas), (), {})


# -- reading -----------------------------------------------------------------------------------------------------------


def plan_of(app: Any, canvas: Any, over: Mapping[str, Any] | None = None) -> Plan:
    """What a canvas consists of. ``over`` are options that hold against its own."""
    signature = maybe_signature(canvas, app=app)
    if not isinstance(signature, Signature):
        raise UsageError(f"a canvas is made of task signatures such as add.s(1, 2), not of {signature!r:.80}")
    options = {name: value for name, value in {**signature.options, **(over or {})}.items() if value is not None}
    _check_options(signature, options)
    if isinstance(signature, _chain):
        return _chain_plan(app, signature, options)
    if isinstance(signature, group):
        return _group_plan(app, list(signature.tasks), options, args=tuple(signature.args))
    if isinstance(signature, chord):
        return _chord_plan(app, signature, options)
    if signature.task == "celery.chunks":  # by name: a clone, or plain data, is of no class of its own
        parts = chunks(*(signature.kwargs[name] for name in ("task", "it", "n")), app=app).group()
        return _group_plan(app, list(parts.tasks), options)
    if signature.task in ("celery.map", "celery.starmap"):
        return _map_plan(signature, options)
    return _task_plan(app, signature, options)


def plain(canvas: Any) -> Any:
    """A canvas as plain data; what is not Celery's in it stays as it is."""
    if isinstance(canvas, dict):
        return {key: plain(value) for key, value in canvas.items()}
    if isinstance(canvas, tuple) and type(canvas) is tuple:
        return tuple(plain(value) for value in canvas)
    if isinstance(canvas, list):  # Celery's own lazy lists too
        return [plain(value) for value in canvas]
    return canvas


def _chain_plan(app: Any, signature: Any, options: Mapping[str, Any]) -> Chain:
    tasks = [maybe_signature(task, app=app) for task in signature.tasks]
    kept = [task for task in tasks if not (isinstance(task, group) and not list(task.tasks))]
    members = kept or tasks[:1]
    parts = tuple(plan_of(app, task, options if index == 0 else None) for index, task in enumerate(members))
    return Chain(parts=parts, args=tuple(signature.args), immutable=bool(signature.immutable))


def _group_plan(
    app: Any, tasks: Sequence[Any], options: Mapping[str, Any], *, args: tuple[Any, ...] = (), header: bool = False
) -> Group:
    parts: list[Plan] = []
    flat: list[int] = []
    for task in tasks:
        part = plan_of(app, task, options)
        if isinstance(part, Group) and not part.args:
            flat += [len(parts) + index for index in part.flat]
            parts += part.parts
        elif part != Chain(parts=()):
            parts.append(part)
    # What Celery splices: every list in the header of a chord, and that of a group's only member.
    if header or len(parts) == 1:
        flat = [index for index, part in enumerate(parts) if _gives_a_list(part)]
    return Group(parts=tuple(parts), flat=tuple(flat), args=args)


def _gives_a_list(part: Plan) -> bool:
    """Whether it is a chain or chord whose last part is a group."""
    return isinstance(part, Group) or (isinstance(part, Chain) and bool(part.parts) and _gives_a_list(part.parts[-1]))


def _chord_plan(app: Any, signature: Any, options: Mapping[str, Any]) -> Chain:
    if signature.body is None:
        raise UsageError(f"the chord {signature!r:.200} has no body; give it one, or yield its header as a group")
    header = signature.tasks.tasks if isinstance(signature.tasks, group) else signature.tasks
    delays = ("countdown", "eta")  # of a chord: when its header starts
    body = {name: value for name, value in options.items() if name not in delays}
    parts = (_group_plan(app, list(header), options, header=True), plan_of(app, signature.body, body))
    inner = dict(signature.kwargs.get("kwargs") or {})
    return Chain(parts=parts, args=tuple(signature.args), kwargs=inner, immutable=bool(signature.immutable))


def _map_plan(signature: Any, options: Mapping[str, Any]) -> Task:
    """``map`` and ``starmap`` are tasks of Celery's own, routed as the task they call in a loop."""
    task = signature.kwargs["task"]
    route = task["task"] if isinstance(task, Mapping) else getattr(task, "name", str(task))
    kwargs = {"task": plain(task), "it": list(signature.kwargs["it"])}
    return Task(name=signature.task, kwargs=kwargs, options=options, immutable=True, route=route)


def _task_plan(app: Any, signature: Any, options: Mapping[str, Any]) -> Task:
    name = signature.task
    if any(workflow == name for workflow, _ in registry.workflows):
        raise UsageError(
            f"{name} is a workflow; yield the call {name.rpartition('.')[2]}(...) instead of its signature"
        )
    task = app.tasks.get(name)
    if name not in registry.steps and task is not None:
        _check_task(name, task)
    return Task(
        name=name, args=tuple(plain(signature.args)), kwargs=plain(signature.kwargs), options=options,
        immutable=bool(signature.immutable),
    )  # fmt: skip


def _check_options(signature: Any, options: Mapping[str, Any]) -> None:
    for name, instead in REFUSED.items():
        if options.get(name):
            raise UsageError(f"{signature!r:.200} sets {name}=, which a workflow cannot keep; {instead}")
    unknown = sorted(options.keys() - NO_MATTER - TAKEN - REFUSED.keys())
    if unknown:
        raise UsageError(
            f"{signature!r:.200} sets {unknown[0]}=, which a workflow does not know; "
            f"it knows {', '.join(sorted(TAKEN))}"
        )


def _check_task(name: str, task: Any) -> None:
    if hasattr(type(task), MARK):
        raise UsageError(f"{name} is a task of the engine; it is no step of a workflow")
    if task.rate_limit:
        raise UsageError(
            f"task {name} has rate_limit={task.rate_limit!r}, which a worker keeps by the name of the message, and "
            "messages of workflows have another; make it a step: @step(rate_limit=...)"
        )


# -- making commands ---------------------------------------------------------------------------------------------------


class _Maker:
    """Makes the commands of one canvas."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def make(self, plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Command[Any]:
        """The command of a part that is given these arguments by what comes before it."""
        if isinstance(plan, Group):
            return GroupCommand([self.make(part, args + plan.args, kwargs) for part in plan.parts], plan.flat)
        if isinstance(plan, Chain):
            return self._chain(plan, args, kwargs)
        seconds = _delay(self.app, plan.options)
        if seconds is None:
            return self._step(plan, args, kwargs)
        return ChainCommand([lambda _: TimerCommand(seconds=seconds), lambda _: self._step(plan, args, kwargs)])

    def _chain(self, plan: Chain, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Command[Any]:
        first_args = plan.args if plan.immutable else args + plan.args
        first_kwargs = plan.kwargs if plan.immutable else {**plan.kwargs, **kwargs}
        if len(plan.parts) == 1:
            return self.make(plan.parts[0], first_args, first_kwargs)

        def first(part: Plan) -> Any:
            return lambda _: self.make(part, first_args, first_kwargs)

        def later(part: Plan) -> Any:
            return lambda value: self.make(part, (value,), {})

        return ChainCommand([first(part) if index == 0 else later(part) for index, part in enumerate(plan.parts)])

    def _step(self, plan: Task, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Command[Any]:
        args = plan.args if plan.immutable else args + plan.args
        kwargs = dict(plan.kwargs) if plan.immutable else {**plan.kwargs, **kwargs}
        step = registry.steps.get(plan.name)
        return _own_step(step, plan, args, kwargs) if step is not None else self._existing(plan, args, kwargs)

    def _existing(self, plan: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Command[Any]:
        task = self.app.tasks.get(plan.name)
        if task is not None and task.typing and hasattr(task, "__header__"):
            task.__header__(*args, **kwargs)  # a call it would refuse raises its TypeError here
        dump = getattr(task, "_dump_pydantic_arguments", None)
        if dump is not None:
            args, kwargs = dump(args, kwargs)
        command: StepCommand[Any] = StepCommand(
            name=plan.name, args="", terms=_terms(self.app, task, plan), queue=_queue(plan.options)
        )
        command.call_with(calls.encode_values(plan.name, tuple(args), dict(kwargs)))
        return command


def _own_step(step: Any, plan: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Command[Any]:
    """A step of ours, named by its signature: the same as the call."""
    for option in ("time_limit", "soft_time_limit"):
        if option in plan.options:
            raise UsageError(f"{plan.name} is a step: give using(start_to_close_timeout=...) instead of {option}=")
    options: dict[str, Any] = {name: plan.options[name] for name in ("queue", "priority") if name in plan.options}
    if "expires" in plan.options:
        options["schedule_to_start_timeout"] = _expires(None, plan.options["expires"])
    command: Command[Any] = (step.using(**options) if options else step)(*args, **kwargs)
    return command


def _terms(app: Any, task: Any, plan: Task) -> StepTerms:
    """The task's own limits and options as they are now, for the row."""
    given, own = plan.options, {} if task is None else task._get_exec_options()
    expires = given.get("expires", own.get("expires"))
    start_by = None if expires is None else _expires(app, expires)
    names = {name: given[name] for name in ("headers", "shadow") if given.get(name)}
    data = {
        "start_to_close": given.get("time_limit", own.get("time_limit")) or None,
        "soft": given.get("soft_time_limit", own.get("soft_time_limit")) or None,
        "schedule_to_start": start_by,
        "priority": given.get("priority", own.get("priority")),
        "task": {"route": plan.route or plan.name, **names},
    }
    try:
        text = json.dumps({k: v for k, v in data.items() if v is not None}, separators=(",", ":"))
    except TypeError as error:
        raise UsageError(f"headers= of {plan.name} must be plain JSON: {error}") from None
    return StepTerms(text=text, schedule_to_start=start_by)


def _queue(options: Mapping[str, Any]) -> str:
    queue = options.get("queue")
    return "" if queue is None else str(getattr(queue, "name", queue))


def _delay(app: Any, options: Mapping[str, Any]) -> float | None:
    """Seconds to wait first; of both, Celery takes the countdown."""
    if "countdown" in options:
        return seconds_of(options["countdown"], "countdown", minimum=0)
    return _until(app, options["eta"]) if "eta" in options else None


def _expires(app: Any, expires: Any) -> float:
    return _until(app, expires) if isinstance(expires, datetime) else seconds_of(expires, "expires", minimum=0)


def _until(app: Any, when: datetime) -> float:
    """Seconds from the turn that asks."""
    aware = maybe_make_aware(when, getattr(app, "timezone", timezone.utc))
    now = scope.required("a canvas", "yield it from a workflow").now
    return max((aware - now).total_seconds(), 0.0)
