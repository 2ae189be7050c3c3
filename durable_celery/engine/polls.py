"""Polls whose result was not liked: set to run again with the turn that looked at it, and hinted at if that is soon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from durable_celery.core.decision import Decision
from durable_celery.engine.verdicts import HINT_WITHIN
from durable_celery.ports import NotLiked, TurnCommit
from durable_celery.runtime import Runtime


def again(decision: Decision, ids: Mapping[str, int]) -> Sequence[NotLiked]:
    """Of a decision, by row ids."""
    return [
        NotLiked(entry_id=ids[each.position], due_at=each.due_at, start_by_at=each.start_by_at)
        for each in decision.again
    ]


def hint(rt: Runtime, commit: TurnCommit) -> None:
    """Send what is due soon ahead of the clock; the sweep sends what is later, or was lost."""
    soon = [each.entry_id for each in commit.again if each.due_at - commit.now <= HINT_WITHIN]
    if soon:
        rt.transport.dispatch(rt.store.dispatches(soon), commit.now)
