"""The exception that travels from a refused value up to the root, collecting the path."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - never leaves the package; ``encode`` turns it into ``NotSerializable``
    """A value cannot be kept: what it is, and what to do instead. Each container on the way up adds its part."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint
        self.parts: list[str] = []

    def path(self, root: str) -> str:
        """The expression that leads from ``root`` to the value, such as ``args[0]['order']``."""
        return root + "".join(reversed(self.parts))
