"""kombu's filesystem transport, mended: no reader meets a message or table that is not whole."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu import Connection

from durable_celery.celery import filesystem

ROUNDS = 300


@pytest.fixture
def channel(tmp_path: Path) -> Any:
    filesystem.mend()
    for folder in ("queue", "control"):
        (tmp_path / folder).mkdir()
    options = {
        "data_folder_in": str(tmp_path / "queue"),
        "data_folder_out": str(tmp_path / "queue"),
        "control_folder": str(tmp_path / "control"),
    }
    with Connection("filesystem://", transport_options=options) as connection:
        yield connection.default_channel


def test_a_reader_beside_a_writer_gets_every_message_whole(channel: Any) -> None:
    sent = threading.Event()

    def write() -> None:
        for number in range(ROUNDS):
            channel._put("q", {"body": "x" * 5000, "number": number})
        sent.set()

    got: list[int] = []
    writer = threading.Thread(target=write)
    writer.start()
    while len(got) < ROUNDS:
        over = sent.is_set()
        try:
            got.append(channel._get("q")["number"])
        except Empty:
            assert not over or len(got) == ROUNDS
    writer.join()
    assert sorted(got) == list(range(ROUNDS))


def test_an_empty_file_of_a_killed_writer_stops_nobody(channel: Any) -> None:
    (Path(channel.data_folder_in) / "1_dead.q.msg").write_bytes(b"")
    channel._put("q", {"number": 1})
    assert channel._get("q") == {"number": 1}
    with pytest.raises(Empty):
        channel._get("q")


def test_an_empty_table_of_a_killed_writer_is_written_anew(channel: Any) -> None:
    import os

    table = Path(channel.control_folder) / "celery.exchange"
    table.write_bytes(b"")
    os.utime(table, (1, 1))
    channel._queue_bind("celery", "celery", "", "celery")
    assert [entry[2] for entry in channel.get_table("celery")] == ["celery"]
