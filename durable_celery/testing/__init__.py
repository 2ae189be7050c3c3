"""The testing kit: whole workflows in one test, in virtual time, without a broker or a worker.

With pytest, ask for the fixture ``durable``. Elsewhere ``Harness`` is a context manager::

    with Harness() as durable:
        run = durable.run(fulfil_order, 7)
"""

from __future__ import annotations

from durable_celery.testing.harness import Harness
from durable_celery.testing.mocks import Mock
from durable_celery.testing.reports import Report
from durable_celery.testing.runs import Run

__all__ = ["Harness", "Mock", "Report", "Run"]
