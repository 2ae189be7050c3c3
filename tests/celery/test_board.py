from __future__ import annotations

import os
import time
from uuid import uuid4

import pytest

from durable_celery.celery.board import SLOTS, Board, Reading, Slot


def reading_of(board: Board, index: int) -> Reading:
    reading = board.read(index)
    assert reading is not None
    return reading


def slot_of(board: Board, index: int, pid: int) -> Slot:
    slot = board.slot(index, pid)
    assert slot is not None
    return slot


def test_a_new_board_has_no_lease_and_nobody_on_it():
    board = Board()
    assert board.lease_id is None
    assert reading_of(board, 0).pid == 0


def test_the_lease_is_what_was_written_last():
    board = Board()
    for _ in range(5):
        lease_id = uuid4()
        board.lease_id = lease_id
        assert board.lease_id == lease_id
    board.lease_id = None
    assert board.lease_id is None


def test_what_a_child_writes_its_parent_reads():
    board = Board()
    lease_id = uuid4()
    board.lease_id = lease_id
    pid = os.fork()
    if pid == 0:
        known = board.lease_id == lease_id
        slot = slot_of(board, 3, os.getpid())
        slot.begin()
        slot.deadline(12.5)
        os._exit(0 if known else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    reading = reading_of(board, 3)
    assert (reading.pid, reading.busy, reading.deadline) == (pid, True, 12.5)
    assert reading_of(board, 2).pid == 0


def test_a_child_sees_the_lease_its_parent_takes_after_the_fork():
    board = Board()
    late = uuid4()
    pid = os.fork()
    if pid == 0:
        deadline = time.monotonic() + 10
        while board.lease_id != late and time.monotonic() < deadline:
            time.sleep(0.001)
        os._exit(0 if board.lease_id == late else 1)
    board.lease_id = late
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_end_of_a_message_takes_back_its_deadline():
    board = Board()
    slot = slot_of(board, 0, 77)
    slot.begin()
    slot.deadline(5.0)
    slot.end()
    reading = reading_of(board, 0)
    assert (reading.pid, reading.busy, reading.deadline) == (77, False, 0.0)


@pytest.mark.parametrize("index", [-1, SLOTS, SLOTS + 7])
def test_a_child_past_the_last_slot_has_none(index):
    board = Board()
    assert board.slot(index, 1) is None
    assert board.read(index) is None
