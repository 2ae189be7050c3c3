"""Which database and broker a test run uses, read from the environment and handed on to the processes it starts.

TEST_DB              sqlite (default), postgres or mariadb
TEST_BROKER          memory (default), filesystem, redis or rabbitmq
TEST_POSTGRES_URL, TEST_MARIADB_URL, TEST_REDIS_URL, TEST_RABBITMQ_URL
                     where they are; what is missing is started for this run alone

Set here, and so the same in every process that a test starts:

TEST_RUN             a number of this run's own, in the names of its database, queues and folder
TEST_BROKER_URL      the broker, with a database or virtual host of this run's own where there is one
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.services import SERVICES, ServiceError, rabbitmq, redis, variable

ENGINES = {
    "sqlite": "django.db.backends.sqlite3",
    "postgres": "django.db.backends.postgresql",
    "mariadb": "django.db.backends.mysql",
}
BROKERS = ("memory", "filesystem", "redis", "rabbitmq")

DATABASE = os.environ.get("TEST_DB", "sqlite")
BROKER = os.environ.get("TEST_BROKER", "memory")
if DATABASE not in ENGINES:
    raise ServiceError(f"TEST_DB={DATABASE} is not known. Expected one of {', '.join(ENGINES)}.")
if BROKER not in BROKERS:
    raise ServiceError(f"TEST_BROKER={BROKER} is not known. Expected one of {', '.join(BROKERS)}.")

OWNER = "TEST_RUN" not in os.environ
RUN = int(os.environ.setdefault("TEST_RUN", str(os.getpid())))
FOLDER = Path(tempfile.gettempdir(), f"durable-tests-{RUN}")


def database() -> dict[str, Any]:
    """The `default` entry of DATABASES. The test database has one name before, during and after a test run."""
    if DATABASE == "sqlite":
        name = str(FOLDER / "db.sqlite3")
        return {
            "ENGINE": ENGINES[DATABASE],
            "NAME": name,
            "TEST": {"NAME": name},
            # What was committed outlives a killed process all the same; only a machine without power would forget it.
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA synchronous = OFF;"},
        }
    if DATABASE == "mariadb":
        import pymysql

        pymysql.install_as_MySQLdb()
    address = urlsplit(service_url(DATABASE))
    name = f"durable_{RUN}"
    return {
        "ENGINE": ENGINES[DATABASE],
        "NAME": name,
        "TEST": {"NAME": name},
        "USER": unquote(address.username or ""),
        "PASSWORD": unquote(address.password or ""),
        "HOST": address.hostname or "",
        "PORT": address.port or "",
        "OPTIONS": {"charset": "utf8mb4"} if DATABASE == "mariadb" else {},
    }


def broker_url() -> str:
    """The same URL in every process of the run: only the first one takes, and empties, a share of the server."""
    if "TEST_BROKER_URL" not in os.environ:
        os.environ["TEST_BROKER_URL"] = new_broker_url()
    return os.environ["TEST_BROKER_URL"]


def broker_options() -> dict[str, Any]:
    if BROKER == "filesystem":
        return {
            "data_folder_in": str(FOLDER / "queue"),
            "data_folder_out": str(FOLDER / "queue"),
            "control_folder": str(FOLDER / "control"),
            "polling_interval": 0.02,
        }
    if BROKER == "memory":
        return {"polling_interval": 0.01}
    return {}


def new_broker_url() -> str:
    if BROKER == "redis":
        return redis.share(service_url(BROKER), RUN)
    if BROKER == "rabbitmq":
        return rabbitmq.share(service_url(BROKER), RUN)
    return f"{BROKER}://"


def service_url(name: str) -> str:
    """The URL of a service, started now and stopped when this process ends if the environment names none."""
    if url := os.environ.get(variable(name)):
        return url
    service = SERVICES[name].find()
    if service is None:
        raise ServiceError(f"No {name} here. Install it, or set {variable(name)} to one that tests may use.")
    at_end(service.stop)
    return os.environ.setdefault(variable(name), service.url)


def prepare() -> None:
    """Make this run's folder; the process that began the run removes it at its end."""
    for path in (FOLDER, FOLDER / "queue", FOLDER / "control"):
        path.mkdir(mode=0o700, exist_ok=True)
    if OWNER:
        at_end(partial(shutil.rmtree, FOLDER, ignore_errors=True))


def at_end(action: Callable[[], object]) -> None:
    """Runs `action` when this process ends, and not when a fork of it does."""
    process = os.getpid()
    atexit.register(lambda: action() if os.getpid() == process else None)
