"""What import-linter cannot say: the core is standard library only, and nothing imports the example."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOOR = ("durable_celery.core", "durable_celery.errors")


def imported(path: Path) -> set[str]:
    """The modules a file names in its imports, wherever they stand in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", sorted((ROOT / "durable_celery" / "core").glob("*.py")), ids=lambda path: path.stem)
def test_the_core_imports_the_standard_library_and_itself_alone(path: Path) -> None:
    foreign = {name for name in imported(path) if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith(FLOOR)} == set()


@pytest.mark.parametrize("package", ["durable_celery", "django_app"])
def test_no_package_imports_the_example_or_the_tests(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    strangers = {"example_project", "tests", *(path.name for path in (ROOT / "example_project").iterdir())}
    found = {str(path): names for path in files if (names := {n.partition(".")[0] for n in imported(path)} & strangers)}
    assert found == {}


def test_the_door_to_django_holds_one_import_and_no_class() -> None:
    """A second class beside it makes Django fall back silently to a bare configuration without models."""
    tree = ast.parse((ROOT / "durable_celery" / "apps.py").read_text())
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    own = [node for node in imports if getattr(node, "module", "") != "__future__"]
    assert len(own) == 1
    assert not any(isinstance(node, ast.ClassDef) for node in tree.body)
