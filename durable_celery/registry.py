"""The steps and workflows this process knows, by name (and version). Filled by the decorators, read by everyone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from durable_celery.errors import UsageError, WorkflowNotFound

if TYPE_CHECKING:
    from typing import TypeAlias

    from durable_celery.steps import Step
    from durable_celery.workflows import WorkflowDefinition

    Definition: TypeAlias = Step[Any, Any] | WorkflowDefinition[Any, Any]


class Registry:
    """Definitions by name.

    Registering the same place in the code again (a reload) replaces; another place is refused.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._steps: dict[str, Step[Any, Any]] = {}
        self._workflows: dict[tuple[str, int], WorkflowDefinition[Any, Any]] = {}
        self._listeners: list[Callable[[Definition], None]] = []

    @property
    def steps(self) -> Mapping[str, Step[Any, Any]]:
        """Every step by name."""
        return self._steps

    @property
    def workflows(self) -> Mapping[tuple[str, int], WorkflowDefinition[Any, Any]]:
        """Every workflow by name and version."""
        return self._workflows

    def add_step(self, step: Step[Any, Any]) -> None:
        """Register a step; ``UsageError`` if another function or a workflow has the name."""
        with self._lock:
            other = self._steps.get(step.name)
            if other is not None and _place(other.body) != _place(step.body):
                raise _taken("step", step.name, other.body, step.body)
            if any(name == step.name for name, _ in self._workflows):
                raise UsageError(f"the step name {step.name!r} is a workflow's already; give one of them another name=")
            self._steps[step.name] = step
            self._tell(step)

    def add_workflow(self, workflow: WorkflowDefinition[Any, Any]) -> None:
        """Register a body under its name and version; ``UsageError`` if another body has them."""
        with self._lock:
            place = (workflow.name, workflow.version)
            other = self._workflows.get(place)
            if other is not None and _place(other.body) != _place(workflow.body):
                raise _taken(f"workflow version {workflow.version}", workflow.name, other.body, workflow.body)
            if workflow.name in self._steps:
                raise UsageError(
                    f"the workflow name {workflow.name!r} is a step's already; give one of them another name="
                )
            self._workflows[place] = workflow
            self._tell(workflow)

    def workflow(self, name: str, version: int) -> WorkflowDefinition[Any, Any]:
        """The body of that version; ``WorkflowNotFound`` says what this process knows."""
        found = self._workflows.get((name, version))
        if found is None:
            known = sorted(v for n, v in self._workflows if n == name)
            has = f"it knows versions {known}" if known else "it knows no workflow of that name"
            raise WorkflowNotFound(
                f"workflow {name!r} version {version} is not known to this process; {has}. "
                "Deploy the code that has it, or check that its module is imported (workflows.py of an installed app)",
                name=name,
                version=version,
            )
        return found

    def newest(self, name: str) -> WorkflowDefinition[Any, Any]:
        """The body new instances take: that of the highest version."""
        versions = [version for n, version in self._workflows if n == name]
        return self.workflow(name, max(versions, default=1))

    def on_register(self, listener: Callable[[Definition], None]) -> None:
        """Call ``listener`` for every definition there is and every later one."""
        with self._lock:
            self._listeners.append(listener)
            definitions: list[Definition] = [*self._steps.values(), *self._workflows.values()]
            for definition in definitions:
                listener(definition)

    def fingerprints(self) -> dict[tuple[str, int], str]:
        """The fingerprint of each body."""
        return {place: workflow.fingerprint for place, workflow in self._workflows.items()}

    def _tell(self, definition: Definition) -> None:
        for listener in self._listeners:
            listener(definition)


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    """Where it is written: a module that is imported again may define it again. All lambdas there have one name."""
    name = function.__qualname__
    return function.__module__, f"{name} in line {_line(function)}" if name.endswith("<lambda>") else name


def _line(function: Callable[..., Any]) -> int:
    code = getattr(function, "__code__", None)
    return getattr(code, "co_firstlineno", 0)


def _taken(what: str, name: str, old: Callable[..., Any], new: Callable[..., Any]) -> UsageError:
    return UsageError(
        f"the name {name!r} is taken: {what} of {'.'.join(_place(old))}, now also of {'.'.join(_place(new))}; "
        "give one of them another name="
    )


registry = Registry()
