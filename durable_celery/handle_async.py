"""The twins of a handle: ``await handle.asignal(...)`` for each method, ``await handle.astatus()`` for each attribute.

They are made from the class, so a method of the handle has its twin from the start; the declarations here are for type
checkers, and a test holds the two lists together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from durable_celery.twins import in_thread

if TYPE_CHECKING:
    from durable_celery.handle import WorkflowHandle
    from durable_celery.outcomes import HistoryEntry

R = TypeVar("R")
C = TypeVar("C", bound=type)


class HandleTwins(Generic[R]):
    """What type checkers know of the twins."""

    __slots__ = ()

    if TYPE_CHECKING:

        async def arun_id(self) -> str: ...
        async def akey(self) -> str | None: ...
        async def astatus(self) -> str: ...
        async def awaiting_for(self) -> str: ...
        async def aresult(self, timeout: float | timedelta | None = None) -> R: ...
        async def asignal(self, name: str, payload: Any = None, signal_id: str | None = None) -> None: ...
        async def aquery(self, name: str, *args: Any) -> Any: ...
        async def aupdate(
            self,
            name: str,
            *args: Any,
            timeout: float | timedelta | None = None,
            update_id: str | None = None,
            wait: bool = True,
        ) -> Any: ...
        async def acancel(self, reason: str = "") -> str: ...
        async def aterminate(self, reason: str = "") -> str: ...
        async def apause(self, reason: str = "") -> None: ...
        async def aresume(self) -> None: ...
        async def aretry(self) -> None: ...
        async def askip(self, position: str, result: Any = None) -> None: ...
        async def aretry_step(self, position: str) -> None: ...
        async def afork(self, position: str) -> WorkflowHandle[R]: ...
        async def acomplete_step(self, position: str, result: Any = None) -> None: ...
        async def afail_step(self, position: str, error: BaseException | str = "failed from outside") -> None: ...
        async def ahistory(self, of: str = "", start: int = 0, limit: int | None = None) -> list[HistoryEntry]: ...


def with_twins(cls: C) -> C:
    """Give each public method and property of the class its twin, but where it has one of its own."""
    for name, what in list(vars(cls).items()):
        if name.startswith("_") or f"a{name}" in vars(cls):
            continue
        if isinstance(what, property) and what.fget is not None:
            setattr(cls, f"a{name}", _twin(f"a{name}", name, what.fget))
        elif inspect.isfunction(what) and not inspect.iscoroutinefunction(what):
            setattr(cls, f"a{name}", _twin(f"a{name}", name, what))
    return cls


def _twin(twin_name: str, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    async def twin(*args: Any, **kwargs: Any) -> Any:
        return await in_thread(call)(*args, **kwargs)

    twin.__name__ = twin_name
    twin.__qualname__ = f"WorkflowHandle.{twin_name}"
    twin.__doc__ = f"``{name}`` for async code."
    twin.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
    return twin
