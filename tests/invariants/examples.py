"""How many examples a test takes whose every example runs whole workflows."""

from __future__ import annotations

from hypothesis import settings

few = settings(max_examples=min(60, max(10, settings.default.max_examples // 25)) if settings.default else 10)
