"""What to say about a value that is refused: what it is, and what to pass in its place."""

from __future__ import annotations

import types
from typing import Any

from durable_celery.codec.refusal import Refused

# By the name of a class among a value's classes, so that nothing has to be imported. The first that fits is said.
_BY_CLASS: tuple[tuple[str, str, str], ...] = (
    ("django.db.models.base.Model", "a Django model instance", "Pass its primary key, and load it inside the step"),
    (
        "django.db.models.query.QuerySet",
        "a Django queryset",
        "Pass the primary keys: list(queryset.values_list('pk', flat=True))",
    ),
    ("django.db.models.manager.BaseManager", "a Django model manager", "Use the manager inside the step"),
    (
        "django.utils.functional.LazyObject",
        "a lazy object of Django",
        "Pass what the step needs of it; of request.user the primary key",
    ),
    ("django.core.files.base.File", "a Django file", "Pass its name in the storage, and open it inside the step"),
    ("django.http.request.HttpRequest", "a Django request", "Pass what the step needs of it"),
    ("django.http.response.HttpResponseBase", "a Django response", "Pass what the step needs of it"),
    ("django.http.request.QueryDict", "a QueryDict", "Pass value.dict(), or dict(value.lists())"),
    ("django.forms.forms.BaseForm", "a Django form", "Pass form.cleaned_data, without model instances"),
    ("celery.canvas.Signature", "a Celery signature that has not run", "Yield it first, and pass the result on"),
    ("celery.result.ResultBase", "a Celery result", "Yield the signature in the workflow, and pass the value on"),
    ("celery.local.Proxy", "a Celery task", "Pass its name, or yield task.s(...) in the workflow"),
    ("celery.app.task.Task", "a Celery task", "Pass its name, or yield task.s(...) in the workflow"),
    (
        "types.GeneratorType",
        "a generator that has not run",
        "If it is part of the workflow, use yield from; else list(value)",
    ),
    ("types.CoroutineType", "a coroutine that has not run", "Await it, and pass the result on"),
    ("types.AsyncGeneratorType", "an asynchronous generator", "Collect what it yields into a list"),
    ("types.ModuleType", "a module", "Pass its name"),
    ("_io._IOBase", "an open file", "Pass its path, and open it inside the step"),
    ("_thread.lock", "a lock", "Create it where it is used; it means nothing in another process"),
    ("_thread.RLock", "a lock", "Create it where it is used; it means nothing in another process"),
    ("threading.Thread", "a thread", "Create it where it is used; it means nothing in another process"),
    ("_socket.socket", "a socket", "Open it inside the step"),
    ("logging.Logger", "a logger", "Get it where it is used: get_logger()"),
    ("builtins.complex", "a complex number", "Pass (value.real, value.imag)"),
    ("builtins.range", "a range", "Pass list(value)"),
    ("builtins.memoryview", "a memoryview", "Pass bytes(value)"),
    ("builtins.dict_keys", "a view of a dict", "Pass list(value)"),
    ("builtins.dict_values", "a view of a dict", "Pass list(value)"),
    ("builtins.dict_items", "a view of a dict", "Pass list(value)"),
    ("builtins.mappingproxy", "a read-only view of a dict", "Pass dict(value)"),
    ("numpy.ndarray", "a numpy array", "Pass value.tolist()"),
    ("numpy.generic", "a numpy number", "Pass value.item()"),
    ("builtins.BaseException", "an exception", "Raise it, or pass str(error)"),
    ("pydantic.v1.main.BaseModel", "a model of pydantic 1", "Pass value.dict(), or use pydantic 2"),
)

# Modules whose class names add nothing for a reader.
_UNSAID = ("builtins", "_io", "_thread", "celery.local")

_PLAIN = (bool, int, float, str, bytes, list, dict, tuple, set, frozenset)


def is_command(kind: type) -> bool:
    """Whether values of this class stand for work of a workflow that has not run."""
    return not _own_names(kind).isdisjoint(("Command", "Handle"))


def refusal(value: Any) -> Refused:
    """The refusal of a value that no part of the codec knows.

    Asks the class alone: ``isinstance`` would evaluate a lazy object, which may query the database.
    """
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if issubclass(kind, type):
        return Refused(f"it is a class, {value.__module__}.{value.__qualname__}", "Pass its name")
    for says, what, hint in _matching(kind):
        return Refused(
            f"it is {what}" + (f" ({name})" if name != says and kind.__module__ not in _UNSAID else ""), hint
        )
    return _own(kind, name) or _function(value) or _by_shape(value, kind, name)


def _matching(kind: type) -> list[tuple[str, str, str]]:
    names = {f"{parent.__module__}.{parent.__name__}" for parent in kind.__mro__}
    names |= {
        f"types.{name}"
        for name in ("GeneratorType", "CoroutineType", "AsyncGeneratorType", "ModuleType")
        if issubclass(kind, getattr(types, name))
    }
    return [entry for entry in _BY_CLASS if entry[0] in names]


def _own(kind: type, name: str) -> Refused | None:
    """Things of this package that stand for work or for an instance, not for data."""
    own = _own_names(kind)
    if is_command(kind):
        return Refused(f"it is a command that has not run ({name})", "Yield it first, and pass the result on")
    if "WorkflowHandle" in own:
        return Refused(
            f"it is the handle of an instance ({name})", "Pass handle.id, and get_handle(id) where it is used"
        )
    if own:
        return Refused(f"it is a part of durable_celery ({name})", "Pass the data it was made from")
    return None


def _own_names(kind: type) -> set[str]:
    return {parent.__name__ for parent in kind.__mro__ if parent.__module__.partition(".")[0] == "durable_celery"}


def _function(value: Any) -> Refused | None:
    if not isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)) and type(
        value
    ).__qualname__ not in ("partial", "partialmethod"):
        return None
    name = getattr(value, "__qualname__", type(value).__qualname__)
    what = "a lambda" if name.endswith("<lambda>") else f"a function, {name}"
    return Refused(f"it is {what}", "Pass data that says what to do, and call the function inside the step")


def _by_shape(value: Any, kind: type, name: str) -> Refused:
    if hasattr(kind, "_meta") and hasattr(kind, "pk"):
        return Refused(f"it is a model instance ({name})", "Pass its primary key, and load it inside the step")
    for plain in _PLAIN:
        if issubclass(kind, plain):
            return Refused(
                f"it is a {name}, a subclass of {plain.__name__} that would not come back as such",
                f"Pass {plain.__name__}(value), or teach the type to the codec with register_type()",
            )
    if hasattr(kind, "__next__"):
        return Refused(f"it is an iterator ({name})", "Pass list(value)")
    return Refused(
        f"it is a {name}, which has no form in JSON",
        "Pass a data class, dict or list instead, or teach the type to the codec with register_type()",
    )
