"""Bodies that the tests of cancelling drive."""

from __future__ import annotations

from typing import Any

from tests.core.driver import Driver


def after_first(body: Any, **options: Any) -> Driver:
    """A run that was asked to end after its first step."""
    run = Driver(body, **options)
    run.turn()
    run.succeed("1", 5)
    run.turn()
    run.cancel("changed my mind")
    return run
