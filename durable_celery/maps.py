"""``map_step``: one step over many items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

from durable_celery import payloads, runtime
from durable_celery.combinators import count_of
from durable_celery.core import scope
from durable_celery.core.commands import Command, GatherRules, StepTerms
from durable_celery.core.mapping import MapCommand
from durable_celery.errors import BadValue, StepFailed
from durable_celery.steps import Step

T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
R = TypeVar("R")


class Mapped(Protocol[T_contra, R_co]):
    """A step that can be called with one item."""

    def __call__(self, item: T_contra, /) -> Command[R_co]: ...
    def terms(self) -> StepTerms: ...


class Rows(Protocol):
    """A Django queryset, as far as it matters here."""

    @property
    def query(self) -> Any: ...
    @property
    def model(self) -> Any: ...


@overload
def map_step(
    step: Mapped[Any, R], items: Rows, limit: int | None = None, tolerate: Literal[0] = 0
) -> Command[tuple[R, ...]]: ...
@overload
def map_step(
    step: Mapped[T, R], items: Iterable[T], limit: int | None = None, tolerate: Literal[0] = 0
) -> Command[tuple[R, ...]]: ...
@overload
def map_step(
    step: Mapped[Any, R], items: Rows, limit: int | None = None, *, tolerate: int
) -> Command[tuple[R | StepFailed, ...]]: ...
@overload
def map_step(
    step: Mapped[T, R], items: Iterable[T], limit: int | None = None, *, tolerate: int
) -> Command[tuple[R | StepFailed, ...]]: ...
def map_step(step: Any, items: Any, limit: int | None = None, tolerate: int = 0) -> Command[Any]:
    """Run a step once for each item, side by side; a tuple of the results in order of the items. No item: ``()``.

    As ``gather`` of as many calls, but made for thousands: the members are rows apart from the journal, written, read
    and shown in pages, so the run stays as small as with one step, and they do not count against ``HISTORY_LIMIT``.

    ``step`` is called with the item alone. ``items`` is an iterable, whose values are encoded at the call
    (``NotSerializable`` names the index of one that cannot be), or a Django queryset, on whatever database: then the
    step gets primary keys, in their order, read in pages when the turn is committed; the body itself asks the database
    nothing. A queryset that is sliced, combined, or ordered otherwise is a ``BadValue``.

    Waits until every member has ended; then the error of the lowest failed position is raised, with ``.results`` and
    ``.errors`` of all members. ``limit``: at most so many run at once. After a failure no new one starts.
    ``tolerate``: up to so many failures stand as their exceptions (``StepFailed``) and stop nothing. Of all failures
    but the lowest the traceback is kept on the member's own row only.

    Errors at the call: ``TypeError`` for a step that cannot be called with one item, ``BadValue`` for what is no step
    and for what cannot be iterated in an order that replay knows. Inspired by the map of AWS's durable
    functions and of Step Functions.
    """
    scope.required("map_step", "call the step's body for each item with step.call(item)")
    if not isinstance(step, Step):
        fix = "decorate the function with @step" if callable(step) else "pass the step itself, then the items"
        raise BadValue(f"map_step takes a step, got {type(step).__name__} {step!r:.80}; {fix}", path="step")
    _check_arity(step)
    rules = GatherRules(limit=count_of("limit", limit, 1, None), tolerate=count_of("tolerate", tolerate, 0, None) or 0)
    is_queryset = hasattr(items, "query") and hasattr(items, "model")
    return MapCommand(
        name=step.name,
        terms=step.terms(),
        queue=step.options.queue or "",
        rules=rules,
        calls=None if is_queryset else _calls(step.name, items),
        source=runtime.current().store.keys_of(items) if is_queryset else None,
    )


def _check_arity(step: Step[Any, Any]) -> None:
    try:
        step.signature.bind(None)
    except TypeError as error:
        raise TypeError(f"map_step calls {step.name}{step.signature} with one item: {error}") from None


def _calls(name: str, items: Any) -> Sequence[str]:
    if isinstance(items, (str, bytes, set, frozenset)) or not hasattr(items, "__iter__"):
        fix = {
            "str": "to go through its characters pass list(...)",
            "bytes": "to go through its bytes pass list(...)",
            "set": "its order differs between processes: pass sorted(...)",
            "frozenset": "its order differs between processes: pass sorted(...)",
        }.get(type(items).__name__, "pass a list, or Model.objects.all() of a manager")
        raise BadValue(
            f"map_step takes an iterable or a queryset, got {type(items).__name__} {items!r:.80}; {fix}", path="items"
        )
    settings = runtime.settings()
    return tuple(
        f"[[{payloads.encode(item, settings, root=f'item [{index}] of map_step({name})')}],{{}}]"
        for index, item in enumerate(items)
    )
