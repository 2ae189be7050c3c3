"""A guard of the engine as a small exact edit that takes it away, and who should notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BOTH = ("sqlite+memory", "postgres+redis")
SERVERS = ("postgres+redis",)


class Moved(Exception):  # noqa: N818 - says what happened to the guard
    """The text of a guard is not where the table says, or is there twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """``old`` stands exactly once in ``path``; with ``new`` in its place the guard is gone.

    ``noticed_by``: the tests that should fail then. ``pairs``: the databases and brokers they run on; a guard that only
    servers need is tried on none but them.
    """

    name: str
    path: str
    old: str
    new: str
    noticed_by: Sequence[str]
    pairs: Sequence[str] = ("sqlite+memory",)


def without(guard: Guard, root: Path) -> str:
    """The text of the file without the guard; ``Moved`` if it cannot be taken away."""
    path = root / guard.path
    text = path.read_text(encoding="utf-8")
    found = text.count(guard.old)
    if found != 1:
        raise Moved(
            f"guard {guard.name!r}: its text is found {found} times in {guard.path}, expected once; correct the table "
            f"in tests/mutations/guards:\n{guard.old}"
        )
    changed = text.replace(guard.old, guard.new)
    compile(changed, str(path), "exec")
    return changed
