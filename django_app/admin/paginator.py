"""Pages without an unbounded COUNT."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.utils.functional import cached_property

LIMIT = 10_000


class CappedPaginator(Paginator):
    """Counts at most ``LIMIT`` rows and offers no page beyond them: a filter or a search leads further."""

    @cached_property
    def count(self) -> int:
        """The number of rows, ``LIMIT`` if there are more; the database stops counting there."""
        rows: Any = self.object_list
        counted: int = rows.order_by()[: LIMIT + 1].count()
        self.capped = counted > LIMIT
        return min(counted, LIMIT)

    @property
    def is_capped(self) -> bool:
        return bool(self.count and self.capped)
