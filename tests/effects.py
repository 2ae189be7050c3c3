"""What step bodies have done, as the database has it: their `Effect` rows, counted."""

from __future__ import annotations

from collections import Counter

from tests.project.testapp.models import Effect


def effects(run: str) -> Counter[str]:
    """How often each body of this run was executed."""
    return Counter(Effect.objects.filter(run=run).values_list("what", flat=True))
