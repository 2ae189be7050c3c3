"""Updates to real workers, one of which is killed meanwhile: each answer is one place in one order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durable_celery import UpdateRejected
from tests.processes import Worker
from tests.project.testapp.case_updates import noted, tally
from tests.store.making import at_once

pytestmark = [pytest.mark.kill, pytest.mark.prefork, pytest.mark.django_db(transaction=True)]

SENDERS, EACH = 4, 6
ALL = SENDERS * EACH


def test_updates_and_signals_survive_the_death_of_a_worker(start_worker: Callable[..., Worker]) -> None:
    first, _ = (start_worker(arguments=[f"--hostname={name}@%h"]) for name in ("first", "second"))
    handle = tally.start(ALL)

    def send(sender: int) -> list[tuple[int, int]]:
        answers = []
        for number in range(sender * EACH, (sender + 1) * EACH):
            noted.send(handle, number, signal_id=f"s-{number}")
            answers.append((number, handle.update("add", number, update_id=f"u-{number}", timeout=60)))
            if number == 3:
                first.kill()
        return answers

    answers: list[Any] = at_once(*[lambda sender=sender: send(sender) for sender in range(SENDERS)])
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    added, seen = handle.result(timeout=60)
    assert sorted(added) == sorted(seen) == list(range(ALL))
    for mine in answers:
        assert [added[place - 1] for _, place in mine] == [number for number, _ in mine]
    by_sender = [[number for number in seen if number // EACH == sender] for sender in range(SENDERS)]
    assert by_sender == [sorted(numbers) for numbers in by_sender]
    assert handle.update("add", 0, update_id="u-0", timeout=0) == added.index(0) + 1
    assert handle.query("added") == added


def test_a_rejection_by_a_real_worker_leaves_nothing(start_worker: Callable[..., Worker]) -> None:
    start_worker()
    handle = tally.start(ALL)
    assert handle.update("add", 1, timeout=60) == 1
    before = [(entry.position, entry.state, entry.turn) for entry in handle.history()]
    with pytest.raises(UpdateRejected, match="ValueError: 1 was there"):
        handle.update("add", 1, timeout=60)
    assert [(entry.position, entry.state, entry.turn) for entry in handle.history()] == before
    assert handle.query("added") == [1]
