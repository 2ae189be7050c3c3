"""The pages of the language: each example runs, and every name that a body or its neighbours use has one."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import durable_celery
from durable_celery.registry import registry
from tests.docs.pages import PAGES, ROOT, Page

TESTS = [pytest.param(page, name, id=f"{page.path.stem}-{name}") for page in PAGES for name in page.tests]
OVERVIEW = (ROOT / "docs" / "language.md").read_text()
ERRORS = (ROOT / "docs" / "language" / "errors.md").read_text()

ERROR_NAMES = {
    name for name in durable_celery.__all__
    if isinstance(getattr(durable_celery, name), type) and issubclass(getattr(durable_celery, name), BaseException)
}  # fmt: skip
SAID_IN_BODIES = {"CancelRequested", "CompleteLater", "NonRetryable", "RetryLater"}
TYPES = {"Command", "Step", "Workflow", "WorkflowDefinition", "WorkflowHandle"}  # of annotations
TWINS = {"acomplete_step", "afail_step", "aget_handle", "aheartbeat_step"}
CONSTRUCTS = set(durable_celery.__all__) - (ERROR_NAMES - SAID_IN_BODIES) - TYPES - TWINS
METHODS = {"Signal.wait", "Signal.on", "Signal.send", "using", "compensate_with"}
STEERING = {"cancel", "terminate", "pause", "resume", "retry", "retry_step", "skip", "fork", "complete_step", "history"}


@pytest.fixture(scope="module")
def loaded() -> Iterator[dict[str, ModuleType]]:
    """The modules loaded so far; what they have registered is gone after the tests."""
    steps, workflows = dict(registry._steps), dict(registry._workflows)
    modules: dict[str, ModuleType] = {}
    yield modules
    for known, before in ((registry._steps, steps), (registry._workflows, workflows)):
        known.clear()
        known.update(before)  # type: ignore[arg-type]
    for name in modules:
        sys.modules.pop(name, None)


@pytest.mark.django_db
@pytest.mark.parametrize(("page", "name"), TESTS)
def test_the_examples_of_the_pages_run(
    page: Page, name: str, loaded: dict[str, ModuleType], request: pytest.FixtureRequest
) -> None:
    if page.name not in loaded:
        loaded[page.name] = page.load()
    test = getattr(loaded[page.name], name)
    test(**{fixture: request.getfixturevalue(fixture) for fixture in inspect.signature(test).parameters})


def examples(name: str) -> list[str]:
    """The code under the headings that name it."""
    sections = [(title, text) for page in PAGES for title, text in page.sections.items()]
    found = [text for title, text in sections if f"`{name}`" in title]
    return ["\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)) for text in found]


def uses(code: str, name: str) -> bool:
    last = name.rpartition(".")[2]
    nodes = list(ast.walk(ast.parse(code)))
    named = any(isinstance(node, ast.Name) and node.id == last for node in nodes)
    return named or any(isinstance(node, ast.Attribute) and node.attr == last for node in nodes)


@pytest.mark.parametrize("name", sorted(CONSTRUCTS | METHODS | STEERING))
def test_every_name_has_a_heading_and_a_tested_example(name: str) -> None:
    codes = examples(name)
    assert codes, f"no heading of docs/language/ names `{name}`"
    assert any(uses(code, name) and "def test_" in code for code in codes), f"no example under a heading uses {name}"


@pytest.mark.parametrize(
    "name", sorted(CONSTRUCTS - {"Handle", "Winner", "RetryPolicy", "DEFAULT_VERSION", "workflow"})
)
def test_the_overview_names_it(name: str) -> None:
    assert re.search(rf"\b{name}\b", OVERVIEW.split("```{toctree}")[0].replace("`", " "))


@pytest.mark.parametrize("name", sorted(ERROR_NAMES))
def test_the_table_of_errors_has_it(name: str) -> None:
    assert re.search(rf"^\| `{name}` \|", ERRORS, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_no_page_is_longer_than_a_reader_takes(page: Page) -> None:
    assert page.text.count("\n") <= 350
    assert page.tests
    assert f"language/{page.path.stem}" in OVERVIEW
