"""Changing the code of a workflow while instances of it are open: ``patched``, ``deprecate_patch``, ``get_version``.

None of them takes a position in history, and none is yielded. The names and the idea are Temporal's.
"""

from __future__ import annotations

from typing import Any

from durable_celery.core import labels, scope
from durable_celery.core.patches import DEFAULT_VERSION as DEFAULT_VERSION
from durable_celery.errors import BadValue

ID_LENGTH = 200  # characters
INSTEAD = "code outside needs no guard: just run the new way"


def patched(id: str) -> bool:
    """Whether this run goes the new way: ``if patched("2026-11-insured"): yield from insure(parcel)``.

    ``id`` is a text of up to 200 characters that names the change, never used for another one. The first evaluation
    decides for the run's life: True in a turn newer than the last committed one, where the new way is recorded; False
    where the run has passed this place before by code without the guard. A second call with the same ``id`` gives the
    same answer, wherever it stands. A bad id is a ``BadValue``.

    Remove it in three deploys: ``if patched(id): new, else: old``; once no run of the old way is open,
    ``deprecate_patch(id)`` and the new way alone; once no run of the first deploy is open, nothing. The idea is
    Temporal's.
    """
    checked = _checked(id, "patched")
    return scope.required(f"patched({id!r})", INSTEAD).patches.patched(checked)


def deprecate_patch(id: str) -> None:
    """Say that the old way of ``patched(id)`` is gone, while runs that took the new one may be open.

    It records what ``patched`` would, so that workers of the deploy before, which still ask, go the same way. A run
    that went the old way is not refused here: it is BLOCKED where its journal and the code part. The idea is
    Temporal's.
    """
    checked = _checked(id, "deprecate_patch")
    scope.required(f"deprecate_patch({id!r})", INSTEAD).patches.patched(checked)


def get_version(id: str, minimum: int, maximum: int) -> int:
    """Which version of a change this run follows; ``patched`` with more than two ways.

    ``version = get_version("tax", DEFAULT_VERSION, 2)``: ``minimum`` is the oldest version this code still has
    (``DEFAULT_VERSION``, -1, stands for the code before the first change), ``maximum`` its newest; both count. The
    first evaluation decides for the run's life: ``maximum`` in a turn newer than the last committed one, where it is
    recorded, else ``minimum``. A recorded version that is not between the two is a ``ReplayError`` saying which code is
    needed: the run is left to workers that have it, else BLOCKED, and no ``except`` of the body can hold that up. Bad
    arguments are a ``BadValue``. The idea is Temporal's.
    """
    checked = _checked(id, "get_version")
    for name, value in (("minimum", minimum), ("maximum", maximum)):
        if isinstance(value, bool) or not isinstance(value, int) or value < DEFAULT_VERSION:
            raise BadValue(
                f"get_version({id!r}) has {name}={value!r}, expected an int from {DEFAULT_VERSION} (DEFAULT_VERSION)",
                path=name,
            )
    if minimum > maximum:
        raise BadValue(f"get_version({id!r}) has minimum={minimum} over maximum={maximum}; swap them", path="minimum")
    return scope.required(f"get_version({id!r})", INSTEAD).patches.version(checked, minimum, maximum)


def _checked(id: Any, helper: str) -> str:
    if not isinstance(id, str) or not id.strip():
        raise BadValue(f"{helper} needs a text that names the change, got {type(id).__name__} {id!r:.80}", path="id")
    if len(id) > ID_LENGTH:
        raise BadValue(f"the id of {helper} has {len(id)} characters, at most {ID_LENGTH} are allowed", path="id")
    return labels.check_text(id, "id")
