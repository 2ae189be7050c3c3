"""What may be shown of a call: the names of its parameters, and which of them are secret."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from durable_celery.codec import redact
from durable_celery.codec.redaction import hidden_names
from durable_celery.core import journal
from durable_celery.registry import registry
from durable_celery.runtime import settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """``parameters`` in order (``*rest`` for further positions), None where this process does not know the definition.

    ``hidden`` are the names never shown: the definition's ``redact`` and the project's ``REDACT``.
    """

    parameters: Sequence[str] | None
    hidden: Sequence[str]
    keywords: Sequence[str] = ()  # parameters that have no position

    @property
    def has_secrets(self) -> bool:
        """Whether one of the parameters is secret, or may be."""
        return self.parameters is None or any(map(hidden_names(self.hidden), (*self.parameters, *self.keywords)))

    def __or__(self, other: Disclosure) -> Disclosure:
        """The parameters of this one, hidden by the names of both: a workflow's secret stays one in its steps."""
        return replace(self, hidden=(*self.hidden, *other.hidden))


def of_workflow(name: str, version: int) -> Disclosure:
    """Of that version; of any other version where this process lacks it, for the parameters are likely the same."""
    found = registry.workflows.get((name, version))
    if found is None:
        found = next((workflow for (other, _), workflow in registry.workflows.items() if other == name), None)
    return _of(found)


def of_step(name: str) -> Disclosure:
    return _of(registry.steps.get(name))


def of_child(name: str) -> Disclosure:
    """Of a child, whose version its row does not tell at a glance: the newest parameters, the secrets of all."""
    versions = sorted(version for other, version in registry.workflows if other == name)
    found = [_of(registry.workflows[name, version]) for version in versions] or [_of(None)]
    return replace(found[-1], hidden=tuple(name for each in found for name in each.hidden))


def of_row(kind: str, name: str, workflow: Disclosure) -> Disclosure:
    """Of a row: what is a call has arguments by name, everything else has values only."""
    if kind == journal.CHILD:
        return of_child(name) | workflow
    if kind in journal.RUNS:
        return of_step(name) | workflow
    return of_values() | workflow


def of_function(function: Callable[..., Any]) -> Disclosure:
    """Of the function of an existing task, which has no ``redact`` of its own."""
    try:
        return _of_signature(inspect.signature(function), tuple(settings().redact))
    except (TypeError, ValueError):
        return of_values()


def of_values() -> Disclosure:
    """Of what is no call: payloads, attributes."""
    return Disclosure(parameters=(), hidden=tuple(settings().redact))


def redacted(data: dict[str, Any], disclosure: Disclosure) -> dict[str, Any]:
    """Named plain data, such as attributes, without its secrets."""
    shown = redact(data, disclosure.hidden)
    return shown if isinstance(shown, dict) else {}


def _of(definition: Any) -> Disclosure:
    hidden = tuple(settings().redact)
    if definition is None:
        return Disclosure(parameters=None, hidden=hidden)
    return _of_signature(definition.signature, (*definition.options.redact, *hidden))


def _of_signature(signature: inspect.Signature, hidden: Sequence[str]) -> Disclosure:
    named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    positions = [each for each in named if each.kind is not each.KEYWORD_ONLY]
    return Disclosure(
        parameters=tuple(f"*{each.name}" if each.kind is each.VAR_POSITIONAL else each.name for each in positions),
        keywords=tuple(each.name for each in named if each.kind is each.KEYWORD_ONLY),
        hidden=hidden,
    )
