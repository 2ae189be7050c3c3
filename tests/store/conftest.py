"""The store under test, and a way to count its statements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_app.store import DjangoStore
from tests.store.making import statements


@pytest.fixture
def store() -> DjangoStore:
    return DjangoStore("default")


@pytest.fixture
def costs() -> Callable[[], AbstractContextManager[list[str]]]:
    """`with costs() as sent:` leaves in `sent` the statements that were sent inside."""

    @contextmanager
    def counting() -> Any:
        sent: list[str] = []
        with CaptureQueriesContext(connection) as captured:
            yield sent
        sent += statements(captured.captured_queries)

    return counting
