"""``Harness``: the database is real, the broker, the workers and the clock are in this object."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload
from uuid import UUID

from durable_celery import canvases, runtime, sweeps
from durable_celery.celery.inline import InlineTransport, MovedClock
from durable_celery.celery.transport import CeleryTransport
from durable_celery.core import transitions
from durable_celery.core.failure import Failure
from durable_celery.errors import BadValue, NonDeterminism, UsageError, type_name
from durable_celery.messages import Signal
from durable_celery.ports import TestedStore
from durable_celery.runtime import Runtime
from durable_celery.testing import mocks
from durable_celery.testing.crashing import everywhere
from durable_celery.testing.determinism import decide_twice
from durable_celery.testing.mocks import Mock
from durable_celery.testing.replaying import disagreement, disagreement_elsewhere, recorded
from durable_celery.testing.reports import Report
from durable_celery.testing.runs import Run, handle_of
from durable_celery.twins import Starts

P = ParamSpec("P")
R = TypeVar("R")

HOPS = 10_000  # of the clock in one call, after which a workflow sleeps in an endless loop
NUDGE = timedelta(milliseconds=100)


class Harness:
    """Runs workflows in this thread while the ``with`` block is open; pytest's fixture ``durable`` is one.

    Time stands still but for ``run``, ``finish`` and ``advance_time``; there what falls due happens, in order, and
    takes no real time. ``now``: where the clock begins; by default at this moment.
    ``check``: take each decision of a body twice, and raise ``NonDeterminism`` if the second is another.

    It works inside a transaction that is never committed (``TestCase``, pytest-django's ``db``) as outside of one
    (``transactional_db``): the transaction around the test does not count as one. A transaction that the test opens
    does: what is started inside runs after the block, and ``on_commit`` calls of the tested code run as they would.
    """

    def __init__(self, *, now: datetime | None = None, check: bool = True) -> None:
        self.check = check
        if now is not None and (not isinstance(now, datetime) or now.utcoffset() is None):
            raise BadValue(f"now={now!r:.80} is not allowed, expected a datetime with a time zone", path="now")
        self._begin = now
        self._parts: Runtime | None = None  # while it is open
        self._thread = threading.get_ident()
        self._at_work = threading.RLock()
        self._mocks = ExitStack()
        self._before: Runtime | None = None
        self._clock: MovedClock
        self._transport: InlineTransport
        self._store: TestedStore
        self._process: Callable[[], AbstractContextManager[object]] = nullcontext  # in which a message is worked on

    def __enter__(self) -> Harness:
        if self._parts is not None:
            raise UsageError("this kit is open already; open another one by Harness(), or use it as it is")
        self._before = runtime.current()
        # In UTC: elsewhere a day is not always 24 hours.
        self._install(self._before, (self._begin or datetime.now(timezone.utc)).astimezone(timezone.utc))
        return self

    def _install(self, outer: Runtime, begin: datetime) -> None:
        self._clock = MovedClock(begin)
        self._store = outer.store.for_tests(self._clock.local)
        self._transport = InlineTransport(
            CeleryTransport(outer.settings), self._clock, node="test", after_body=self._store.run_committed
        )
        self._parts = Runtime(
            store=self._store, transport=self._transport, settings=outer.settings, clock=self._clock,
            decide=self._decide, idle=self._play_worker, refuse_endless=self._refuse_endless,
            lasting=True,
        )  # fmt: skip
        self._thread = threading.get_ident()
        runtime.install(self._parts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mocks.close()
        self._parts = None
        runtime.install(self._before)

    @property
    def now(self) -> datetime:
        """The virtual time, aware UTC."""
        return self._clock.at

    # -- running

    @overload
    def run(self, workflow: Starts[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def run(self, workflow: Any, /) -> Run[Any]: ...
    def run(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Run[Any]:
        """Start a workflow and let time pass until it has ended, or waits for what no clock brings.

        ``workflow`` may have options (``fulfil_order.using(key="7")``), or be a Celery canvas. ``NonDeterminism`` if
        the body does not fit its own journal; any other bug leaves the run BLOCKED, as in production.
        """
        self._refuse_inside("run")
        started = self.start(workflow, *args, **kwargs)
        self.finish(started)
        if self.check:
            self._raise_mismatch(started)
        return started

    @overload
    def start(self, workflow: Starts[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def start(self, workflow: Any, /) -> Run[Any]: ...
    def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Run[Any]:
        """Start a workflow, and run what can be run at this moment. Inside ``atomic()`` nothing runs before its end."""
        self._refuse_closed("start")
        if hasattr(workflow, "start"):
            handle = workflow.start(*args, **kwargs)
        elif args or kwargs or self._transport.plain(workflow) is None:
            raise BadValue(
                f"a run takes a workflow and its arguments, or a Celery signature such as task.s(...) alone; got "
                f"{workflow!r:.80}. A step by itself runs without the kit: step.call(...)", path="workflow"
            )  # fmt: skip
        else:
            handle = canvases.run(workflow)
        self._settle()
        return Run(handle, self._steps_of)

    def run_of(self, target: Any) -> Run[Any]:
        """The run of a handle or an id, such as of an instance that a view has started."""
        return Run(handle_of(target), self._steps_of)

    def signal(self, target: Any, signal: Signal[Any] | str, payload: Any = None, signal_id: str | None = None) -> None:
        """Send a message to a run, handle or id, by a ``Signal`` or a name, and run what follows at this moment."""
        self._refuse_closed("signal")
        with self._process():
            if isinstance(signal, str):
                handle_of(target).signal(signal, payload, signal_id)
            else:
                signal.send(handle_of(target), payload, signal_id=signal_id)
        self._settle()

    def run_until_idle(self) -> None:
        """Run all that can be run at this moment. Time stands still; refused inside ``atomic()``."""
        self._refuse_inside("run_until_idle")
        self._settle()

    def advance_time(self, seconds: float | timedelta = 0, **duration: float) -> None:
        """Let this much time pass (``days=3``, a timedelta or seconds): what falls due happens at its own time."""
        self._refuse_inside("advance_time")
        try:
            given = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
            target = self.now + given + timedelta(**duration)
        except (TypeError, ValueError, OverflowError) as error:
            what = ", ".join([repr(seconds), *(f"{name}={value!r}" for name, value in duration.items())])
            raise BadValue(
                f"advance_time({what}): {error}; expected seconds, a timedelta, or days=, hours=, minutes=, weeks=, up "
                "to the year 9999", path="seconds"
            ) from None  # fmt: skip
        if target < self.now:
            raise BadValue(f"advance_time cannot go back by {self.now - target}", path="seconds")
        self._settle()
        self._hop_until(target, lambda: False)
        self._clock.at = max(target, self.now)
        sweeps.tick(by="test", force=True)
        self._settle()

    def finish(self, target: Any) -> None:
        """Let time pass until this run (a handle, an id) has ended, is blocked, or waits for what no clock brings."""
        self._refuse_inside("finish")
        handle = handle_of(target)
        self._settle()
        self._hop_until(None, lambda: handle.status in (*transitions.FINAL_STATES, transitions.BLOCKED))

    def query(self, target: Any, name: str, *args: Any) -> Any:
        """Ask a run (a handle, an id) what its ``query(name, ...)`` answers; see ``WorkflowHandle.query``."""
        return handle_of(target).query(name, *args)

    def update(self, target: Any, name: str, *args: Any, update_id: str | None = None) -> Any:
        """Have a run take in an update, run what follows at this moment, and return the answer.

        ``UpdateRejected`` as from ``WorkflowHandle.update``; ``TimeoutError`` if it does not take it in now.
        """
        self._refuse_inside("update")
        handle = handle_of(target)
        update_id = handle.update(name, *args, update_id=update_id, wait=False)
        self._settle()
        return handle.update(name, *args, update_id=update_id, timeout=0)

    def check_replay(self, target: Any) -> None:
        """Replay the journal of a run here and under other hash seeds; ``NonDeterminism`` if the body then asks for
        something else, or with other arguments.

        It finds what the check of each decision cannot: the order of a set of strings is the same within a process.
        The first call starts four processes that know the project's code; the workflow must be defined in a module.
        """
        runs = [recorded(run_id) for run_id in self._store.runs_of(UUID(handle_of(target).id))]
        found = next(filter(None, map(disagreement, runs)), None) or disagreement_elsewhere(runs)
        if found is not None:
            raise found

    def mock(self, target: Any, *, return_value: Any = None, side_effect: Any = None) -> Mock:
        """Put a mock in place of a step, an existing Celery task, a child workflow, or what has this name.

        Until the end of the test; a second one for the same name takes over. ``side_effect`` is an exception to raise
        on each attempt, a function to call instead, or an iterable with the value or exception of each attempt; else
        ``return_value`` is returned. Retries, time-outs and encoding are those of the real step; a child whose mock
        raises ends FAILED. ``.calls`` of what is returned are the calls so far, as ``unittest.mock.call`` values.
        """
        self._refuse_closed("mock")
        return mocks.install(target, self._mocks, return_value=return_value, side_effect=side_effect)

    def crash_everywhere(
        self,
        workflow: Any,
        /,
        *args: Any,
        during: Callable[[Run[Any]], object] | None = None,
        effects: Callable[[], object] | None = None,
        real: bool = False,
        sample: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> Report:
        """Run the workflow once for each point of the engine it passes, with a crash there, and compare.

        First it runs straight; what it passes on the way (a claim, a body, a commit, a publish; each time it does) is
        a point. Then it runs once for each of them, in a process that dies there: what is not committed is gone, what
        is not published as well, what was claimed is found by the sweep. Each run must end as the straight one did,
        with the same journal (position, kind, name, arguments, outcome) in it and in its children, and with the same
        effects: a step with ``atomic=True`` exactly as often, any other at least once and at most once more for each
        crash. Else ``AssertionError`` names the point and what was different.

        ``workflow`` may have options (``fulfil_order.using(key="7")``). ``during(run)`` is what the outside does: it is
        called whenever all is quiet, before time passes, in each run, and should go by what it sees
        (``if "approval" in run.waiting_for: durable.signal(run, approval, "ana")``). ``effects()`` is called after
        each run; what it returns, such as rows that steps have written, must be the same each time. All that a run
        writes to the database is undone after it; what steps do elsewhere is not.

        ``sample``: crash at so many of the points only, at least at one of each name, chosen by ``seed``.
        ``real``: each crash is a process that is killed (SIGKILL), and another goes on with what it has left, both on a
        copy of the database. On Linux with SQLite alone, in a test without a transaction around it
        (``transactional_db``, ``TransactionTestCase``); ``effects()`` must look at the database or at files.

        Moments in arguments and results are not compared: to recover takes (virtual) seconds.
        """
        self._refuse_inside("crash_everywhere")
        return everywhere(
            self, workflow, args, kwargs, during=during, effects=effects, real=real, sample=sample, seed=seed
        )

    # -- parts

    def _settle(self) -> None:
        """Run all that can be run at this moment, unless the test stands in a transaction of its own."""
        with self._at_work:
            while not self._store.in_transaction():
                with self._process():
                    self._store.run_committed()
                if not self._transport.hints:
                    return
                with self._process():
                    self._transport.run_next()

    def _play_worker(self) -> None:
        """While tested code waits. Not beside a thread that does so already."""
        if self._at_work.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._at_work.release()

    def _refuse_endless(self, what: str) -> None:
        if threading.get_ident() == self._thread:
            raise UsageError(
                f"{what}: without a timeout this waits for ever, for in the testing kit time stands still while a test "
                "waits; let it pass by durable.finish(run) or durable.advance_time(...), or send what is waited for"
            )

    def _hop_until(self, target: datetime | None, done: Callable[[], bool]) -> None:
        for _ in range(HOPS):
            due_at = self._store.next_look()
            if done() or due_at is None or (target is not None and due_at > target):
                return
            self._hop(due_at)
        raise AssertionError(
            f"after {HOPS} hops of the clock, at {self.now}, something still falls due at {self._store.next_look()}; "
            "does a workflow sleep in an endless loop? Then start() it and use advance_time()"
        )

    def _hop(self, due_at: datetime) -> None:
        self._clock.at = max(due_at, self.now)
        with self._process():
            sweeps.tick(by="test", force=True)
        if not self._transport.hints and self._store.next_look() == due_at:
            self._clock.at += NUDGE  # what is due cannot be done right now
        self._settle()

    def _decide(self, take: Callable[..., Any], journal: Any) -> Any:
        return decide_twice(take, journal) if self.check else take(journal)

    def _steps_of(self, chain_id: UUID) -> list[str]:
        runs = self._store.runs_of(chain_id)
        begun = dict.fromkeys(claim for claim in self._store.begun if claim[0] in runs)
        return [name for _, _, name in begun]

    def _refuse_closed(self, what: str) -> None:
        if self._parts is None:
            raise UsageError(
                f"durable.{what}() outside its block: the kit works inside 'with Harness() as durable:' alone"
            )
        if runtime.current() is not self._parts:
            raise UsageError(f"durable.{what}() while another kit is open inside this one: use that one till its end")

    def _refuse_inside(self, what: str) -> None:
        self._refuse_closed(what)
        if self._store.in_transaction():
            raise UsageError(
                f"durable.{what}() inside atomic(): what is not committed cannot run; call it after the block"
            )

    def _raise_mismatch(self, run: Run[Any]) -> None:
        """What has blocked it, or would be another on replay."""
        row = self._store.find(UUID(run.id))
        failure = Failure.from_text(row.failure) if row is not None and row.failure else Failure(type="")
        if row is not None and row.state == transitions.BLOCKED:
            if failure.type == type_name(NonDeterminism):
                raise NonDeterminism(failure.message, instance_id=run.id)
            return
        for run_id in self._store.runs_of(UUID(run.id)):
            found = disagreement(recorded(run_id))
            if found is not None:
                raise found
