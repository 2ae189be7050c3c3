"""Replays a run's journal, here or in processes with other hash seeds: the body must ask for what stands there.

The order of a set of strings is the same within one process; only another hash seed shows that a body depends on it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from durable_celery import calls, codec, finals, runtime, surroundings
from durable_celery.core import complaints, transitions
from durable_celery.core.chaining import ChainCommand
from durable_celery.core.commands import Command, ShieldCommand, StepCommand
from durable_celery.core.journal import CANCEL, DEADLINE, Entry, Journal
from durable_celery.core.replay import replay
from durable_celery.engine import execution, verdicts
from durable_celery.engine.info import info_of
from durable_celery.errors import NonDeterminism, UsageError
from durable_celery.registry import registry
from durable_celery.replayed import WorkflowInfo
from durable_celery.testing.determinism import ADVICE, is_mismatch, watched

SEEDS = 4  # processes; a set of two strings stands in the same order in one of two


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A run as it is stored, and where its body's code is."""

    info: WorkflowInfo
    module: str
    file: str
    args: str
    context: dict[str, Any]
    journal: Journal
    turn: int
    now: datetime
    started_at: datetime | None
    state: str
    result: str | None


def recorded(run_id: UUID) -> Recorded:
    """Read a run with the arguments of its steps."""
    rt = runtime.current()
    loaded = rt.store.load(run_id, args=True)
    assert loaded is not None, f"run {run_id} is gone: was the database emptied since?"
    row = loaded.instance
    body = registry.workflow(row.name, row.version).body
    now = row.turn_at or rt.clock.now()
    return Recorded(
        info=info_of(row, now), module=body.__module__,
        file=getattr(sys.modules.get(body.__module__), "__file__", None) or "", args=row.args,
        context=dict(row.context), journal=loaded.journal, turn=row.turn, now=now, started_at=row.started_at,
        state=row.state, result=row.result,
    )  # fmt: skip


def disagreement(run: Recorded) -> NonDeterminism | None:
    """Replay a run in this process; the first thing the body asks for that its journal does not have.

    The last turn may have ended it without its body (a cancel before the start, a time-out of its cleanup): then the
    state before that turn counts.
    """
    found = _disagreement(run)
    if found is None or not _was_asked_to_end(run):
        return found
    return _disagreement(replace(run, turn=run.turn - 1)) if run.turn > 1 else None


def _was_asked_to_end(run: Recorded) -> bool:
    asked = any(message.kind in (CANCEL, DEADLINE) for message in run.journal.messages)
    return asked and run.state in transitions.FINAL_STATES


def _disagreement(run: Recorded) -> NonDeterminism | None:
    rt = runtime.current()
    definition = registry.workflow(run.info.name, run.info.version)
    args, kwargs = calls.decode_call(run.args)
    entries = {entry.position: entry for entry in run.journal.entries}
    found: list[NonDeterminism] = []

    def see(ordinal: int, yielded: Any, line: str) -> None:
        if isinstance(yielded, Command) and not found:
            found.extend(_other_arguments(run, entries, str(ordinal), yielded, line))

    with rt.store.refuse_queries(), surroundings.restored(run.context):
        decision = replay(
            watched(definition.body, see), args, kwargs, run.journal, turn=run.turn + 1, now=run.now,
            started_at=run.started_at, decode=codec.decode, encode=lambda value, root: codec.encode(value, root=root),
            adapt=rt.transport.adapt, fails_on=definition.options.fails_on,
            interrupts=execution.interrupts_a_turn, in_finally=finals.in_finally, recorded_only=True, info=run.info,
        )  # fmt: skip
    if found:
        return found[0]
    if is_mismatch(decision) and decision.failure is not None:
        return NonDeterminism(decision.failure.message, instance_id=run.info.id)
    if run.state == transitions.COMPLETED and not _same_end(run, decision.state, decision.value):
        return _mismatch(
            run, "", f"the result {run.result}", f"{decision.state} with {decision.value!r:.80}", "at its end"
        )
    return None


def _other_arguments(
    run: Recorded, entries: dict[str, Entry], position: str, command: Command[Any], line: str
) -> list[NonDeterminism]:
    """What is asked for with other arguments than were recorded, at this position or below it."""
    if isinstance(command, ShieldCommand):
        return _other_arguments(run, entries, position, command.member, line)
    if isinstance(command, ChainCommand):
        return []  # its members are made of each other's results
    entry = entries.get(position)
    if isinstance(command, StepCommand) and entry is not None and entry.name == command.name:
        # An existing task may have asked to be tried again with other arguments.
        own_rules = verdicts.terms_of(command.terms.text).task is not None and entry.attempt > 1
        if not own_rules and not _same_call(entry.args, command.args):
            what = complaints.words(entry)
            return [_mismatch(run, position, f"{what}{_shown(entry.args)}", f"{what}{_shown(command.args)}", line)]
    for number, part in enumerate(command.parts()):
        if wrong := _other_arguments(run, entries, f"{position}.{number}", part, line):
            return wrong
    return []


def _same_call(one: str, other: str) -> bool:
    return one == other or calls.decode_call(one) == calls.decode_call(other)


def _same_end(run: Recorded, state: str, value: Any) -> bool:
    if state != run.state or run.result is None:
        return state == run.state
    # By text for values whose class knows no equality, by value for those whose text differs, such as sets.
    return codec.encode(value, root="result") == run.result or bool(codec.decode(run.result) == value)


def _shown(call: str) -> str:
    args, kwargs = calls.decode_call(call)
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"


def _mismatch(run: Recorded, position: str, one: str, other: str, line: str) -> NonDeterminism:
    return NonDeterminism(
        f"the body of {run.info.name} ({run.info.id}) is not deterministic: at position {position or '-'} ({line}) is "
        f"recorded {one}, and a replay asks for {other}. {ADVICE}",
        instance_id=run.info.id, position=position, recorded=one, requested=other,
    )  # fmt: skip


# -- other processes ---------------------------------------------------------------------------------------------------


class Replayer:
    """A process with a hash seed of its own that replays what it is given; it lives as long as this one."""

    def __init__(self, seed: int) -> None:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "django_app.replaying"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def send(self, run: Recorded) -> None:
        """Have a run replayed."""
        assert self._process.stdin is not None
        pickle.dump(run, self._process.stdin)
        self._process.stdin.flush()

    def receive(self) -> NonDeterminism | None:
        """What came of the run sent last; ``UsageError`` if the process cannot replay it."""
        assert self._process.stdout is not None
        try:
            answer = pickle.load(self._process.stdout)
        except EOFError:
            raise UsageError(
                "the process that replays under another hash seed has died; see its standard error"
            ) from None
        if isinstance(answer, UsageError):
            raise answer
        return answer if isinstance(answer, NonDeterminism) else None


_replayers: list[Replayer] = []


def disagreement_elsewhere(runs: Sequence[Recorded]) -> NonDeterminism | None:
    """Replay runs under other hash seeds. Their bodies must be found by a fresh process, in a module."""
    own = os.environ.get("PYTHONHASHSEED", "")
    seeds = [seed for seed in range(1, SEEDS + 2) if str(seed) != own][:SEEDS]
    while len(_replayers) < SEEDS:
        _replayers.append(Replayer(seeds[len(_replayers)]))
    found: NonDeterminism | None = None
    for run in runs:
        for replayer in _replayers:
            replayer.send(run)
        for replayer in _replayers:
            found = replayer.receive() or found
    return found


def answer_to(run: Recorded) -> Exception | None:
    """In such a process: find the code and replay the run."""
    try:
        _import(run)
        if (run.info.name, run.info.version) not in registry.workflows:
            raise UsageError(
                f"workflow {run.info.name} is not found by importing {run.module}: a process with another hash seed "
                "knows what modules define, not what a function defines while a test runs"
            )
        return disagreement(run)
    except Exception as error:  # noqa: BLE001 - it goes to whoever asked
        return error if isinstance(error, UsageError) else UsageError(f"{type(error).__name__}: {error}")


def _import(run: Recorded) -> None:
    """By name, or where pytest found a test module by its path, by that."""
    try:
        importlib.import_module(run.module)
    except ImportError:
        spec = importlib.util.spec_from_file_location(run.module, run.file) if run.file else None
        if spec is None or spec.loader is None:
            raise
        sys.modules[run.module] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def serve(read: Callable[[], Any], write: Callable[[Any], object]) -> None:
    """Answer until nobody asks."""
    while True:
        try:
            run = read()
        except EOFError:
            return
        write(answer_to(run))
