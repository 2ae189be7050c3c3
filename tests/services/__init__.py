"""Databases and brokers for the tests.

Each module finds one service, in this order: an URL in the environment, a program on this machine, a wheel from PyPI.
What is started is private: its own folder, its own free port, nothing kept on disk for longer than the run.

    python -m tests.services start --env services.env     start what is found, write `export` lines
    python -m tests.services stop --env services.env

Standard library only, so that any Python can run it.
"""

from __future__ import annotations

from tests.services import mariadb, postgres, rabbitmq, redis
from tests.services.service import Service, ServiceError

SERVICES = {"postgres": postgres, "mariadb": mariadb, "redis": redis, "rabbitmq": rabbitmq}

__all__ = ["SERVICES", "Service", "ServiceError", "variable"]


def variable(name: str) -> str:
    """The environment variable that holds the URL of a service: `TEST_POSTGRES_URL` for `postgres`."""
    return f"TEST_{name.upper()}_URL"
