"""Which tests a run takes, and what they share. `tests/run.py` makes one run for each pair of database and broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings

from django_app import pytest_plugin
from tests import processes
from tests.project import surroundings
from tests.services import Service, rabbitmq

if TYPE_CHECKING:
    from tests.pump import Pump

SLOW_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("quick", max_examples=50, deadline=None, suppress_health_check=SLOW_CHECKS)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, suppress_health_check=SLOW_CHECKS)
settings.register_profile("nightly", max_examples=5000, deadline=None, suppress_health_check=SLOW_CHECKS)
# For who only asks whether anything fails: no time is spent on the simplest example that does.
ANY_FAILURE = [Phase.explicit, Phase.generate]
settings.register_profile("unshrunk", deadline=None, suppress_health_check=SLOW_CHECKS, phases=ANY_FAILURE)

DATABASE_FIXTURES = {"db", "transactional_db", "django_db_setup"}
BETWEEN_PROCESSES = {"filesystem", "redis", "rabbitmq"}
# What the language and the kit are on one database they are on each; by night they are tried on all the same.
ONCE_A_DAY = {"conformance", "docs", "programs", "testing"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("durable_celery")
    group.addoption("--engine-only", action="store_true", help="leave out what needs neither database nor broker")
    group.addoption("--packaging", action="store_true", help="also build the wheel and install it as a user would")
    group.addoption("--browser", action="store_true", help="also what clicks in a browser; needs the extra browser")
    group.addoption("--nightly", action="store_true", help="also what takes minutes or measures time")
    group.addoption("--night-alone", action="store_true", help="of --nightly only what the day leaves out")


def pytest_configure(config: pytest.Config) -> None:
    surroundings.prepare()
    if not config.pluginmanager.is_registered(pytest_plugin):  # where the package is not installed but found by path
        config.pluginmanager.register(pytest_plugin, "durable")
    if config.getoption("--night-alone"):
        config.option.nightly = True
    profile = "nightly" if config.getoption("--nightly") else "ci" if os.environ.get("CI") else "quick"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", profile))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what another run takes, so that the figures of each run count only what belongs to its pair."""
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        mark_engine_tests(item)
        (chosen if belongs(item, config) else left_out).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=left_out)


def mark_engine_tests(item: pytest.Item) -> None:
    """A test that touches the database runs on each one, marked or not."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if item.get_closest_marker("django_db") or fixtures & DATABASE_FIXTURES or has(item, "prefork", "kill"):
        item.add_marker("engine")


def belongs(item: pytest.Item, config: pytest.Config) -> bool:
    if has(item, "packaging") and not config.getoption("--packaging"):
        return False
    if has(item, "browser") and not config.getoption("--browser"):
        return False
    if has(item, "nightly") and not config.getoption("--nightly"):
        return False
    if config.getoption("--night-alone") and not differs_by_night(item, config):
        return False
    if has(item, "server") and os.environ.get("TEST_DB", "sqlite") == "sqlite":
        return False
    if not all(is_on(marker) for marker in item.iter_markers("on")):
        return False
    if has(item, "partial") and os.environ.get("TEST_DB", "sqlite") == "mariadb":
        return False
    if has(item, "fanout") and os.environ.get("TEST_BROKER", "memory") not in {"redis", "rabbitmq"}:
        return False
    if has(item, "prefork", "kill") and os.environ.get("TEST_BROKER", "memory") not in BETWEEN_PROCESSES:
        return False
    if config.getoption("--engine-only") and not config.getoption("--nightly") and once_a_day(item, config):
        return False
    return has(item, "engine") or not config.getoption("--engine-only")


def differs_by_night(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether the day does not run it, or with fewer examples."""
    others = config.getoption("--engine-only") and once_a_day(item, config)
    return has(item, "nightly") or others or is_hypothesis_test(getattr(item, "obj", None))


def is_on(marker: pytest.Mark) -> bool:
    """Whether this run's database and broker are among those that `on` names."""
    return {os.environ.get("TEST_DB", "sqlite"), os.environ.get("TEST_BROKER", "memory")} <= set(marker.args)


def once_a_day(item: pytest.Item, config: pytest.Config) -> bool:
    return bool(ONCE_A_DAY & set(item.path.relative_to(config.rootpath).parts))


def has(item: pytest.Item, *markers: str) -> bool:
    return any(item.get_closest_marker(marker) is not None for marker in markers)


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[Callable[..., processes.Worker]]:
    """`start_worker(...)` of `tests.processes`, ready when it returns; its log is shown if the test fails."""
    started: list[processes.Worker] = []
    numbers = count(1)

    def start(*, ready: bool = True, **options: Any) -> processes.Worker:
        worker = processes.start_worker(tmp_path / f"worker-{next(numbers)}.log", **options)
        started.append(worker)
        return worker.wait_until_ready() if ready else worker

    yield start
    for worker in started:
        worker.clear()
        print(f"--- {worker.log.name}\n{worker.text()}")


@pytest.fixture
def pump(transactional_db: None) -> Iterator[Pump]:
    """`tests.pump.Pump`, installed in place of broker, workers and clock until the test ends."""
    from tests.pump import Pump  # needs Django set up

    with Pump() as pump:
        yield pump


@pytest.fixture(scope="session")
def strict_rabbitmq() -> Iterator[Service]:
    """A server of our own that gives up a channel with a delivery unacknowledged for 4 s; it looks every second."""
    often = "-rabbit channel_tick_interval 1000"
    server = rabbitmq.start(settings="consumer_timeout = 4000", arguments=often, hosts=["/"])
    with started("rabbitmq", server) as service:
        yield service


@contextmanager
def started(name: str, service: Service | None) -> Iterator[Service]:
    """The service, stopped at the end; where its program is missing the test is skipped, and fails in CI."""
    if service is None:
        assert not os.environ.get("CI"), f"{name} is not installed"
        pytest.skip(f"{name} is not installed")
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture
def page(live_server: Any, admin_user: Any) -> Iterator[Any]:
    """A page of a browser that is logged in as the admin."""
    from django.test import Client

    from tests import browser

    client = Client()
    client.force_login(admin_user)
    with browser.opened(live_server.url, client.cookies["sessionid"].value) as page:
        yield page
