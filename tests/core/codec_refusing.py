"""What the tests of refused values share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from durable_celery.codec import encode
from durable_celery.errors import NotSerializable


@dataclass
class Item:
    name: Any


def error_of(value: Any, root: str = "value") -> NotSerializable:
    with pytest.raises(NotSerializable) as caught:
        encode(value, root=root)
    return caught.value
