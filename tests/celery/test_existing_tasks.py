"""Existing tasks by a plain Celery worker and as steps of a workflow: the same outcome, runs, hooks and signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, _state, chain, chord, group, signals
from celery.canvas import _chain
from celery.contrib.testing.worker import start_worker
from celery.exceptions import SoftTimeLimitExceeded
from django.db.models import Q

from django_app.models import StepAttempt, StepResult
from durable_celery import NotInWorkflow, UsageError, Workflow, canvas, gather, run, step, workflow
from durable_celery.celery import install
from durable_celery.celery.current_app import current_app
from tests.celery import existing as t
from tests.processes import eventually
from tests.pump import Pump

STATE: Any = _state
SIGNALS = ("task_prerun", "task_success", "task_retry", "task_failure", "task_postrun")


@dataclass(slots=True)
class Told:
    """What became of a canvas: `outcome` is ("value", v) or ("error", class name); and all that was seen meanwhile."""

    outcome: tuple[str, Any]
    seen: list[Any] = field(default_factory=list)
    signals: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def worker_app() -> Iterator[Any]:
    """An app with one plain worker in this process, all in memory; nothing of ours is wired into it."""
    app: Any = Celery("plain", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.task_default_queue = "plain"
    app.conf.worker_hijack_root_logger = False
    app.conf.broker_transport_options = {"polling_interval": 0.01}
    app.conf.result_chord_retry_interval = 0.05
    before = STATE._tls.current_app, STATE.default_app
    signals.worker_init.disconnect(dispatch_uid="durable_celery.on_worker_init")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TEST_BROKER", raising=False)  # Celery's testing worker takes it for the address of a broker
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
            patch.undo()
            yield app
    install.install()
    app.close()
    STATE._tls.current_app, STATE.default_app = before


@pytest.fixture
def plain(worker_app: Any) -> Callable[[Callable[[], Any]], Told]:
    """Runs a canvas by the worker, and waits for its end."""

    def start(make: Callable[[], Any]) -> Told:
        t.seen.clear()
        with watched() as told, using(worker_app):
            result = make().apply_async()
            try:
                outcome = ("value", None if result is None else result.get(timeout=10, interval=0.01))
            except Exception as error:  # noqa: BLE001 - that is what is compared
                outcome = ("error", type(error).__name__)
            eventually(
                lambda: count(told, "task_postrun") == count(told, "task_prerun"), "the end of each run", seconds=5
            )
        return Told(outcome, list(t.seen), told)

    return start


@contextmanager
def using(app: Any) -> Iterator[None]:
    """`app` as the current one of this thread."""
    before, STATE._tls.current_app = STATE._tls.current_app, app
    try:
        yield
    finally:
        STATE._tls.current_app = before


@pytest.fixture
def durable(pump: Pump) -> Callable[[Callable[[], Any]], Told]:
    """Runs a canvas as an instance of its own, to its end."""

    def start(make: Callable[[], Any]) -> Told:
        t.seen.clear()
        with watched() as told:
            handle = run(make())
            pump.finish()
        if handle.status == "COMPLETED":
            return Told(("value", handle.result(timeout=0)), list(t.seen), told)
        assert handle.status == "FAILED", handle.waiting_for
        errors = [one.error for one in handle.history() if one.kind == "step" and one.state == "FAILED"]
        assert errors[0] is not None
        return Told(("error", errors[0].type.rpartition(".")[2]), list(t.seen), told)

    return start


@contextmanager
def watched() -> Iterator[list[tuple[str, str]]]:
    """Each task signal with the name of its task, in order."""
    told: list[tuple[str, str]] = []
    receivers = []
    for name in SIGNALS:

        def receiver(name: str = name, sender: Any = None, **_: Any) -> None:
            told.append((name, sender.name))

        getattr(signals, name).connect(receiver, weak=False)
        receivers.append((name, receiver))
    try:
        yield told
    finally:
        for name, receiver in receivers:
            getattr(signals, name).disconnect(receiver)


def count(told: list[tuple[str, str]], name: str) -> int:
    return sum(1 for one in told if one[0] == name)


def only_ours(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [one for one in told if one[1].startswith("tests.")]


# -- one task ----------------------------------------------------------------------------------------------------------

SINGLE: dict[str, Callable[[], Any]] = {
    "a value": lambda: t.add.s(1, 2),
    "arguments by name": lambda: t.add.s(1, b=2),
    "no arguments": lambda: t.echo.s(),
    "a mapping as value": lambda: t.echo.s({"a": [1, None, True]}),
    "arguments the task does not name": lambda: t.echo.s(1, colour="red"),
    "an error": lambda: t.fail.s(),
    "an error it throws as expected": lambda: t.fail_as_expected.s(),
    "bind, and what the request says": lambda: t.look.s(1, second=2),
    "the same id on every attempt": lambda: t.same_id.s(),
    "self.retry until it succeeds": lambda: t.retry_until.s(2),
    "self.retry beyond max_retries with an error": lambda: t.retry_with_error.s(),
    "self.retry beyond max_retries without one": lambda: t.retry_without_error.s(),
    "self.retry beyond the default of max_retries": lambda: t.retry_until.s(9),
    "max_retries in the call of self.retry": lambda: t.retry_as_often_as_asked.s(),
    "max_retries=None": lambda: t.retry_for_ever.s(6),
    "max_retries=0": lambda: t.retry_never.s(),
    "self.retry with other arguments": lambda: t.halve.s(100, by=3),
    "self.retry with other named arguments": lambda: t.renamed.s(),
    "self.retry with an eta": lambda: t.retry_at.s(0.05),
    "self.retry with an eta gone by": lambda: t.retry_at.s(-5),
    "another error after a retry": lambda: t.retry_then_other_error.s(),
    "autoretry_for": lambda: t.auto.s(2),
    "autoretry_for, used up": lambda: t.auto.s(9),
    "dont_autoretry_for": lambda: t.auto_but_not_declined.s(),
    "autoretry_for and another error": lambda: t.auto_other_error.s(),
    "hooks of a success": lambda: t.hooked.s("succeed"),
    "hooks of a failure": lambda: t.hooked.s("fail"),
    "hooks of a retry": lambda: t.hooked.s("retry"),
    "hooks of retries used up": lambda: t.hooked.s("retry for ever"),
    "before_start raises": lambda: t.never_started.s(),
    "a custom __call__": lambda: t.counted.s(7),
    "pydantic": lambda: t.take_order.s({"number": 1, "lines": ["tea"]}),
    "a message that goes back": lambda: t.rejected_once.s(),
    "immutable": lambda: t.add.si(1, 2),
    "a countdown": lambda: t.add.s(1, 2).set(countdown=0.02),
}


@pytest.mark.parametrize("behaviour", SINGLE)
def test_a_task_does_the_same_as_under_plain_celery(behaviour: str, plain: Any, durable: Any) -> None:
    expected, got = plain(SINGLE[behaviour]), durable(SINGLE[behaviour])
    assert got.outcome == expected.outcome
    assert without_ids(got.seen) == without_ids(expected.seen)
    assert only_ours(got.signals) == only_ours(expected.signals)
    assert got.signals == only_ours(got.signals), "the message that carries it is nobody's business"


def without_ids(seen: list[Any]) -> list[Any]:
    return [one for one in seen if one[0] != "id"]


# -- canvases ----------------------------------------------------------------------------------------------------------

CANVASES: dict[str, Callable[[], Any]] = {
    "a chain passes results on": lambda: chain(t.add.s(1, 2), t.add.s(10), t.add.s(100)),
    "a pipe": lambda: t.add.s(1, 2) | t.add.s(10),
    "an immutable member of a chain": lambda: chain(t.add.s(1, 2), t.add.si(4, 4), t.add.s(1)),
    "a chain of one": lambda: chain(t.add.s(1, 2)),
    "the first error ends a chain": lambda: chain(t.add.s(1, 2), t.fail.si(), t.add.s(1)),
    "a chain with a member that is run again": lambda: chain(t.retry_until.s(1), t.add.s(1)),
    "a group": lambda: group(t.add.s(1, 1), t.add.s(2, 2)),
    "a group of a generator": lambda: group(t.add.s(n, n) for n in range(3)),
    "a group of one": lambda: group(t.add.s(1, 1)),
    "a group in a group": lambda: group(group(t.add.s(1, 1), t.add.s(2, 2)), t.add.s(3, 3)),
    "a group of chains": lambda: group(t.add.s(1, 1) | t.add.s(1), t.add.s(2, 2) | t.add.s(2)),
    "a chain that ends in a group": lambda: chain(t.add.s(1, 1), group(t.add.s(10), t.add.s(20))),
    "a group of one chain that ends in a group": lambda: group(chain(t.add.s(1, 1), group(t.add.s(10), t.add.s(20)))),
    "an empty group within a chain": lambda: chain(t.add.s(1, 1), group([]), t.add.s(5)),
    "a chord": lambda: chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()),
    "a chord of a generator": lambda: chord((t.add.s(n, n) for n in range(3)), t.total.s()),
    "a chord of one": lambda: chord([t.add.s(1, 1)], t.total.s()),
    "an empty chord": lambda: chord([], t.total.s()),
    "a chord with an immutable body": lambda: chord([t.add.s(1, 1), t.add.s(2, 2)], t.add.si(5, 5)),
    "a group piped into a task": lambda: group(t.add.s(1, 1), t.add.s(2, 2)) | t.total.s(),
    "a chain with a group in the middle": lambda: chain(t.add.s(1, 1), group(t.add.s(1), t.add.s(2)), t.total.s()),
    "a chord goes on": lambda: group(t.add.s(1, 1), t.add.s(2, 2)) | t.total.s() | t.add.s(100),
    "a chord in a group": lambda: group(chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()), t.add.s(5, 5)),
    "a chord in a chord": lambda: chord(
        [chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()), t.add.s(5, 5)], t.total.s()
    ),
    "map": lambda: t.total.map([[1, 2], [3, 4]]),
    "starmap": lambda: t.add.starmap([(1, 2), (3, 4)]),
    "chunks": lambda: t.add.chunks(zip(range(5), range(5), strict=True), 2),
}


@pytest.mark.parametrize("behaviour", CANVASES)
def test_a_canvas_does_the_same_as_under_plain_celery(behaviour: str, plain: Any, durable: Any) -> None:
    expected, got = plain(CANVASES[behaviour]), durable(CANVASES[behaviour])
    assert got.outcome == expected.outcome
    assert sorted(map(repr, got.seen)) == sorted(map(repr, expected.seen))


def test_a_chord_whose_header_fails_runs_no_body_and_ends_with_the_error_of_the_header(durable: Any) -> None:
    got = durable(lambda: chord([t.add.s(1, 1), t.fail.s(), t.add.s(2, 2)], t.total.s()))
    assert got.outcome == ("error", "Declined")
    assert sorted(got.seen) == [("ran", "add", 1, 1), ("ran", "add", 2, 2), ("ran", "fail")]


def test_a_chord_in_which_chains_end_in_groups_gets_one_flat_list(durable: Any) -> None:
    tail = chain(t.add.s(1, 1), group(t.add.s(10), t.add.s(20)))
    assert durable(lambda: chord([tail, t.add.s(5, 5)], t.echo.s())).outcome == ("value", [12, 22, 10])


def test_empty_canvases_have_a_value_too(durable: Any) -> None:
    assert durable(lambda: group([])).outcome == ("value", [])
    assert durable(lambda: _chain()).outcome == ("value", None)
    assert durable(lambda: group(t.add.s(1, 1), _chain())).outcome == ("value", [2])
    assert durable(lambda: t.add.chunks([], 2)).outcome == ("value", [])


# -- what plain Celery leaves without a result -------------------------------------------------------------------------


def test_a_task_that_is_ignored_has_the_value_none(durable: Any) -> None:
    got = durable(t.ignored.s)
    assert got.outcome == ("value", None)
    assert got.seen == [("ran", "ignored")]
    assert [name for name, _ in got.signals] == ["task_prerun", "task_postrun"]


def test_autoretry_leaves_an_ignored_task_alone(durable: Any) -> None:
    assert durable(t.auto_ignores.s).seen == [("ran", "auto_ignores")]


def test_a_chain_ends_with_a_member_that_was_ignored(durable: Any) -> None:
    got = durable(lambda: chain(t.add.s(1, 2), t.ignored.si(), t.add.si(3, 4)))
    assert got.outcome == ("value", None)
    assert got.seen == [("ran", "add", 1, 2), ("ran", "ignored")]


def test_a_task_that_rejects_its_message_for_good_has_failed(durable: Any) -> None:
    got = durable(t.rejected.s)
    assert got.outcome == ("error", "Reject")
    assert got.seen == [("ran", "rejected")]


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "seconds"),
    [(t.backs_off, [2, 4, 8]), (t.backs_off_to_a_limit, [5, 7, 7])],
    ids=["retry_backoff", "retry_backoff_max"],
)
def test_a_back_off_is_the_tasks_own_and_its_waits_are_rows(task: Any, seconds: list[int], pump: Pump) -> None:
    t.seen.clear()
    handle = run(task.s())
    for number, wait in enumerate(seconds, 1):
        pump.drain()
        row = StepResult.objects.get()
        assert (row.state, row.failures, len(t.seen)) == ("RETRYING", number, number)
        assert row.due_at == pump.now + timedelta(seconds=wait)
        pump.advance_time(wait)
    assert handle.status == "FAILED"
    assert StepAttempt.objects.count() == 4


def test_jitter_is_celerys(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_from: list[int] = []

    def draw(most: int) -> int:
        drawn_from.append(most)
        return 20

    monkeypatch.setattr("celery.utils.time.random.randrange", draw)
    handle = run(t.backs_off_by_dice.s())
    pump.drain()
    assert StepResult.objects.get().due_at == pump.now + timedelta(seconds=20)
    assert drawn_from == [61]
    pump.advance_time(20)
    assert handle.status == "FAILED"


class Strict:
    """A guard that interrupts each body that has a soft limit, where `existing.interrupt` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fired = False
        self.limited: list[tuple[float | None, float | None]] = []
        self._monkeypatch = monkeypatch

    def limit(self, seconds: float | None, token: str) -> Any:
        raise AssertionError("an existing task has two limits")

    @contextmanager
    def limits(self, soft: float | None, hard: float | None, token: str) -> Iterator[None]:
        self.limited.append((soft, hard))
        self.fired = False
        self._monkeypatch.setattr(t, "interrupt", self._strike)
        yield

    def _strike(self) -> None:
        self.fired = True
        raise SoftTimeLimitExceeded


def test_a_soft_time_limit_is_the_tasks_to_catch(pump: Pump, durable: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pump.guard = guard = Strict(monkeypatch)
    assert durable(lambda: t.slow.s(careful=True)).outcome == ("value", "tidied up")
    assert guard.limited == [(3, 9)]


def test_a_soft_time_limit_that_is_not_caught_is_a_time_out(
    pump: Pump, durable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump.guard = Strict(monkeypatch)
    assert durable(lambda: t.slow.s(careful=False)).outcome == ("error", "SoftTimeLimitExceeded")
    row = StepResult.objects.get()
    assert row.unknown_end
    assert '"timed_out": true' in (row.failure or "")


def test_a_soft_time_limit_is_retried_where_the_task_says_so(
    pump: Pump, durable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump.guard = Strict(monkeypatch)
    got = durable(t.slow_and_retried.s)
    assert got.outcome == ("error", "SoftTimeLimitExceeded")
    assert got.seen == [("ran", "slow_and_retried")] * 2


def test_limits_in_the_signature_hold_instead_of_the_tasks(
    pump: Pump, durable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump.guard = guard = Strict(monkeypatch)
    durable(lambda: t.slow.s(careful=True).set(soft_time_limit=1, time_limit=2))
    assert guard.limited == [(1, 2)]


def test_a_hard_time_limit_ends_the_step_for_good(pump: Pump) -> None:
    def linger() -> None:
        pump.advance_time(10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(t, "interrupt", linger)
        handle = run(t.slow.s(careful=True))
        pump.finish()
    assert handle.status == "FAILED"
    assert StepResult.objects.get().attempt == 1
    assert "TimeoutError" in str(handle.history()[0].error)


def test_a_countdown_is_a_row_of_its_own_and_passes_in_no_time(pump: Pump) -> None:
    t.seen.clear()
    handle = run(t.add.s(1, 2).set(countdown=3600))
    pump.drain()
    assert [(one.position, one.kind) for one in handle.history()] == [("1", "chain"), ("1.0", "timer")]
    assert t.seen == []
    pump.advance_time(3600)
    assert handle.result(timeout=0) == 3


def test_what_expires_in_the_queue_never_runs(pump: Pump) -> None:
    t.seen.clear()
    pump.fate = lambda hint: () if hint.step else (0.0,)
    handle = run(t.add.s(1, 2).set(expires=60))
    pump.drain()
    pump.fate = lambda hint: (0.0,)
    pump.now += timedelta(seconds=61)
    pump.tick()
    pump.drain()
    assert handle.status == "FAILED"
    assert t.seen == []


# -- what is refused, and what to use instead --------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "link": (lambda: t.add.s(1, 2).set(link=t.echo.s()), "yield the callback next"),
    "link_error": (lambda: t.add.s(1, 2).set(link_error=t.echo.s()), "try/except StepFailed"),
    "a link within a chain": (lambda: chain(t.add.s(1, 2), t.add.s(3).set(link=t.echo.s())), "yield the callback next"),
    "a fixed task id": (lambda: t.add.s(1, 2).set(task_id="mine"), "self.request.id"),
    "a stamp": (lambda: stamped(t.add.s(1, 2)), "headers="),
    "a routing key": (lambda: t.add.s(1, 2).set(routing_key="there"), "task_routes"),
    "an unknown option": (lambda: t.add.s(1, 2).set(colour="red"), "which a workflow does not know"),
    "a rate limit": (lambda: t.limited.s(), "@step(rate_limit=...)"),
    "a chord without a body": (lambda: chord([t.add.s(1, 2)]), "has no body"),
    "something else": (lambda: {"a": 1}, "takes a Celery signature"),
}


def stamped(sig: Any) -> Any:
    sig.stamp(colour="red")
    return sig


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_durable_form_is_refused_before_anything_runs(what: str, pump: Pump) -> None:
    make, instead = REFUSED[what]
    with pytest.raises(UsageError) as refused:
        run(make())
    assert instead in str(refused.value)
    assert not StepResult.objects.exists()


def test_replace_is_refused_whatever_is_retried(durable: Any) -> None:
    got = durable(t.replaces_itself.s)
    assert got.outcome == ("error", "UsageError")
    assert got.seen == [("ran", "replaces_itself")]
    assert "yield other.s(...)" in (StepResult.objects.get().failure or "")


def test_a_result_that_cannot_be_kept_is_a_failure_to_all_who_watch(durable: Any) -> None:
    got = durable(t.unkeepable.s)
    assert got.outcome == ("error", "NotSerializable")
    assert [name for name, _ in got.signals] == ["task_prerun", "task_failure", "task_postrun"]


def test_a_task_that_returns_a_task_it_started_is_told_to_yield_it(durable: Any, worker_app: Any) -> None:
    got = durable(t.starts_another.s)
    assert got.outcome == ("error", "NotSerializable")
    assert "yield that task in the workflow instead" in (StepResult.objects.get().failure or "")


# -- in a workflow -----------------------------------------------------------------------------------------------------


@step
def double(number: int) -> int:
    return number * 2


@workflow
def uses_them(number: int) -> Workflow[list[Any]]:
    plain_yield = yield t.add.s(number, 1)
    typed = yield from canvas(t.add.s(number, 2) | t.add.s(3))
    both = yield from gather(double(number), canvas(group(t.add.s(1, 1), t.add.s(2, 2))))
    own = yield double.s(number)
    mixed = yield double.s(number) | t.add.s(1) | double.s()
    return [plain_yield, typed, both, own, mixed]


def test_signatures_stand_where_commands_do(pump: Pump) -> None:
    handle = uses_them.start(5)
    pump.finish()
    assert handle.result(timeout=0) == [6, 10, (10, [2, 4]), 10, 22]
    rows = {one.position: (one.kind, one.name) for one in handle.history()}
    assert rows == {
        "1": ("step", t.add.name),
        "2": ("chain", ""),
        "2.0": ("step", t.add.name),
        "2.1": ("step", t.add.name),
        "3": ("gather", ""),
        "3.0": ("step", double.name),
        "3.1": ("gather", ""),
        "3.1.0": ("step", t.add.name),
        "3.1.1": ("step", t.add.name),
        "4": ("step", double.name),
        "5": ("chain", ""),
        "5.0": ("step", double.name),
        "5.1": ("step", t.add.name),
        "5.2": ("step", double.name),
    }


def test_a_wrong_call_blocks_where_it_is_yielded(pump: Pump) -> None:
    @workflow(name="tests.existing.wrong_call")
    def wrong_call() -> Workflow[Any]:
        return (yield t.add.s(1))

    handle = wrong_call.start()
    pump.finish()
    assert handle.status == "BLOCKED"
    assert "TypeError" in handle.waiting_for


def test_canvas_outside_a_workflow_names_what_to_use() -> None:
    with pytest.raises(NotInWorkflow, match=r"durable_celery\.run"):
        _ = canvas(t.add.s(1, 2))


def test_another_number_of_members_does_not_fit_the_journal(pump: Pump) -> None:
    members = [t.add.s(1, 2), t.add.s(3)]

    @workflow(name="tests.existing.growing")
    def growing() -> Workflow[Any]:
        value = yield _chain(*members)
        yield t.add.s(1, 1).set(countdown=1000)
        return value

    handle = growing.start()
    pump.drain()
    members.append(t.add.s(4))
    pump.advance_time(2000)
    assert handle.status == "BLOCKED"
    assert "recorded is chain of 2 members" in handle.waiting_for


def test_lost_doubled_and_reordered_messages_change_nothing(pump: Pump) -> None:
    t.seen.clear()
    pump.fate = lambda hint: () if hint.number % 3 == 0 else (0.0, 7.0)
    pump.choose = lambda ready: len(ready) - 1
    handle = run(chord([t.add.s(1, 1) | t.add.s(1), t.add.s(2, 2)], t.total.s() | t.add.s(1)))
    pump.finish()
    assert handle.result(timeout=0) == 8
    assert len(t.seen) == 5


@pytest.mark.parametrize("proven", [True, False], ids=["proven", "by its lease"])
def test_a_task_whose_process_dies_is_run_again_and_no_retry_is_counted(proven: bool, pump: Pump) -> None:
    t.seen.clear()
    pump.kill_at("record.before", proven=proven)
    handle = run(t.look.s(1))
    pump.finish()
    assert handle.result(timeout=0)["retries"] == 0
    assert StepResult.objects.get().attempt == 2


def test_a_retry_in_another_queue_goes_there_and_keeps_its_headers(pump: Pump) -> None:
    handle = run(t.moves.s().set(queue="quick", headers={"tenant": "a"}))
    pump.finish()
    assert [hint.queue for hint in pump.sent if hint.step] == ["quick", "slow"]
    assert handle.result(timeout=0) == {"tenant": "a"}


@workflow(name="tests.existing.taken_back")
def taken_back() -> Workflow[None]:
    yield canvas(t.add.s(1, 2)).compensate_with(canvas(t.echo.s("taken back")))
    yield t.fail.s()


def test_an_existing_task_can_be_compensated_and_compensate(pump: Pump) -> None:
    t.seen.clear()
    handle = taken_back.start()
    pump.finish()
    assert handle.status == "FAILED"
    assert t.seen == [("ran", "add", 1, 2), ("ran", "fail"), ("ran", "echo")]


def test_run_takes_the_options_of_a_start(pump: Pump) -> None:
    first, second = run(t.add.s(1, 2), key="once"), run(t.add.s(1, 2), key="once")
    pump.finish()
    assert first.id == second.id
    assert first.result(timeout=0) == 3


def test_what_a_row_waits_for_counts_by_the_tasks_own_rules(pump: Pump) -> None:
    handle = run(t.backs_off.s())
    pump.drain()
    assert f"step {t.backs_off.name} at 1, attempt 1 is over after Unreachable: away" in handle.waiting_for


def test_the_row_says_that_it_is_an_existing_task_and_how_it_is_routed(pump: Pump) -> None:
    run(group(t.with_options.s(), t.add.map([]), t.add.s(1, 2).set(queue="vip", priority=9)))
    pump.drain()
    names = {t.with_options.name, "celery.map", t.add.name}
    rows = StepResult.objects.filter(Q(name__in=names))
    sent = {hint.name: hint for hint in pump.sent if hint.step}
    assert {row.name for row in rows} == names == set(sent)
    assert sent[t.add.name].queue == "vip"
    assert sent[t.with_options.name].after == (40, None)
    assert current_app().tasks[t.with_options.name].queue == "own"
