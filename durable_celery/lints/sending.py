"""Sending Celery tasks past the engine. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from durable_celery.lints.code import Code
from durable_celery.lints.finding import Hit

METHODS = ("delay", "apply_async", "delay_on_commit", "apply_async_on_commit", "send_task", "signature_from_request")
CANVASES = ("chord", "group", "chain", "chunks", "xmap", "xstarmap", "signature")


def sending(code: Code) -> Iterator[Hit]:
    """``task.delay(...)`` and its like, and a canvas that is called."""
    for call in code.calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS:
            yield Hit(node=call, what=f"{ast.unparse(call.func)}(...)")
        elif isinstance(call.func, ast.Call) and _is_canvas(code, call.func):
            yield Hit(node=call, what=f"{ast.unparse(call.func.func)}(...)(...)")


def _is_canvas(code: Code, call: ast.Call) -> bool:
    names = [*(f"celery.{name}" for name in CANVASES), *(f"celery.canvas.{name}" for name in CANVASES)]
    return code.is_named(call.func, *names)
