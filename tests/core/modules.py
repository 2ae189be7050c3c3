"""Modules that a test makes, to hold classes."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

Module = Callable[..., types.ModuleType]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Module:
    """A module under a name of its own, holding what it is given as if it had been defined there."""

    def make(name: str, **content: Any) -> types.ModuleType:
        made = types.ModuleType(name)
        for key, value in content.items():
            if isinstance(value, type):
                value.__module__, value.__qualname__ = name, key
            setattr(made, key, value)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    return make
