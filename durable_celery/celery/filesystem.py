"""Makes kombu's ``filesystem://`` safe for several processes: the broker of the embedded default.

kombu (to 5.7 at least) creates a message's file first and writes it afterwards. A reader between the two takes an empty
message, and its worker stops with "Unrecoverable error"; a writer killed there leaves a file that stops every worker to
come. The same holds for the table of an exchange. Here a file appears whole or not at all, and an empty one is no
message.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem
from kombu.utils.json import dumps

TRIES = 100
PAUSE = 0.02  # seconds between two looks at a table being written
TORN_AFTER = 1.0  # seconds after which an empty table is a dead writer's


def mend() -> None:
    """Put the safe ways in place for this process; a second call does nothing."""
    channel: Any = filesystem.Channel
    if getattr(channel, "durable", False):
        return
    channel.durable = True
    channel._put = _put
    channel._get = _getting(channel._get)
    channel._queue_bind = _with_whole_table(channel._queue_bind)
    channel.get_table = _with_whole_table(channel.get_table)


def _put(self: Any, queue: str, payload: Any, **kwargs: Any) -> None:
    """Put a message onto ``queue``: written aside, then renamed to where readers look."""
    folder = Path(self.data_folder_out)
    name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
    aside = folder / f"{uuid.uuid4()}.part"  # older kombu takes every name with the queue's in it
    try:
        aside.write_bytes(dumps(payload).encode())
        aside.replace(folder / name)
    except OSError as error:
        raise ChannelError(f"Cannot add file {name!r} to directory {folder}") from error


def _getting(get: Any) -> Any:
    def _get(self: Any, queue: str) -> Any:
        for _ in range(TRIES):
            try:
                return get(self, queue)
            except ValueError:
                continue  # an empty or torn file of a writer that was killed; it is out of the queue now
        raise Empty

    return _get


def _with_whole_table(method: Any) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in range(TRIES):
            try:
                return method(self, *args, **kwargs)
            except ValueError:
                time.sleep(PAUSE)
                _drop_torn_tables(Path(self.control_folder))
        return method(self, *args, **kwargs)

    return call


def _drop_torn_tables(folder: Path) -> None:
    """Tables that were never written; whoever binds next writes them anew. A young one's writer may be at it still."""
    for table in folder.glob("*.exchange"):
        with suppress(OSError):
            stat = table.stat()
            if not stat.st_size and time.time() - stat.st_mtime > TORN_AFTER:
                table.unlink()
