"""The two doors of the engine: ``Store`` to the database, ``Transport`` to the broker; and the values that go through.

``django_app.store`` implements Store, ``durable_celery.celery.transport`` Transport. Each method says what it does in
one sentence and, where it matters, the invariant it keeps. All times are aware UTC by the database's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from durable_celery.core.failure import Failure
from durable_celery.core.journal import Journal

# -- starting ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to store. ``dedupe`` (a signal_id) makes a second one with the same value a no-op."""

    kind: str
    name: str
    payload: str
    dedupe: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInstance:
    """An instance to insert, with the rules for its key (``conflict``, ``reuse`` as in API.md)."""

    id: UUID
    name: str
    version: int
    args: str
    key: str | None = None
    conflict: str = "use_existing"
    reuse: str = "allow"
    created_at: datetime
    start_at: datetime
    look_at: datetime
    queue: str = ""
    priority: int | None = None
    deadline_at: datetime | None = None
    expected_at: datetime | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    memo: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    subject: Any = None
    parent_id: UUID | None = None
    parent_position: str = ""
    parent_close: str = "cancel"
    messages: Sequence[NewMessage] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """What became of a NewInstance: its own row (``created``), or the one that had its id or its key already."""

    id: UUID
    created: bool
    state: str
    args: str
    start_at: datetime


# -- one turn ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """An instance as a turn, a handle or a page needs it. ``turn`` is the number of the last committed turn (0: none).

    ``turn_at`` is now() of that turn. ``blocked_by`` are the fingerprints that have tried this block.
    ``closing_as`` is the final state a COMPENSATING instance goes to.
    """

    id: UUID
    chain_id: UUID
    name: str
    version: int
    key: str | None
    state: str
    revision: int
    turn: int
    turn_at: datetime | None
    args: str
    result: str | None
    failure: str | None
    waiting_for: str
    status_text: str
    blocked_by: tuple[str, ...]
    closing_as: str
    paused_at: datetime | None
    created_at: datetime
    start_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    queue: str
    priority: int | None
    parent_id: UUID | None
    parent_position: str
    attributes: Mapping[str, Any]
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An instance with its whole journal, and whether anything in it was not taken in yet."""

    instance: InstanceRow
    journal: Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """A row to insert. ``options`` is JSON: the policy and time-outs as they were at scheduling.

    ``group`` is the position of the gather it is a member of, ``join`` that of the outermost one: while any open row
    shares ``join``, an outcome needs no turn ("" means each outcome needs one). ``limited``: its group holds members
    back, so the end of one promotes the next.
    """

    position: str
    kind: str
    name: str
    state: str
    args: str = ""
    members: int = 0
    options: str = ""
    group: str = ""
    join: str = ""
    limited: bool = False
    due_at: datetime | None = None
    start_by_at: datetime | None = None
    end_by_at: datetime | None = None
    look_at: datetime | None = None
    compensation: str = ""
    queue: str = ""
    result: str | None = None
    failure: str | None = None
    finished_at: datetime | None = None  # ended in the very turn that asked for it
    abandoned: bool = False
    shielded: bool = False  # runs though the run is being cancelled: shielded, cleanup, compensation


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A timer, signal wait or gather that this turn ended: its new state, and what to show as its result."""

    entry_id: int
    state: str
    result: str | None = None
    failure: str | None = None
    finished_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCommit:
    """All that one turn changes; applied in one transaction or not at all.

    ``revision`` is the one that was loaded. ``taken_entries`` and ``taken_messages`` map row ids to their order in this
    turn. ``withdrawn`` are entry ids no longer wanted: unclaimed ones become CANCELLED, claimed ones ABANDONED; both
    are marked ``abandoned``, so that no outcome of theirs is ever news. ``closes`` (a final state, or the body's end)
    re-reads messages under the mailbox lock. ``last_message`` is the highest message id this turn saw.
    ``left_messages`` are ids it saw and did not take in: with them the re-read is exact (ids become visible out of
    order); None judges by ``last_message`` alone. ``attributes`` replaces all of them (None and empty: unchanged).
    """

    instance_id: UUID
    revision: int
    turn: int
    now: datetime
    state: str
    fingerprint: str = ""
    result: str | None = None
    failure: str | None = None
    closing_as: str = ""
    waiting_for: str = ""
    status_text: str | None = None
    attributes: Mapping[str, Any] | None = None
    entries: Sequence[NewEntry] = ()
    taken_entries: Mapping[int, int] = field(default_factory=dict)
    taken_messages: Mapping[int, int] = field(default_factory=dict)
    settled: Sequence[Settled] = ()
    withdrawn: Sequence[int] = ()
    markers: Mapping[str, str] = field(default_factory=dict)
    closes: bool = False
    last_message: int = 0
    left_messages: Sequence[int] | None = None
    look_at: datetime | None = None  # when the sweep must look at the instance itself again


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """A step row that may be claimed, as a message needs it."""

    step_id: int
    name: str
    queue: str = ""
    priority: int | None = None
    due_at: datetime | None = None  # not before this (a retry)
    close_after: float | None = None  # seconds one attempt may take
    look_after: float | None = None  # seconds after the claim at which the sweep must look
    task: str = ""  # it is an existing Celery task, and routed by this name; empty: a step of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed turn: what is to be published now, in order."""

    dispatches: Sequence[Dispatch] = ()


# -- one attempt ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step row as the judges of attempts and time-outs need it. Counters count what has happened so far."""

    id: int
    instance_id: UUID
    position: str
    kind: str
    name: str
    state: str
    options: str
    attempt: int
    failures: int
    deaths: int
    expiries: int
    resends: int
    token: str | None
    lease_id: UUID | None
    pid: int | None
    queue: str
    join: str
    group: str
    limited: bool
    scheduled_at: datetime
    started_at: datetime | None
    due_at: datetime | None
    start_by_at: datetime | None
    end_by_at: datetime | None
    close_at: datetime | None
    heartbeat_at: datetime | None
    look_at: datetime | None
    unknown_end: bool
    failure: str | None = None  # the last error so far (read by claim, open_steps, claims and due_steps alike)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A claim that was won: the row with its new token and attempt, and what the body needs.

    ``args`` is the encoded call. ``last_heartbeat`` are encoded details of an earlier attempt, or None.
    """

    step: OpenStep
    args: str
    last_heartbeat: str | None
    workflow: str
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """New values of a step row. ``None`` in ``set_*`` style is explicit: every field here is written.

    ``final`` states set ``finished_at`` and make the row an outcome; ``look_at`` says when the sweep must look next.
    """

    state: str
    attempt: int
    failures: int
    deaths: int
    expiries: int
    token: str | None
    lease_id: UUID | None = None
    pid: int | None = None
    result: str | None = None
    failure: str | None = None
    due_at: datetime | None = None
    start_by_at: datetime | None = None
    close_at: datetime | None = None
    finished_at: datetime | None = None
    look_at: datetime | None = None
    unknown_end: bool = False
    resends: int = 0
    args: str | None = None  # None: as they are
    queue: str | None = None  # None: as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """A failed, lost or superseded attempt, kept for people.

    ``outcome`` is "failed", "timed out", "lost", "superseded".
    """

    attempt: int
    outcome: str
    failure: str | None
    result: str | None = None
    started_at: datetime | None
    finished_at: datetime
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Whether a guarded change hit its row (``ok``), and the held members it let go."""

    ok: bool
    promoted: Sequence[Dispatch] = ()
    stopped: bool = False  # another attempt was to follow, but the run is being cancelled: the row FAILED instead


# -- existing Celery tasks -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    """One attempt of an existing Celery task. ``retries`` counts the ones it asked for before, as Celery does."""

    name: str
    id: str  # the same on every attempt
    root_id: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    retries: int
    node: str
    options: Mapping[str, Any]  # headers, shadow, priority, timelimit
    limited: Callable[[], AbstractContextManager[None]]  # goes around the body
    keep: Callable[[Any], str]  # encodes the result; raises PayloadError
    keep_call: Callable[[Sequence[Any], Mapping[str, Any]], str | None]  # of a retry; None: the arguments are the same


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd:
    """How an attempt of an existing task ended. ``state`` is one of Celery's: SUCCESS, FAILURE, RETRY, IGNORED,
    REJECTED.

    RETRY has ``delay``, and ``args``, ``queue`` where they change; REJECTED means that it goes back and is to run again
    after ``delay``. ``traced`` is what Celery's own tracer would return.
    """

    state: str
    value: Any = None
    result: str | None = None
    error: BaseException | None = None
    failure: Failure | None = None
    delay: timedelta = timedelta(0)
    args: str | None = None
    queue: str | None = None
    traced: Any = None


# -- processes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One process incarnation that runs steps; never identified by a worker name."""

    id: UUID
    node: str
    boot_id: str
    pid_ns: str
    pid: int
    start_ticks: int
    expires_at: datetime
    dead_at: datetime | None = None
    lag: float = 0.0  # seconds by which its process was behind its queues at the last renewal


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a body's heartbeat learns: whether its attempt is still current, and whether it is asked to stop."""

    current: bool
    cancel_requested: bool = False


class Store(Protocol):
    """Everything the engine asks of the database. Each method is its own short transaction unless it says otherwise."""

    def now(self) -> datetime:
        """The database's clock, aware UTC."""

    def measure(self) -> datetime:
        """A fresh reading of the database's clock (one statement), for the offset of this process's clock."""

    # instances
    def create(self, instances: Sequence[NewInstance]) -> Sequence[Created]:
        """Insert instances with mailbox, key and first messages IN THE CALLER'S TRANSACTION, racing for keys under a
        row lock."""

    def start_slots(
        self,
        schedule: str,
        slot_at: datetime,
        *,
        every: timedelta | None,
        behind: int,
        make: Callable[[datetime], NewInstance],
    ) -> Sequence[Created]:
        """Start an instance for this slot of a schedule and for slots missed just before; none if somebody has it."""

    def on_commit(self, call: Any) -> None:
        """Run ``call`` after the caller's transaction commits (at once if there is none), on the engine's alias.

        Robust.
        """

    def in_transaction(self) -> bool:
        """Whether the caller holds an open transaction on the engine's alias."""

    def find(self, instance_id: UUID) -> InstanceRow | None:
        """The newest run of the chain with this id."""

    def find_by_key(self, name: str, key: str) -> InstanceRow | None:
        """The open instance with this key, else the newest closed one."""

    def load(self, instance_id: UUID, *, args: bool = False) -> Loaded | None:
        """The instance and its journal.

        The number of queries does not grow with history. ``args``: those of entries too.
        """

    def has_news(self, instance_id: UUID, join: str = "") -> bool:
        """In a fresh snapshot: is there an outcome or message not taken in, and no open member of ``join`` left?"""

    def commit_turn(self, commit: TurnCommit) -> Committed | None:
        """Apply a turn by compare-and-swap on ``revision``.

        None if the revision moved or a message came before closing.
        """

    def note_waiting(self, instance_id: UUID, waiting_for: str) -> None:
        """Write ``waiting_for`` of an open instance and nothing else (revision untouched)."""

    def postpone_instance(self, instance_id: UUID, look_at: datetime | None) -> None:
        """Set when the sweep looks at this instance again."""

    def close_connections(self) -> None:
        """Close this thread's connection to the engine's database; the next use opens another."""

    def refuse_queries(self) -> AbstractContextManager[None]:
        """While open, a database query of this thread raises UsageError ("move it into a step")."""

    def history(self, instance_id: UUID) -> Sequence[Mapping[str, Any]]:
        """Rows of ``handle.history()``, in order of position then compensations, plain values (encoded texts kept)."""

    def open_steps(self, instance_id: UUID) -> Sequence[OpenStep]:
        """Rows that are not final, for ``waiting_for``."""

    # steering
    def request_end(self, instance_id: UUID, message: NewMessage, now: datetime) -> str:
        """Ask a body to end (kind "cancel" or "deadline"); "requested", or the final state it came too late for."""

    def end_now(self, instance_id: UUID, failure: str, now: datetime) -> str:
        """Terminate at once; "requested" if this did it, else the final state it came too late for."""

    def pause(self, instance_id: UUID, reason: str, now: datetime) -> str:
        """Set the overlay: no turn is taken and no step claimed; the state, or the final one it came too late for."""

    def resume(self, instance_id: UUID, now: datetime) -> str:
        """Lift the overlay."""

    def reopen(self, instance_id: UUID, now: datetime) -> None:
        """Take back a block or the turn that ended the run FAILED; ``NotRetryable`` says why it cannot be."""

    # messages
    def send(self, instance_id: UUID, message: NewMessage, now: datetime) -> bool:
        """Store a message IN THE CALLER'S TRANSACTION under the shared mailbox lock; InstanceClosed or
        InstanceNotFound.

        A message with a ``dedupe`` seen before changes nothing. True if a hint to advance is due.
        """

    # attempts
    def claim(
        self,
        step_id: int,
        *,
        token: str,
        lease_id: UUID | None,
        pid: int,
        now: datetime,
        close_at: datetime | None,
        look_at: datetime | None,
    ) -> Claimed | None:
        """Claim a step (SCHEDULED, or RETRYING and due) of an open, unpaused, unblocked instance by one guarded UPDATE.

        Sets state RUNNING, attempt + 1, ``started_at`` = now, token, lease, pid, ``close_at``, ``look_at``. None if
        there was nothing to claim: no attempt is counted then. The lease must be alive (None: no lease; in-process
        tests). One UPDATE, then one SELECT (row, its instance's name, args and context).
        """

    def arm(self, step_id: int, token: str, *, close_at: datetime | None, look_at: datetime | None) -> bool:
        """Set the deadlines of a running attempt anew, if ``token`` is still current."""

    def change_step(self, step: OpenStep, change: StepChange, *, record: AttemptRecord | None = None) -> Changed:
        """Write ``change`` where id, token, attempt and state are still those of ``step``.

        Promote held members if it ended.
        """

    def token_of(self, step_id: int) -> str:
        """What the outside names a step by: signed, the same for every attempt."""

    def step_of(self, token: str) -> OpenStep:
        """The row a token names, in whatever state; ``BadValue`` for a forged one, ``StepClosed`` if it is gone."""

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction on the engine's alias; meanwhile a write of this thread on another alias raises UsageError."""

    def atomic_attempt(self, step: OpenStep) -> AbstractContextManager[bool]:
        """``transaction`` for one attempt of an ``atomic`` step; gives whether its token is still current."""

    def atomic_committed(self, step: OpenStep) -> bool:
        """Whether that transaction was committed: the row ended and kept the token. Waits for one that is in doubt."""

    def transient(self, error: BaseException | None) -> bool:
        """Whether it is an error of the database that another try may not meet."""

    def keep_superseded(self, step_id: int, record: AttemptRecord) -> None:
        """Keep a late result for people; changes nothing else."""

    def heartbeat(
        self, step_id: int, token: str, details: str | None, now: datetime, look_at: datetime | None
    ) -> Heartbeat:
        """Note a sign of life of the current attempt."""

    def note_step_unknown(self, step_id: int, waiting_for: str, look_at: datetime) -> None:
        """Leave a claimable row for a worker that knows its step: say so on its instance, look again at ``look_at``."""

    def dispatches(self, step_ids: Iterable[int]) -> Sequence[Dispatch]:
        """What is needed to publish these rows."""

    # processes
    def open_lease(self, lease: Lease) -> None:
        """Insert a lease."""

    def renew_lease(self, lease_id: UUID, expires_at: datetime, *, lag: float = 0.0) -> bool:
        """Extend a lease that is not dead and note its ``lag``; False if it was declared dead."""

    def leases(self) -> Sequence[Lease]:
        """All leases not yet declared dead."""

    def bury_lease(self, lease_id: UUID, now: datetime, *, expired_by: datetime | None = None) -> bool:
        """Declare a lease dead; with ``expired_by`` only if it has expired before that. True for the one who did it."""

    def close_lease(self, lease_id: UUID) -> None:
        """Remove a lease whose process ends in good order."""

    def claims(self, *, lease_id: UUID | None = None, pid: int | None = None, limit: int = 1000) -> Sequence[OpenStep]:
        """RUNNING (and ABANDONED) steps of one lease (and child), or of dead and vanished leases when ``lease_id`` is
        None."""

    # the clock
    def take_tick(self, now: datetime, interval: timedelta, by: str) -> datetime | None:
        """Win this interval's tick by compare-and-swap; None if lost, else since when ticks have run without a gap."""

    def due_steps(self, now: datetime, limit: int) -> Sequence[OpenStep]:
        """Rows whose ``look_at`` has come, oldest first, of any kind, of instances that are neither paused nor
        blocked."""

    def postpone_step(self, step: OpenStep, look_at: datetime | None, *, resends: int | None = None) -> bool:
        """Move ``look_at`` if nobody else has: the sweep that wins acts, any other does nothing."""

    def due_instances(self, now: datetime, limit: int) -> Sequence[InstanceRow]:
        """Instances whose ``look_at`` has come, oldest first."""

    def due_messages(self, now: datetime, limit: int) -> Sequence[UUID]:
        """Instances with a message older than its grace that no turn took in; its ``look_at`` is moved on."""

    def blocked(self, known: Mapping[tuple[str, int], str], limit: int) -> Sequence[UUID]:
        """BLOCKED instances of these workflows (name, version) that this fingerprint has not tried yet."""

    def next_look(self) -> datetime | None:
        """The earliest ``look_at`` of steps and instances, for a tick that sleeps no longer than needed."""


class Transport(Protocol):
    """Everything the engine asks of the broker. A message is a hint: failure is remembered, never raised."""

    def dispatch(self, dispatches: Sequence[Dispatch], now: datetime) -> int:
        """Publish step messages (ids only); returns how many went out. At most PUBLISH_TIMEOUT in total."""

    def advance(self, instance_id: UUID, queue: str = "", *, delay: float = 0) -> bool:
        """Publish a hint that this instance has something to do."""

    def task(self, name: str) -> Any:
        """The Celery task of that name on the current app, for plain ``.delay()`` and the like."""

    def adapt(self, yielded: Any) -> Any:
        """The command a Celery signature stands for, or None if it is no signature."""

    def plain(self, canvas: Any) -> Any:
        """A Celery signature as plain data that ``adapt`` takes too; None if it is none, or has no durable form."""

    def run_task(self, call: TaskCall) -> TaskEnd:
        """Run an attempt of an existing task as Celery would: request, hooks, signals and log lines of its own."""


class Client(Protocol):
    """What definitions ask of the floor above them: starting instances and sending to them."""

    def start(self, definition: Any, calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], options: Any, /) -> Any:
        """Start one instance a call; a list of handles in order."""

    def get(self, name: str, key: str) -> Any:
        """The handle of the instance with that key."""

    def signal(self, target: Any, name: str, payload: Any, signal_id: str | None) -> None:
        """Send a message to a handle, instance or id."""
