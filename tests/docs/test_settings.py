"""The page of the settings has every key of `DURABLE_CELERY` with the default that is in force."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Any

import pytest

from django_app.checks import TO_COME
from durable_celery import RetryPolicy
from durable_celery.conf import Settings, settings_of
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "settings.md").read_text()
ROWS = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in TEXT.splitlines() if line[:3] == "| `"]
NAMES = {"RetryPolicy": RetryPolicy, "timedelta": timedelta}


def defaults() -> dict[str, str]:
    """What stands on the page, key by key."""
    found: dict[str, str] = {}
    for keys, values, _ in ROWS:
        found.update(zip(re.findall(r"`([^`]+)`", keys), re.findall(r"`([^`]+)`", values), strict=True))
    return found


def test_it_has_every_key_and_no_other() -> None:
    assert sorted(defaults()) == sorted(field.name.upper() for field in dataclasses.fields(Settings))


@pytest.mark.parametrize("key", sorted(defaults()))
def test_a_default_written_out_is_the_one_in_force(key: str) -> None:
    given: Any = eval(defaults()[key], dict(NAMES))
    settings, problems = settings_of({key: given})
    assert problems == []
    assert settings == Settings()


def test_keys_without_effect_are_said_to_have_none() -> None:
    idle = {key for keys, _, text in ROWS for key in re.findall(r"`([^`]+)`", keys) if "no effect yet" in text}
    assert idle == set(TO_COME)


def test_its_example_is_taken_as_it_is() -> None:
    (code,) = re.findall(r"^```python\n(.+?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    project: dict[str, Any] = {}
    exec(code, project)
    settings, problems = settings_of(project["DURABLE_CELERY"])
    assert problems == []
    assert (settings.step_timeout, settings.retention) == (timedelta(minutes=1), timedelta(days=90))
