"""What the tests of the core share."""

from __future__ import annotations

from tests.core.modules import module  # noqa: F401
