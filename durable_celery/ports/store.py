"""The door to the database. ``django_app.store`` implements it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from durable_celery.core.forking import Fork
from durable_celery.core.skipping import Replacement
from durable_celery.ports.attempt import AttemptRecord, Changed, Claimed, OpenStep, StepChange
from durable_celery.ports.instances import Created, InstanceRow, Loaded, NewInstance, NewMessage, StoredUpdate, Stuck
from durable_celery.ports.maps import EndedMembers, Progress
from durable_celery.ports.processes import Announced, Heartbeat, Lease
from durable_celery.ports.purge import PurgeStore
from durable_celery.ports.turn import Committed, Dispatch, TurnCommit, Wake

if TYPE_CHECKING:
    from durable_celery.ports.tested import TestedStore
    from durable_celery.secrecy import Scrubber


class Store(PurgeStore, Protocol):
    """Everything the engine asks of the database. Each method is its own short transaction unless it says otherwise."""

    def now(self) -> datetime:
        """The database's clock, aware UTC."""

    def measure(self) -> datetime:
        """A fresh reading of the database's clock (one statement), for the offset of this process's clock."""

    def on_clock(self, clock: Callable[[], datetime]) -> Store:
        """The same tables by another clock than the database's."""

    def for_tests(self, clock: Callable[[], datetime]) -> TestedStore:
        """The same, for a test that may stand in a transaction which is never committed."""

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
        """Run ``call`` after the commit of the caller's transaction on the engine's alias, or now; it may raise."""

    def in_transaction(self) -> bool:
        """Whether the caller holds an open transaction on the engine's alias."""

    def find(self, instance_id: UUID) -> InstanceRow | None:
        """The newest run of the chain with this id."""

    def find_by_key(self, name: str, key: str) -> InstanceRow | None:
        """The open instance with this key, else the newest closed one."""

    def load(self, instance_id: UUID, *, args: bool = False, newest: bool = False) -> Loaded | None:
        """The instance and its journal.

        The number of queries does not grow with history. ``args``: those of entries too. ``newest``: of a run that has
        continued as another, the newest run of its chain instead.
        """

    def has_news(self, instance_id: UUID, join: str = "") -> bool:
        """In a fresh snapshot: is there an outcome or message not taken in, and no open member of ``join`` left?"""

    def commit_turn(self, commit: TurnCommit) -> Committed | None:
        """Apply a turn by compare-and-swap on ``revision``.

        None if the revision moved or a message came before closing. ``KeyConflict`` if the run continues as another
        workflow in which its key is taken.
        """

    def note_waiting(self, instance_id: UUID, waiting_for: str) -> None:
        """Write ``waiting_for`` of an open instance and nothing else (revision untouched)."""

    def postpone_instance(self, instance_id: UUID, look_at: datetime | None) -> None:
        """Set when the sweep looks at this instance again."""

    def leave(
        self, instance_id: UUID, revision: int, fingerprint: str, waiting_for: str, now: datetime, look_at: datetime
    ) -> bool:
        """Leave a run to workers of other code, noting that ``fingerprint`` has tried; False if it has moved on."""

    def close_connections(self) -> None:
        """Close this thread's connection to the engine's database; the next use opens another."""

    def reconnect(self) -> None:
        """Open this thread's connection anew; raises if the database cannot be reached."""

    def away(self, error: BaseException) -> bool:
        """Whether this error says that the database could not be reached or asked now: the same may succeed later."""

    def refuse_queries(self) -> AbstractContextManager[None]:
        """While open, a database query of this thread raises UsageError ("move it into a step")."""

    def history(
        self, instance_id: UUID, *, of: str = "", start: int = 0, limit: int | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """Rows of ``handle.history()``, in order of position then compensations, plain values (encoded texts kept).

        ``of``: instead, the members of the map at this position, from ``start`` on, at most ``limit``.
        """

    def open_steps(self, instance_id: UUID, *, members: bool = False) -> Sequence[OpenStep]:
        """Rows that are not final, for ``waiting_for``; with the ``members`` of maps, or without."""

    # maps
    def keys_of(self, queryset: Any) -> Any:
        """The queryset as a source of primary keys, without asking the database; ``BadValue`` if it cannot be one."""

    def primary_keys(self, source: Any) -> Iterable[Any]:
        """The keys of what ``keys_of`` gave, in order, read in pages."""

    def member_dispatches(self, instance_id: UUID, positions: Sequence[str]) -> Iterable[Sequence[Dispatch]]:
        """What is needed to publish the members of these maps that may start, page by page."""

    def ended_members(self, now: datetime, limit: int) -> Sequence[EndedMembers]:
        """Members of maps whose ``look_at`` has come after their end, by map."""

    def unlook_members(self, ended: EndedMembers, look_at: datetime | None) -> None:
        """Look at none of these rows again, but at one of them at ``look_at``."""

    def map_progress(self, instance_ids: Sequence[UUID]) -> Mapping[tuple[UUID, str], Progress]:
        """How far the open maps of these instances are, by instance and position."""

    # steering
    def request_end(self, instance_id: UUID, message: NewMessage, now: datetime) -> str:
        """Ask a body to end (kind "cancel" or "deadline"); "requested", or the final state it came too late for."""

    def end_now(self, instance_id: UUID, failure: str, now: datetime, wakes: list[Wake] | None = None) -> str:
        """Terminate at once; "requested" if this did it, else the final state it came too late for.

        ``wakes`` gets its parent and the children it had.
        """

    def pause(self, instance_id: UUID, reason: str, now: datetime) -> str:
        """Set the overlay: no turn is taken and no step claimed; the state, or the final one it came too late for."""

    def resume(self, instance_id: UUID, now: datetime) -> str:
        """Lift the overlay."""

    def reopen(self, instance_id: UUID, now: datetime, wakes: list[Wake] | None = None) -> None:
        """Take back a block or the turn that ended the run FAILED; ``NotRetryable`` says why it cannot be.

        ``wakes`` gets the children that are open again with it.
        """

    # repairing
    def reopen_step(
        self, instance_id: UUID, position: str, result: str | None, now: datetime, wakes: list[Wake]
    ) -> None:
        """``reopen``, if the step at ``position`` is among the last failures; with a result, that takes its place."""

    def replace_row(
        self, run: InstanceRow, place: Replacement, result: str, message: NewMessage | None, now: datetime
    ) -> bool:
        """Put a row with its result at a position of a BLOCKED run, what is recorded there aside; False if it moved."""

    def restart_step(self, run: InstanceRow, position: str, now: datetime) -> None:
        """Let a FAILED step of an open run start afresh that the body has not seen fail; else ``NotRetryable``."""

    def fork(self, source: UUID, new: NewInstance, plan: Fork, now: datetime, wakes: list[Wake]) -> None:
        """Insert a run with what ``plan`` takes from the journal of another; ``wakes`` gets the children it starts."""

    # messages
    def send(self, instance_id: UUID, message: NewMessage, now: datetime) -> bool:
        """Store a message IN THE CALLER'S TRANSACTION under the shared mailbox lock; InstanceClosed or
        InstanceNotFound.

        A message with a ``dedupe`` seen before changes nothing. True if a hint to advance is due.
        """

    def update_of(self, instance_id: UUID, update_id: str) -> StoredUpdate | None:
        """The update with this id in any run of the chain."""

    def reject_updates(self, instance_id: UUID, revision: int, rejected: Mapping[int, str], now: datetime) -> bool:
        """Answer updates that a look at ``revision`` refused; no turn is counted. False if the revision moved."""

    def discard_update(self, message_id: int) -> None:
        """Remove a rejected update, once its sender knows."""

    def withdraw_update(self, message_id: int) -> bool:
        """Remove an update that its instance ended before taking in; False if it did, or is open again."""

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
        """Write ``change`` where id, token, attempt and state are as in ``step``; if it ended, promote held members."""

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

    def before_body(self) -> Mapping[str, int]:
        """Where this thread's connections stand before users' code runs; for ``after_body``."""

    def after_body(self, before: Mapping[str, int]) -> Sequence[str]:
        """Roll back what that code has left open on them; names the databases where it may have lost work by it."""

    def keep_superseded(self, step_id: int, record: AttemptRecord) -> None:
        """Keep a late result for people; changes nothing else."""

    def joined(self) -> bool:
        """Whether an attempt that begins on this thread is part of a transaction that is not its own."""

    def heartbeat(
        self,
        step_id: int,
        token: str,
        details: str | None,
        now: datetime,
        look_at: datetime | None,
        *,
        apart: bool = False,
    ) -> Heartbeat:
        """Note a sign of life of the current attempt; ``apart``: for all to see, whatever this thread has open."""

    def asked(self, step_id: int, token: str, *, apart: bool = False) -> Heartbeat:
        """What a heartbeat would learn, without one; ``apart``: as it is now, whatever this thread has open."""

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

    def fleet(self, own: str, now: datetime) -> Sequence[Announced]:
        """What live processes announced that run other code than ``own``, each kind once."""

    def bury_lease(self, lease_id: UUID, now: datetime, *, expired_by: datetime | None = None) -> bool:
        """Declare a lease dead; with ``expired_by`` only if it has expired before that. True for the one who did it."""

    def count_turn_death(self, instance_id: UUID) -> tuple[int, str]:
        """A process died in a turn; how many since the last committed one (0: it is not open), and the run's queue."""

    def note_late_turn(self, instance_id: UUID, revision: int, deaths: int, now: datetime) -> bool:
        """A turn that comes late begins, after so many lost ones; False if the revision moved."""

    def close_lease(self, lease_id: UUID) -> None:
        """Remove a lease whose process ends in good order."""

    def claim_of(self, step_id: int, token: str) -> Claimed | None:
        """What was claimed under this token, by one whose answer was lost; None if nothing was, or it is taken."""

    def claims(self, *, lease_id: UUID | None = None, pid: int | None = None, limit: int = 1000) -> Sequence[OpenStep]:
        """RUNNING (and ABANDONED) steps of one lease (and child); of dead and vanished ones if ``lease_id`` is None."""

    # the clock
    def take_tick(self, now: datetime, interval: timedelta, by: str) -> datetime | None:
        """Win this interval's tick by compare-and-swap; None if lost, else since when ticks have run without a gap."""

    def note_beat(self, now: datetime, interval: timedelta) -> None:
        """A tick that Beat had sent was taken; noted once an interval."""

    def due_steps(self, now: datetime, limit: int) -> Sequence[OpenStep]:
        """Rows whose ``look_at`` has come, oldest first, of any kind; none of paused or blocked instances."""

    def postpone_step(self, step: OpenStep, look_at: datetime | None, *, resends: int | None = None) -> bool:
        """Move ``look_at`` if nobody else has: the sweep that wins acts, any other does nothing."""

    def due_instances(self, now: datetime, limit: int) -> Sequence[InstanceRow]:
        """Instances whose ``look_at`` has come, oldest first."""

    def due_messages(self, now: datetime, limit: int) -> Sequence[UUID]:
        """Chains with a message older than its grace that no turn took in; its ``look_at`` is moved on."""

    def blocked(self, known: Mapping[tuple[str, int], str], limit: int) -> Sequence[UUID]:
        """BLOCKED instances of these workflows (name, version) that this fingerprint has not tried yet."""

    def next_look(self) -> datetime | None:
        """The earliest ``look_at`` of steps and instances, for a tick that sleeps no longer than needed."""

    def newly_stuck(self, now: datetime, limit: int) -> Sequence[Stuck]:
        """Open instances that have become stuck since they were last told of; each is told to one caller."""

    def scrubbers(self, instance_ids: Collection[UUID]) -> Mapping[UUID, Scrubber]:
        """What takes the secrets out of the texts of each of these instances, for a log."""
