"""What Sentry, Celery's signals, hooks, events and log lines see of the attempts of a step, in a real worker."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from django_app.signals import step_failed, workflow_finished
from durable_celery import Workflow, step, workflow
from durable_celery.handle import WorkflowHandle
from tests.processes import Worker, eventually
from tests.project.celery import app
from tests.project.testapp.case_neighbours import book, buying, charge, dawdle, lines_of, refuse
from tests.project.testapp.steps import say
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def neighbours(tmp_path: Path, start_worker: Callable[..., Worker]) -> Path:
    """The folder where a worker's neighbours write what they see."""
    folder = tmp_path / "neighbours"
    folder.mkdir()
    start_worker(env={"TEST_NEIGHBOURS": str(folder)}, arguments=("-E",))
    return folder


def ended(*handles: WorkflowHandle[Any]) -> list[str]:
    eventually(lambda: all(handle.status in ("COMPLETED", "FAILED") for handle in handles), "the end of all")
    return [handle.status for handle in handles]


def start(name: str, *args: Any) -> WorkflowHandle[Any]:
    return buying.start(f"neighbours-{name}", name, *args)


def of(lines: list[dict[str, Any]], what: str, name: str, idle: set[str]) -> list[str]:
    """What was seen of the attempts of a step; not of ``idle`` messages, hints that found nothing left to do."""
    return [line[what] for line in lines if line["task"] == name and line["id"] not in idle]


def ignored(signals: list[dict[str, Any]]) -> set[str]:
    return {line["id"] for line in signals if line.get("state") == "IGNORED"}


# -- Sentry ------------------------------------------------------------------------------------------------------------


@pytest.mark.prefork
def test_sentry_has_one_event_for_a_final_failure_and_none_for_attempts_that_are_retried(neighbours: Path) -> None:
    recovered = ended(start("charge", 2), start("book", 2))
    assert recovered == ["COMPLETED", "COMPLETED"]
    assert lines_of(neighbours, "sentry") == []
    failed = ended(start("charge", 9), start("charge", 9), start("book", 9), start("refuse"), start("dawdle"))
    assert failed == ["FAILED"] * 5
    expected = Counter({charge.name: 2, book.name: 1, refuse.name: 1, dawdle.name: 1})
    eventually(lambda: len(lines_of(neighbours, "sentry")) >= expected.total(), "the events")
    events = [line["event"] for line in lines_of(neighbours, "sentry")]
    assert Counter(event["transaction"] for event in events) == expected
    assert Counter(event["extra"]["celery-job"]["task_name"] for event in events) == expected
    of_steps = {event["transaction"]: event["exception"]["values"][-1] for event in events}
    assert {name: error["type"] for name, error in of_steps.items()} == {
        charge.name: "CardDeclined",
        book.name: "CardDeclined",
        refuse.name: "CardDeclined",
        dawdle.name: "SoftTimeLimitExceeded",
    }
    assert of_steps[charge.name]["value"] == "attempt 3"
    groups = Counter(group(event) for event in events)
    assert sorted(groups.values()) == [1, 1, 1, 2], "two failures of one step are one group, and no two steps share one"


def group(event: dict[str, Any]) -> tuple[Any, ...]:
    """What Sentry groups by: its fingerprint, else the error's type and the frames of the application."""
    if "fingerprint" in event:
        return tuple(event["fingerprint"])
    error = event["exception"]["values"][-1]
    frames = [frame for frame in error["stacktrace"]["frames"] if "testapp" in frame["module"]]
    assert frames, "the frames of the body are what tells one step's errors from another's"
    return (error["type"], *((frame["module"], frame["function"]) for frame in frames))


# -- Celery's own ------------------------------------------------------------------------------------------------------


@pytest.mark.prefork
def test_signals_hooks_and_log_lines_see_each_attempt(neighbours: Path, start_worker: Any, tmp_path: Path) -> None:
    assert ended(start("charge", 2), start("book", 9)) == ["COMPLETED", "FAILED"]

    def seen() -> bool:
        lines = lines_of(neighbours, "signals")
        names = (charge.name, book.name)
        return all(of(lines, "signal", name, ignored(lines)).count("task_postrun") == 3 for name in names)

    eventually(seen, "the last signals")
    signals = lines_of(neighbours, "signals")
    idle = ignored(signals)
    retry = ["task_prerun", "task_retry", "task_postrun"]
    assert of(signals, "signal", charge.name, idle) == [*retry, *retry, "task_prerun", "task_success", "task_postrun"]
    assert of(signals, "signal", book.name, idle) == [*retry, *retry, "task_prerun", "task_failure", "task_postrun"]
    assert Counter(of(signals, "signal", say.name, idle)) == {"task_prerun": 2, "task_success": 2, "task_postrun": 2}
    finals = [line for line in signals if line["signal"] == "task_failure"]
    assert ["CardDeclined('attempt 3')" in str(line["exception"]) for line in finals] == [True]
    ids = {line["id"] for line in signals if line["task"] == charge.name}
    assert "" not in ids

    hooks = lines_of(neighbours, "hooks")
    again = ["before_start", "on_retry"]  # Celery calls no after_return for a retry
    assert of(hooks, "hook", charge.name, idle) == [*again, *again, "before_start", "on_success", "after_return"]
    assert of(hooks, "hook", book.name, idle) == [*again, *again, "before_start", "on_failure", "after_return"]

    log = (tmp_path / "worker-1.log").read_text()
    assert len(re.findall(rf"Task {re.escape(charge.name)}\[[^]]+\] received", log)) >= 3
    assert len(re.findall(rf"Task {re.escape(charge.name)}\[[^]]+\] retry: ", log)) == 2
    assert len(re.findall(rf"Task {re.escape(charge.name)}\[[^]]+\] succeeded in ", log)) == 1
    assert len(re.findall(rf"Task {re.escape(book.name)}\[[^]]+\] raised unexpected: CardDeclined", log)) == 1


@pytest.fixture
def events() -> Iterator[list[dict[str, Any]]]:
    """The events of workers, as Flower and `celery events` receive them."""
    received: list[dict[str, Any]] = []
    ready, stop = threading.Event(), threading.Event()

    def receive() -> None:
        with app.connection_for_read() as broker:
            receiver = app.events.Receiver(broker, handlers={"*": received.append})
            with receiver.consumer_context(wakeup=False) as (own, _, _):
                ready.set()
                while not stop.is_set():
                    try:
                        own.drain_events(timeout=0.1)
                    except TimeoutError:
                        pass

    thread = threading.Thread(target=receive)
    thread.start()
    assert ready.wait(20)
    yield received
    stop.set()
    thread.join(20)
    connection.close()


@pytest.mark.prefork
@pytest.mark.fanout
def test_events_show_each_attempt_by_the_name_of_its_step(events: list[dict[str, Any]], neighbours: Path) -> None:
    assert ended(start("charge", 1), start("refuse")) == ["COMPLETED", "FAILED"]

    def kinds(name: str) -> list[str]:
        ids = {event["uuid"] for event in events if event.get("name") == name}
        found = {pk: [event["type"] for event in events if event.get("uuid") == pk] for pk in ids}
        # A hint that found nothing left to do is received and started, and that is all.
        return [kind for kinds_ in found.values() if len(kinds_) > 2 for kind in kinds_]

    lasts = ((refuse, "task-failed"), (charge, "task-succeeded"))
    eventually(lambda: all(last in kinds(of_step.name) for of_step, last in lasts), "the last events")
    assert Counter(kinds(charge.name)) == {
        "task-received": 2, "task-started": 2, "task-retried": 1, "task-succeeded": 1,
    }  # fmt: skip
    assert kinds(refuse.name) == ["task-received", "task-started", "task-failed"]
    assert kinds(say.name).count("task-succeeded") == 2


# -- the recipes -------------------------------------------------------------------------------------------------------


def recipe(heading: str, number: int = 0) -> str:
    text = Path(__file__).parents[2].joinpath("docs", "neighbours.md").read_text()
    section = text.partition(f"## {heading}")[2].partition("\n## ")[0]
    blocks: list[str] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return blocks[number]


def test_the_recipe_for_structlog_carries_the_id_of_the_request(pump: Pump) -> None:
    import structlog
    from celery.signals import task_prerun

    from durable_celery import surroundings

    given: dict[str, Any] = {}
    exec(recipe("structlog"), given)
    try:
        with structlog.contextvars.bound_contextvars(request_id="r-7"):
            handle = asking.start()
        structlog.contextvars.clear_contextvars()
        pump.finish()
        assert handle.result(timeout=0) == "r-7"
        assert structlog.contextvars.get_contextvars() == {}
        given["bind_task"](task=charge.task, task_id="t-1")
        assert structlog.contextvars.get_contextvars() == {"task": charge.name, "task_id": "t-1"}
    finally:
        structlog.contextvars.clear_contextvars()
        task_prerun.disconnect(given["bind_task"])
        del surroundings._carriers["request id"]


@step(name="neighbours.ask")
def ask() -> Any:
    import structlog

    return structlog.contextvars.get_contextvars().get("request_id")


@workflow(name="neighbours.asking")
def asking() -> Workflow[Any]:
    return (yield from ask())


def test_the_recipe_for_results_keeps_a_row_for_each_workflow(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[str, Any] = {}
    model = SimpleNamespace(
        objects=SimpleNamespace(update_or_create=lambda task_id, defaults: rows.update({task_id: defaults}))
    )
    monkeypatch.setitem(sys.modules, "django_celery_results.models", SimpleNamespace(TaskResult=model))
    given: dict[str, Any] = {}
    exec(recipe("django-celery-results"), given)
    handle = buying.start("neighbours-kept", "refuse")
    pump.finish()
    workflow_finished.disconnect(given["keep"])
    assert rows == {handle.id: {"task_name": buying.name, "status": "FAILURE"}}


def test_the_recipe_for_sentry_hears_of_lost_steps_and_of_no_others(pump: Pump) -> None:
    given: dict[str, Any] = {"sentry_sdk": Heard()}
    exec(recipe("Sentry", 1), given)
    try:
        buying.start("neighbours-declined", "refuse")
        pump.finish()
        doomed = buying.start("neighbours-lost", "charge", 0)
        pump.deliver(pump.queue[0])
        pump.deliver(pump.queue[0])  # the step before it
        for _ in range(3):
            pump.kill_at("body.before")
            pump.deliver(pump.ready()[0])
        pump.finish()
    finally:
        step_failed.disconnect(given["tell_of_lost_steps"])
    assert doomed.status == "FAILED"
    heard: Heard = given["sentry_sdk"]
    assert heard.fingerprints == [["durable_celery", "lost", charge.name]]
    assert charge.name in heard.said[0]


class Heard:
    """Stands in for sentry_sdk."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.fingerprints: list[list[str]] = []
        self.fingerprint: list[str] = []

    def new_scope(self) -> Heard:
        return self

    def __enter__(self) -> Heard:
        return self

    def __exit__(self, *_: object) -> None:
        self.fingerprints.append(self.fingerprint)

    def set_tag(self, name: str, value: str) -> None:
        assert (name, bool(value)) == ("instance_id", True)

    def capture_message(self, text: str, level: str) -> None:
        self.said.append(text)
