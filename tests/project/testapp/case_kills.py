"""Steps and workflows of the cases about kills, time limits and lost messages, and what two variables of a worker's
environment do to it.

TEST_KILLS         a folder: a file `turn.before_commit` in it kills the process that reaches this fault point first
TEST_LOSES_EVERY   a number: of the messages each process publishes, every such one goes nowhere
"""

from __future__ import annotations

import os
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

from kombu.messaging import Producer

from durable_celery import RetryPolicy, Signal, StepFailed, Workflow, current_step, faults, sleep, step, workflow
from tests.project.testapp.models import Effect
from tests.project.testapp.steps import die, flaky, hopeless, linger, note, say

QUICK = RetryPolicy(initial_interval=0.1, backoff_coefficient=1.0, maximum_attempts=3, jitter=False)
go_on = Signal("go_on", str)


# -- time limits and retries -------------------------------------------------------------------------------------------


@step(start_to_close_timeout=1)
def deaf(run: str, times: int) -> int:
    """Hears no exception on its first `times` attempts and works for half a minute; then returns 7 at once."""
    note(run, "deaf")
    ends_at = time.monotonic() + 30
    while current_step().attempt <= times and time.monotonic() < ends_at:
        try:
            time.sleep(ends_at - time.monotonic())
        except Exception:
            pass
    return 7


@step
def take_time(run: str, seconds: float) -> str:
    note(run, "took time")
    time.sleep(seconds)
    return "done"


@workflow
def limited(run: str, times: int, attempts: int) -> Workflow[int]:
    retry = RetryPolicy(initial_interval=0.1, maximum_attempts=attempts, jitter=False)
    return (yield from deaf.using(retry=retry)(run, times))


@workflow
def taking_time(run: str, seconds: float) -> Workflow[str]:
    return (yield from take_time(run, seconds))


@workflow
def retrying_after(run: str, seconds: float, failures: int) -> Workflow[int]:
    retry = RetryPolicy(initial_interval=seconds, backoff_coefficient=1, maximum_attempts=4, jitter=False)
    return (yield from flaky.using(retry=retry)(run, "flaky", failures))


# -- deaths ------------------------------------------------------------------------------------------------------------


@workflow
def surviving(run: str, marks: str, deaths: int) -> Workflow[list[Any]]:
    try:
        return [(yield from die(run, marks, deaths))]
    except StepFailed as error:
        return ["failed", error.lost, error.attempts]


@workflow
def dying_once(run: str, marks: str) -> Workflow[int]:
    return (yield from die.using(on_lost="fail")(run, marks, 99))


@step
def second_thoughts(run: str, gate: str, end: str) -> str:
    """Its first attempt goes on until the file `gate` is there, then returns A or raises; any other returns B."""
    note(run, f"attempt {current_step().attempt}")
    if current_step().attempt > 1:
        return "B"
    ends_at = time.monotonic() + 60
    while not Path(gate).exists() and time.monotonic() < ends_at:
        time.sleep(0.02)
    note(run, "late")
    if end == "raises":
        raise RuntimeError("A")
    return "A"


@workflow
def reconsidering(run: str, gate: str, end: str) -> Workflow[str]:
    taken = yield from second_thoughts(run, gate, end)
    yield from say(run, f"took {taken}")
    return taken


@workflow
def lingering_in(run: str, gate: str, queue: str) -> Workflow[str]:
    """Its one step goes by that queue; start it `.using(queue=queue)` for its turns."""
    return (yield from linger.using(queue=queue)(run, "lingering", gate))


# -- a bit of everything -----------------------------------------------------------------------------------------------


@step(retry=QUICK)
def unlucky(run: str) -> str:
    """Raises at its first execution."""
    first = not Effect.objects.filter(run=run, what="unlucky").exists()
    note(run, "unlucky")
    if first:
        raise RuntimeError("no luck")
    return "lucky"


@workflow
def all_sorts(run: str) -> Workflow[None]:
    """A step with a compensation, a retried one, a signal, a timer, and a failure that sets off the compensation."""
    plain = yield from say(run, "plain").compensate_with(say(run, "taken back"))
    luck = yield from unlucky(run)
    word = yield from go_on.wait()  # durable: ok
    yield from sleep(0.1)
    yield from say(run, f"{plain}, {luck}, {word}")
    yield from hopeless(run, "hopeless")


# -- what a worker's environment adds ----------------------------------------------------------------------------------


def obey_kills(folder: str) -> None:
    """One death a file, whichever process of the worker it meets: who removes the file dies."""

    def reached(name: str) -> None:
        try:
            Path(folder, name).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    faults.set_hook(reached)


def lose_every(number: int) -> None:
    """Make `Producer.publish` return without publishing, every so often."""
    publish: Any = Producer.publish
    numbers = count(1)

    def losing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if next(numbers) % number == 0 else publish(self, *args, **kwargs)

    setattr(Producer, "publish", losing)  # noqa: B010 - kombu has no types


if os.environ.get("TEST_KILLS"):
    obey_kills(os.environ["TEST_KILLS"])
if os.environ.get("TEST_LOSES_EVERY"):
    lose_every(int(os.environ["TEST_LOSES_EVERY"]))
