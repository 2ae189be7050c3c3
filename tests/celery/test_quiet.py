from __future__ import annotations

import logging

import pytest
from celery.app.trace import LOG_SUCCESS
from celery.utils.log import get_logger

from durable_celery.celery.quiet import Sparing, hush_the_tick

RECEIVED = "Task %(name)s[%(id)s] received"


@pytest.fixture(autouse=True)
def _hushed():
    hush_the_tick()
    hush_the_tick()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("name", "text", "args"),
    [
        ("celery.worker.strategy", RECEIVED, ({"name": "durable_celery.tick", "id": "1"},)),
        (
            "celery.app.trace",
            LOG_SUCCESS,
            ({"name": "durable_celery.tick", "id": "1", "runtime": 0.1, "return_value": None},),
        ),
        ("celery.beat", "Scheduler: Sending due task %s (%s)", ("durable_celery.tick", "durable_celery.tick")),
        ("celery.worker.request", "Discarding revoked task: %s[%s]", ("durable_celery.tick", "1")),
    ],
)
def test_lines_about_the_tick_are_debug_lines(caplog, name, text, args):
    logger = get_logger(name)
    caplog.set_level(logging.INFO, logger=name)
    logger.info(text, *args)
    assert lines(caplog) == []
    caplog.set_level(logging.DEBUG, logger=name)
    logger.info(text, *args)
    assert [level for level, _ in lines(caplog)] == ["DEBUG"]


def test_lines_about_other_tasks_and_errors_of_the_tick_are_left_alone(caplog):
    logger = get_logger("celery.worker.strategy")
    caplog.set_level(logging.INFO, logger="celery.worker.strategy")
    logger.info(RECEIVED, {"name": "shop.charge", "id": "1"})
    logger.error("Task %(name)s failed", {"name": "durable_celery.tick"})
    assert [level for level, _ in lines(caplog)] == ["INFO", "ERROR"]


def test_a_complaint_is_made_once_and_its_end_told(caplog):
    caplog.set_level(logging.INFO)
    sparing = Sparing(logging.getLogger("tests.sparing"))
    sparing.fine("nothing was wrong")
    for number in range(3):
        sparing.warning("wrong %d", number)
    sparing.fine("over")
    sparing.fine("over")
    assert lines(caplog) == [("WARNING", "wrong 0"), ("INFO", "over")]
