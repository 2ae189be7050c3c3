"""The members of a map: what the store is to insert, and their messages once that is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from durable_celery import codec, faults
from durable_celery.core import journal, transitions
from durable_celery.core.decision import Decision, Opening
from durable_celery.core.journal import Entry
from durable_celery.engine import verdicts
from durable_celery.ports import NewMembers, TurnCommit
from durable_celery.runtime import Runtime


def members_of(rt: Runtime, decision: Decision, now: datetime) -> dict[str, NewMembers]:
    """Of the maps this turn opened and left open, by position."""
    closed = {closing.position for closing in decision.closings} | set(decision.withdrawn)
    if decision.state != transitions.WAITING:
        return {}
    return {o.position: _members(rt, o, now) for o in decision.openings if o.map and o.position not in closed}


def given_up(entries: Iterable[Entry], withdrawn: Iterable[int]) -> list[str]:
    """Positions of the maps among the rows that are given up: their members go with them."""
    ids = set(withdrawn)
    return [entry.position for entry in entries if entry.kind == journal.MAP and entry.id in ids]


def publish(rt: Runtime, commit: TurnCommit) -> None:
    """Send the members that may start, page by page; the sweep sends what is lost, or not taken within the time."""
    if commit.members:
        for page in rt.store.member_dispatches(commit.instance_id, list(commit.members)):
            faults.reach("map.before_page")
            rt.transport.dispatch(page, commit.now)
            faults.reach("map.after_page")


def _members(rt: Runtime, opening: Opening, now: datetime) -> NewMembers:
    members = opening.map
    assert members is not None
    looks = (now + verdicts.RESEND_GRACE, opening.start_by_at, opening.end_by_at)
    return NewMembers(
        name=opening.name,
        calls=_calls(rt, members.calls, members.source),
        options=members.terms.text,
        queue=members.queue,
        join=members.join,
        limit=members.limit,
        start_by_at=opening.start_by_at,
        end_by_at=opening.end_by_at,
        look_at=min(x for x in looks if x is not None),
        shielded=opening.shielded,
    )


def _calls(rt: Runtime, calls: Sequence[str] | None, source: Any) -> Callable[[], Iterable[str]]:
    """May be called again: a commit that met a lock is repeated."""
    if calls is not None:
        return lambda: calls

    def of_keys() -> Iterator[str]:
        for key in rt.store.primary_keys(source):
            yield f"[[{codec.encode(key, root='a primary key')}],{{}}]"

    return of_keys
