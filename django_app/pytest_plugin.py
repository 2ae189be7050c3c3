"""The pytest plugin: the fixture ``durable``. Importing it imports nothing but pytest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from durable_celery.testing.harness import Harness

WITH_COMMITS = {"transactional_db", "live_server", "django_db_reset_sequences", "django_db_serialized_rollback"}
MARKER = "durable(check=True, now=None): options of the fixture durable, those of durable_celery.testing.Harness"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say which tests use the database: pytest-django makes tables only for those that say so before they run."""
    if not config.pluginmanager.has_plugin("django"):
        return
    for item in items:
        if "durable" in getattr(item, "fixturenames", ()) and item.get_closest_marker("django_db") is None:
            item.add_marker("django_db")


@pytest.fixture
def durable(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """``durable_celery.testing.Harness``: whole workflows in virtual time, without a broker or a worker.

    Asks for pytest-django's ``db`` unless the test asks for the database itself, by fixture or marker.
    """
    try:
        request.getfixturevalue("transactional_db" if WITH_COMMITS & set(request.fixturenames) else "db")
    except pytest.FixtureLookupError:
        raise pytest.UsageError("the fixture durable needs pytest-django: pip install pytest-django") from None
    from durable_celery.testing.harness import Harness

    marker = request.node.get_closest_marker("durable")
    args, kwargs = (marker.args, marker.kwargs) if marker is not None else ((), {})
    with Harness(*args, **kwargs) as harness:
        yield harness
