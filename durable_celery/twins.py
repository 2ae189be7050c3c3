"""Twins for async code: the same call in the thread that Django keeps for its database work."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

if TYPE_CHECKING:
    from durable_celery.handle import WorkflowHandle

P = ParamSpec("P")
R = TypeVar("R")


def in_thread(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """``call`` for async code. It runs where Django runs its own database work, so it uses the same connection."""
    twin: Callable[P, Coroutine[Any, Any, R]] = sync_to_async(call, thread_sensitive=True)
    return twin


class Starts(Generic[P, R]):
    """The twins of whatever starts instances: ``workflow`` and ``workflow.using(...)``."""

    if TYPE_CHECKING:

        def start(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]: ...
        def apply_async(
            self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
        ) -> WorkflowHandle[R]: ...
        def start_many(self, calls: Iterable[Sequence[Any]]) -> list[WorkflowHandle[R]]: ...

    async def astart(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]:
        """``start`` for async code."""
        return await in_thread(self.start)(*args, **kwargs)

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]:
        """``delay`` for async code."""
        return await in_thread(self.start)(*args, **kwargs)

    async def aapply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> WorkflowHandle[R]:
        """``apply_async`` for async code."""
        return await in_thread(self.apply_async)(args, kwargs, **options)

    async def astart_many(self, calls: Iterable[Sequence[Any]]) -> list[WorkflowHandle[R]]:
        """``start_many`` for async code."""
        return await in_thread(self.start_many)(calls)
