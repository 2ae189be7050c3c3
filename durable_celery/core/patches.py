"""Changed code and runs that began before the change: which of two ways a run goes, decided once. Pure.

Rules of this file:
- The first evaluation of an id decides for the run's life. In a turn that is new it takes the new way and records that;
  while replaying, a run without a record has gone the old way before, and goes it again.
- The old way leaves no record: replay reaches the same place without one each time.
- A record this code cannot follow is never thrown away by the body: whatever catches the error, the run is blocked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from durable_celery.errors import ReplayError

if TYPE_CHECKING:
    from durable_celery.core.run import Run

DEFAULT_VERSION = -1  # the code before the first change
PATCH, VERSION = "patch:", "version:"


class Patches:
    """What the ids of one run were decided to be."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._old: dict[str, Any] = {}  # decided by this replay, without a record
        self._refusal: ReplayError | None = None

    def patched(self, patch_id: str) -> bool:
        """True on the new way, False on the old one."""
        return bool(self._decide(f"{PATCH}{patch_id}", new=True, old=False))

    def version(self, change_id: str, minimum: int, maximum: int) -> int:
        """The version of this change that the run follows; ``ReplayError`` if this code has it no more, or not yet."""
        version = self._decide(f"{VERSION}{change_id}", new=maximum, old=minimum)
        if not minimum <= version <= maximum:
            self._refusal = _out_of_range(self._run.instance_id, change_id, version, minimum, maximum)
            raise self._refusal
        return int(version)

    def complain(self) -> None:
        """Raise what the body was told and may have caught."""
        if self._refusal is not None:
            raise self._refusal

    def _decide(self, key: str, *, new: Any, old: Any) -> Any:
        run = self._run
        text = run.marker(key)
        if text is not None:
            return run.decode(text)
        if run.replaying or key in self._old:
            return self._old.setdefault(key, old)
        run.markers[key] = run.encode(new, f"the marker {key}")
        return new


def _out_of_range(instance_id: str, change_id: str, version: int, minimum: int, maximum: int) -> ReplayError:
    side = "older" if version < minimum else "newer"
    return ReplayError(
        f"this run follows version {version} of the change {change_id!r}, and this code has the versions {minimum} to "
        f"{maximum}. Nothing was changed. Deploy code that has version {version} ({side} than this one), or widen "
        f"get_version({change_id!r}, {min(version, minimum)}, {max(version, maximum)}) and keep that branch until no "
        "run of it is open",
        instance_id=instance_id,
    )
