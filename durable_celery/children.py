"""A workflow called in the body of another: its command, with the terms a child is started on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from durable_celery import calls, payloads, runtime
from durable_celery.core import identity
from durable_celery.core.children import ChildCommand, ChildTerms
from durable_celery.errors import BadValue, UsageError
from durable_celery.registry import registry

if TYPE_CHECKING:
    from durable_celery.options import StartOptions
    from durable_celery.workflows import WorkflowDefinition


def child_command(
    definition: WorkflowDefinition[Any, Any], options: StartOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ChildCommand[Any]:
    """The command for one child; the version new instances take. A bad argument or option raises here."""
    newest = registry.newest(definition.name)
    text = calls.encode_call(newest.signature, newest.name, args, kwargs)
    return ChildCommand(name=newest.name, args=text, terms=_terms(newest, options, args, kwargs))


def _terms(
    newest: WorkflowDefinition[Any, Any], options: StartOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ChildTerms:
    if options.id is not None:
        raise UsageError(f"using(id=...) is for starts; a child of {newest.name} has its parent's id and its position")
    own = newest.options
    lasts = options.execution_timeout if options.execution_timeout is not None else own.execution_timeout
    return ChildTerms(
        version=newest.version,
        key=options.key if options.key is not None else _key(newest, args, kwargs),
        conflict="terminate_existing" if options.conflict == "terminate_existing" else "fail",
        reuse=options.reuse,
        parent_close=options.parent_close,
        queue=options.queue or own.queue or "",
        priority=options.priority if options.priority is not None else own.priority,
        start_delay=options.start_delay,
        execution_timeout=lasts,
        expected=own.expected,
        attributes=options.attributes or {},
        memo=options.memo or {},
        subject=None if options.subject is None else _subject(options.subject),
        signal=None if options.signal is None else _message(options.signal),
    )


def _key(definition: WorkflowDefinition[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    make = definition.options.key
    return None if make is None else identity.check_key(make(*args, **kwargs))


def _subject(subject: Any) -> tuple[str, str]:
    """The label and primary key of a model instance, without a look at the database; of such a pair, the pair."""
    if isinstance(subject, (tuple, list)) and len(subject) == 2 and all(isinstance(part, str) for part in subject):
        return subject[0].lower(), subject[1]
    meta = getattr(subject, "_meta", None)
    if meta is None or isinstance(subject, type) or subject.pk is None:
        raise BadValue(
            f"subject must be a saved model instance or a (label, pk) pair of texts, got {subject!r:.80}",
            path="subject",
        )
    return meta.concrete_model._meta.label_lower, str(subject.pk)


def _message(given: tuple[Any, Any]) -> tuple[str, str]:
    signal, payload = given
    signal.check(payload)
    text = payloads.encode(payload, runtime.settings(), root=f"payload of signal {signal.name!r}")
    return signal.name, text
