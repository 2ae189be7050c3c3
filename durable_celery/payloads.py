"""Values to text within the project's limits: ``PAYLOAD_WARN`` is a line in the log, ``PAYLOAD_LIMIT`` an error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from durable_celery import codec
from durable_celery.conf import Settings
from durable_celery.core import scope
from durable_celery.errors import PayloadError

log = logging.getLogger("durable_celery")


def encode(value: Any, settings: Settings, *, root: str) -> str:
    """``codec.encode``; a body that is replayed has been told about what it builds again."""
    try:
        text = codec.encode(value, root=root, limit=settings.payload_limit)
    except PayloadError as error:
        error.instance_id = error.instance_id or scope.instance_id()
        raise
    if len(text) > settings.payload_warn and not scope.replaying():
        log.warning(
            "%s is %s bytes as stored, more than PAYLOAD_WARN (%s): keep the data in a model or a file, and pass its "
            "key; over PAYLOAD_LIMIT (%s) it is refused",
            root, f"{len(text):,}", f"{settings.payload_warn:,}", f"{settings.payload_limit:,}",
        )  # fmt: skip
    return text


@contextmanager
def of(instance_id: str) -> Iterator[None]:
    """A value that is refused meanwhile is named as one of this instance."""
    try:
        yield
    except PayloadError as error:
        error.instance_id = error.instance_id or instance_id
        raise
