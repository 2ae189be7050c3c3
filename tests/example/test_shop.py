"""Runs the example as its own project, in processes of its own: its settings are not those of this test run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import EXAMPLE


def manage(data_dir: Path, *arguments: str, seconds: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
    own = {"SHOP_DATA_DIR": str(data_dir), "DATABASE_URL": "", "BROKER_URL": "", "PYTHONPATH": str(EXAMPLE.parent)}
    others = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=EXAMPLE, env=others | own | env, capture_output=True, text=True, timeout=seconds)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command", ["check", "makemigrations --check --dry-run shop loans", "test shop loans --exclude-tag crashes"]
)
def test_the_shop_is_in_order(command: str, tmp_path: Path) -> None:
    result = manage(tmp_path, *command.split(), seconds=500)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("host", "status"), [("shop.example", 200), ("www.shop.example", 200), ("localhost", 400)])
def test_the_shop_answers_to_the_names_it_is_given(host: str, status: int, tmp_path: Path) -> None:
    code = f"from django.test import Client; print(Client().get('/admin/login/', HTTP_HOST='{host}').status_code)"
    result = manage(tmp_path, "shell", "-c", code, ALLOWED_HOSTS="shop.example, www.shop.example")
    assert result.stdout.split()[-1:] == [str(status)], result.stdout + result.stderr


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("points", ["some", pytest.param("all", marks=pytest.mark.nightly)])
def test_no_crash_changes_what_a_workflow_of_the_shop_does(points: str, tmp_path: Path) -> None:
    result = manage(tmp_path, *["test", "shop", "loans", "--tag", "crashes"], seconds=3500, SHOP_CRASH_POINTS=points)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all equal") == 9, result.stdout
    print(result.stdout)


def test_the_shelf_is_filled_from_the_orders_file(tmp_path: Path) -> None:
    assert manage(tmp_path, "migrate", "--verbosity", "0").returncode == 0
    for _ in range(2):
        result = manage(tmp_path, "load_products")
        assert (result.returncode, result.stdout) == (0, "14 products are on the shelf.\n"), result.stderr
