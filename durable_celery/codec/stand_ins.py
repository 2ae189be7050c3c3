"""Values that are stored as a plain one on purpose: lazy text, text marked safe, the time of a frozen clock."""

from __future__ import annotations

from typing import Any

# Told by name, so that neither Django nor freezegun is imported.
_LAZY = ("__proxy__", "Promise")
_LAZY_MODULE = "django.utils.functional"
_FROZEN = "freezegun.api"


def has_twin(kind: type) -> bool:
    """Whether values of this class are stored as a plain one."""
    return (
        _is_lazy(kind)
        or (issubclass(kind, str) and hasattr(kind, "__html__"))
        or (kind.__module__ == _FROZEN and kind.__name__ in ("FakeDatetime", "FakeDate"))
    )


def plain_twin(value: Any) -> Any:
    """The plain value to store in place of this one, whose class ``has_twin``."""
    kind = type(value)
    if _is_lazy(kind):
        return str.__str__(str(value))  # ``str`` alone may leave a subclass
    if issubclass(kind, str):
        return str.__str__(value)
    real: Any = kind.__mro__[1]
    if kind.__name__ == "FakeDate":
        return real.fromordinal(value.toordinal())
    return real.combine(value.date(), value.timetz())


def _is_lazy(kind: type) -> bool:
    return any(parent.__name__ in _LAZY and parent.__module__ == _LAZY_MODULE for parent in kind.__mro__)
