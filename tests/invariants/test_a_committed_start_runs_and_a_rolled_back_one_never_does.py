"""A committed `start` runs, whatever the broker does; a rolled-back one never does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from django_app.models import Mailbox, WorkflowInstance
from durable_celery import InstanceNotFound, Workflow, get_handle, step, workflow
from tests.invariants.examples import few
from tests.pump import Pump, clear_tables

pytestmark = pytest.mark.django_db(transaction=True)

ran: Counter[int] = Counter()


class RollBack(Exception):
    """Leaves an `atomic` block without its changes."""


@step
def work(number: int) -> int:
    ran[number] += 1
    return number


@workflow
def working(number: int) -> Workflow[int]:
    return (yield from work(number))


# A block: whether it commits, and what is in it: True for a start, another block.
BLOCKS = st.recursive(
    st.tuples(st.booleans(), st.lists(st.just(True), max_size=3)),
    lambda inner: st.tuples(st.booleans(), st.lists(st.just(True) | inner, max_size=3)),
    max_leaves=6,
)


@few
@given(
    blocks=st.lists(st.just(True) | BLOCKS, max_size=4),
    broker=st.sampled_from(["up", "down", "drops", "doubles"]),
    noisy=st.booleans(),
)
def test_a_committed_start_runs_and_a_rolled_back_one_never_does(blocks: list[Any], broker: str, noisy: bool) -> None:
    clear_tables()
    ran.clear()
    with Pump() as pump:
        pump.down = broker == "down"
        pump.fate = lambda hint: {"drops": (), "doubles": (0.0, 3.0)}.get(broker, (0.0,))
        committed: list[Any] = []
        rolled_back: list[Any] = []

        def start(contents: list[Any], lives: bool) -> None:
            for content in contents:
                if content is True:
                    handle = working.start(len(committed) + len(rolled_back))
                    (committed if lives else rolled_back).append(handle)
                else:
                    block(content, lives)

        def block(content: tuple[bool, list[Any]], lives: bool) -> None:
            commits, contents = content
            try:
                with transaction.atomic():
                    if noisy and lives and commits:
                        transaction.on_commit(fail, robust=True)
                    start(contents, lives and commits)
                    assert pump.sent == sent_before or not transaction.get_connection().in_atomic_block
                    if not commits:
                        raise RollBack
            except RollBack:
                pass

        for one in blocks:
            sent_before = list(pump.sent)
            start([one], True)

        pump.down, pump.fate = False, lambda hint: (0.0,)
        pump.finish()
        for handle in committed:
            assert ran[handle.result(timeout=0)] == 1
        for handle in rolled_back:
            with pytest.raises(InstanceNotFound):
                get_handle(handle.id)
        assert sum(ran.values()) == len(committed)
        assert WorkflowInstance.objects.count() == Mailbox.objects.count() == len(committed)
        about = {str(hint.instance) for hint in pump.sent if hint.instance is not None}
        assert about <= {handle.id for handle in committed}


def fail() -> None:
    raise RuntimeError("a neighbour's on_commit")


@pytest.mark.parametrize("point", ["turn.before_body", "turn.before_commit", "turn.in_transaction", "turn.after_commit",
                                   "publish.before", "claim.before", "claim.after_commit"])  # fmt: skip
def test_a_committed_start_runs_though_whoever_takes_it_first_dies(point: str) -> None:
    clear_tables()
    ran.clear()
    with Pump() as pump:
        pump.kill_at(point)
        handle = working.start(1)
        pump.finish()
        assert handle.result(timeout=0) == 1
        assert ran == {1: 1}
