"""The database and the broker of a run, and the tests' Django project on them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.chaos import ledger
from tests.chaos.brokers import Filesystem, RabbitMQ, Redis
from tests.chaos.databases import MariaDB, Postgres, SQLite
from tests.chaos.faults import OF_PROCESSES
from tests.services import SERVICES, Service, ServiceError, variable

PAIRS = ("postgres+redis", "postgres+rabbitmq", "mariadb+redis", "sqlite+filesystem")
SCHEMES = {
    "postgres": "postgres",
    "postgresql": "postgres",
    "mysql": "mariadb",
    "mariadb": "mariadb",
    "sqlite": "sqlite",
    "redis": "redis",
    "amqp": "rabbitmq",
    "pyamqp": "rabbitmq",
    "filesystem": "filesystem",
}
# As the example has it. With readers that wait for writers a frozen process would hold up whoever looks at it.
WAL = {
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
}
DATABASES = {"postgres": Postgres, "mariadb": MariaDB}
BROKERS = {"redis": Redis, "rabbitmq": RabbitMQ}


@dataclass(kw_only=True)
class Ground:
    """``kinds``: what can break here."""

    pair: str
    database: Any
    broker: Any

    @property
    def kinds(self) -> tuple[str, ...]:
        return (*OF_PROCESSES, *self.database.kinds, *self.broker.kinds)

    def stop(self) -> None:
        """End the services of this run as they are after their restarts."""
        for one in (self.database, self.broker):
            service = getattr(one, "service", None)
            if service is not None:
                service.stop()


def find(pair: str, given: Mapping[str, str], stack: ExitStack) -> Ground:
    """Start what ``given`` (DATABASE_URL, BROKER_URL) does not name, and set up the project on it."""
    names = pair.split("+")
    for index, name in enumerate(("DATABASE_URL", "BROKER_URL")):
        if given.get(name):
            names[index] = named(name, given[name])
            os.environ[variable(names[index])] = given[name]
    services: dict[str, Service] = {}
    for name, url in zip(names, ("DATABASE_URL", "BROKER_URL"), strict=True):
        if name in SERVICES and not given.get(url):
            services[name] = start(name, stack)
    ground = set_up(names[0], names[1], services, stack)
    stack.callback(ground.stop)
    return ground


def named(variable_name: str, url: str) -> str:
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise ServiceError(f"{variable_name}={url} is not known. Expected one of {', '.join(SCHEMES)}.")
    return SCHEMES[scheme]


def start(name: str, stack: ExitStack) -> Service:
    """One of this run's own, whatever the environment names; its folder outlives its restarts."""
    service = SERVICES[name].start()
    if service is None:
        raise ServiceError(f"No {name} here. Install it, or give DATABASE_URL and BROKER_URL.")
    stack.callback(service.stop)
    os.environ[variable(name)] = service.url
    return service


def set_up(database: str, broker: str, services: Mapping[str, Service], stack: ExitStack) -> Ground:
    """The environment is what the processes of the run find all of it by."""
    os.environ |= {
        "TEST_DB": database,
        "TEST_BROKER": broker,
        "TEST_APPS": '["tests.chaos"]',
        "TEST_LOG_LEVEL": "INFO",
        "DJANGO_SETTINGS_MODULE": "tests.project.settings",
    }
    if database == "sqlite":
        os.environ["TEST_DATABASE"] = json.dumps(WAL)
    from tests.project import surroundings

    surroundings.prepare()
    import django

    django.setup()
    from django.conf import settings
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    name = connection.settings_dict["NAME"]
    queue = settings.CELERY_TASK_DEFAULT_QUEUE
    if database not in services and database in DATABASES:
        stack.callback(connection.creation.destroy_test_db, name, verbosity=0)
    return Ground(
        pair=f"{database}+{broker}",
        database=SQLite(path=name)
        if database == "sqlite"
        else DATABASES[database](url=surroundings.service_url(database), name=name, service=services.get(database)),
        broker=Filesystem(folder=surroundings.FOLDER / "queue")
        if broker == "filesystem"
        else BROKERS[broker](url=surroundings.broker_url(), queue=queue, service=services.get(broker)),
    )


def folder() -> Path:
    """Where logs and books of the run are kept, named to its processes."""
    made = Path(tempfile.mkdtemp(prefix="durable-chaos-"))
    os.environ[ledger.VARIABLE] = str(made)
    return made
