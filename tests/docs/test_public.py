"""What `durable_celery` offers: these names and no others, each described, all there before Django is set up."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from typing import Any

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import durable_celery
from tests.docs.pages import ROOT


def words(text: str) -> list[str]:
    return text.split()


NAMES = words("""
    DEFAULT_VERSION BadValue CancelRequested ChildFailed Command CompleteLater DurableError Handle InstanceClosed
    InstanceNotFound KeyConflict NonDeterminism NonRetryable NotConfigured NotInWorkflow NotRetryable NotSerializable
    PayloadError PayloadTooLarge PollTimeout ReplayError RetryLater RetryPolicy Saga Signal SignalTimeout Step
    StepClosed StepFailed UpdateRejected UsageError Winner Workflow WorkflowBlocked WorkflowCancelled
    WorkflowDefinition WorkflowError WorkflowFailed WorkflowHandle WorkflowNotFound WorkflowTerminated
    WorkflowTimedOut acomplete_step afail_step aget_handle aheartbeat_step canvas complete_step continue_as_new
    current_step current_workflow deprecate_patch fail_step gather get_handle get_logger get_version heartbeat_step
    map_step now patched poll query race random register_context register_type run set_attributes set_status shield
    side_effect sleep sleep_until spawn step update uuid4 wait_until workflow
""")
DESCRIBED_ELSEWHERE = {"DEFAULT_VERSION", "Workflow"}  # a number and an alias

# Of each function: what it takes and raises, and the words for its units.
SAID = {
    "Signal": ["BadValue", "type"],
    "Signal.on": ["UsageError", "second call"],
    "Signal.send": ["signal_id", "BadValue", "NotSerializable", "InstanceClosed", "InstanceNotFound"],
    "Signal.wait": ["timedelta or seconds", "default", "SignalTimeout", "warn_after", "UsageError", "BadValue"],
    "Handle": ["any number of times", "error"],
    "Handle.cancel": ["True", "StepFailed", "ChildFailed", "WorkflowCancelled", "second call"],
    "RetryPolicy": ["timedelta or seconds", "0 means no limit", "BadValue"],
    "Saga": ["newest first", "failing undo"],
    "Step": ["StepFailed", "TypeError", "NotSerializable", "PayloadTooLarge", "NotInWorkflow"],
    "Step.using": ["timedelta or seconds", "BadValue"],
    "WorkflowDefinition.__call__": ["ChildFailed", "parent_close", "KeyConflict", "seconds"],
    "WorkflowDefinition.apply_async": ["countdown", "task_id", "BadValue"],
    "WorkflowDefinition.delay": ["start"],
    "WorkflowDefinition.get": ["InstanceNotFound"],
    "WorkflowDefinition.start": ["transaction", "TypeError", "NotSerializable", "PayloadTooLarge", "KeyConflict"],
    "WorkflowDefinition.start_many": ["transaction", "BadValue", "UsageError", "KeyConflict", "TypeError"],
    "WorkflowDefinition.using": ["key", "conflict", "reuse", "timedelta or seconds", "attributes", "memo", "subject",
                                 "signal", "parent_close", "queue", "priority", "KeyConflict", "BadValue"],
    "WorkflowHandle.cancel": ["requested", "second call", "BLOCKED"],
    "WorkflowHandle.complete_step": ["StepClosed", "BadValue"],
    "WorkflowHandle.fail_step": ["StepClosed", "BadValue", "StepFailed"],
    "WorkflowHandle.fork": ["BadValue"],
    "WorkflowHandle.history": ["of", "limit", "BadValue", "InstanceNotFound"],
    "WorkflowHandle.pause": ["InstanceClosed", "Twice"],
    "WorkflowHandle.query": ["UsageError", "WorkflowBlocked", "NonDeterminism"],
    "WorkflowHandle.result": ["WorkflowFailed", "WorkflowCancelled", "WorkflowTerminated", "WorkflowBlocked",
                              "TimeoutError", "seconds", "atomic()"],
    "WorkflowHandle.resume": ["InstanceClosed"],
    "WorkflowHandle.retry": ["NotRetryable"],
    "WorkflowHandle.retry_step": ["NotRetryable", "BadValue"],
    "WorkflowHandle.signal": ["signal_id", "InstanceClosed", "InstanceNotFound"],
    "WorkflowHandle.skip": ["BadValue", "StepClosed", "NotRetryable"],
    "WorkflowHandle.terminate": ["requested", "InstanceNotFound", "BadValue"],
    "WorkflowHandle.update": ["UpdateRejected", "update_id", "timedelta or seconds", "TimeoutError", "InstanceClosed",
                              "WorkflowBlocked", "UsageError", "second call"],
    "canvas": ["StepFailed", "UsageError", "list"],
    "complete_step": ["StepClosed", "NotSerializable", "PayloadTooLarge", "token"],
    "continue_as_new": ["never returns", "TypeError", "UsageError", "cancel", "Temporal"],
    "current_step": ["UsageError"],
    "current_workflow": ["NotInWorkflow"],
    "deprecate_patch": ["BLOCKED", "Temporal"],
    "fail_step": ["StepClosed", "StepFailed"],
    "gather": ["tuple", "dict", "lowest failed position", "limit", "return_exceptions", "tolerate", "needed",
               "UsageError", "BadValue", "asyncio"],
    "get_handle": ["InstanceNotFound"],
    "get_logger": ["silent while replaying", "NotInWorkflow"],
    "get_version": ["minimum", "maximum", "ReplayError", "BadValue", "Temporal"],
    "heartbeat_step": ["StepClosed", "True"],
    "map_step": ["tuple", "queryset", "limit", "tolerate", "StepFailed", "TypeError", "BadValue",
                 "NotSerializable", "AWS"],
    "now": ["aware UTC", "replay", "NotInWorkflow"],
    "patched": ["True", "False", "second call", "BadValue", "200 characters", "Temporal"],
    "poll": ["timedelta or seconds", "PollTimeout", "StepFailed", "until", "UsageError", "AWS"],
    "query": ["second call", "UsageError"],
    "race": ["Winner", "index from 0", "ABANDONED", "UsageError", "Azure"],
    "random": ["replay", "NotInWorkflow"],
    "register_context": ["16 KiB", "second registration"],
    "register_type": ["aliases", "second call", "BadValue"],
    "run": ["UsageError", "result()"],
    "set_attributes": ["BadValue", "plain JSON"],
    "set_status": ["500 characters", "BadValue", "NotInWorkflow"],
    "shield": ["cancel", "UsageError", "asyncio"],
    "side_effect": ["again after a crash", "NotSerializable", "PayloadTooLarge", "NotInWorkflow", "Temporal"],
    "sleep": ["timedelta or seconds", "None", "BadValue"],
    "sleep_until": ["aware datetime", "None", "BadValue"],
    "spawn": ["joins, any number of times", "cancel", "UsageError"],
    "step": ["timedelta or seconds", "BadValue", "retry", "start_to_close_timeout", "schedule_to_start_timeout",
             "schedule_to_close_timeout", "heartbeat_timeout", "on_lost", "atomic", "redact", "rate_limit"],
    "update": ["UpdateRejected", "validate", "second call", "UsageError"],
    "uuid4": ["replay", "NotInWorkflow"],
    "wait_until": ["True", "timedelta or seconds", "pure", "UsageError", "BadValue"],
    "workflow": ["BadValue", "version", "key", "execution_timeout", "expected", "fails_on", "redact", "queue",
                 "priority", "timedelta or seconds"],
}  # fmt: skip
WITHOUT_UNITS_OR_ERRORS = {"acomplete_step", "afail_step", "aget_handle", "aheartbeat_step"}  # twins

ASKED_OF_A_HANDLE = words("""
    id run_id key status waiting_for created result signal query update cancel terminate pause resume retry skip
    retry_step fail_step fork complete_step history
""")
OPTIONS = {
    "step": "name retry start_to_close_timeout schedule_to_start_timeout schedule_to_close_timeout heartbeat_timeout "
    "on_lost atomic redact queue priority rate_limit",
    "workflow": "name version key execution_timeout expected fails_on redact queue priority",
    "gather": "return_exceptions limit needed tolerate",
    "map_step": "limit tolerate",
    "poll": "until every timeout",
    "wait_until": "timeout",
    "Signal.wait": "timeout default warn_after",
    "Signal.send": "signal_id",
    "continue_as_new": "workflow",
    "get_version": "id minimum maximum",
    "query": "name",
    "update": "name validate",
    "register_type": "type encode decode aliases",
    "WorkflowDefinition.using": "key queue priority start_delay execution_timeout attributes memo subject signal "
    "conflict reuse parent_close",
    "WorkflowHandle.result": "timeout",
    "WorkflowHandle.signal": "name payload signal_id",
    "WorkflowHandle.update": "name timeout update_id wait",
    "WorkflowHandle.cancel": "reason",
    "WorkflowHandle.terminate": "reason",
    "WorkflowHandle.pause": "reason",
    "WorkflowHandle.skip": "position result",
    "WorkflowHandle.retry_step": "position",
    "WorkflowHandle.fail_step": "position error",
    "WorkflowHandle.fork": "position",
    "WorkflowHandle.complete_step": "position result",
    "RetryPolicy": "initial_interval backoff_coefficient maximum_interval maximum_attempts jitter non_retryable "
    "retry_on",
    "complete_step": "token result",
    "fail_step": "token error",
    "heartbeat_step": "token",
}


# What the contract writes without a star may be given by place, in this order.
PLACES = {
    "Saga.add": "self undo",
    "Signal.on": "self handler",
    "Signal.wait": "self timeout default warn_after",
    "WorkflowHandle.cancel": "self reason",
    "WorkflowHandle.complete_step": "self position result",
    "WorkflowHandle.fail_step": "self position error",
    "WorkflowHandle.fork": "self position",
    "WorkflowHandle.pause": "self reason",
    "WorkflowHandle.result": "self timeout",
    "WorkflowHandle.retry_step": "self position",
    "WorkflowHandle.signal": "self name payload signal_id",
    "WorkflowHandle.skip": "self position result",
    "WorkflowHandle.terminate": "self reason",
    "complete_step": "token result",
    "fail_step": "token error",
    "get_version": "id minimum maximum",
    "map_step": "step items limit tolerate",
    "poll": "command until every timeout",
    "query": "name function",
    "register_type": "type encode decode aliases",
    "update": "name function validate",
    "wait_until": "condition timeout",
}


def found(path: str) -> Any:
    value: Any = durable_celery
    for part in path.split("."):
        value = getattr(value, part)
    return value


def said(path: str) -> str:
    return " ".join((inspect.getdoc(found(path)) or "").split())


def options(function: Any) -> set[str]:
    """What may be given by name; of a decorator, what its typed form says."""
    return {*overloaded(function), *inspect.signature(function).parameters}


def overloaded(function: Any) -> set[str]:
    """The parameters of its overloads, read from the source: Python 3.10 keeps none of them at run time."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(function)))  # type: ignore[arg-type]
    forms = [
        node for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__
        and any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)
    ]  # fmt: skip
    return {each.arg for form in forms for each in (*form.args.posonlyargs, *form.args.args, *form.args.kwonlyargs)}


def test_these_names_and_no_others() -> None:
    assert durable_celery.__all__ == NAMES
    assert [name for name in NAMES if not hasattr(durable_celery, name)] == []


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DESCRIBED_ELSEWHERE])
def test_the_first_line_of_each_docstring_says_what_it_does(name: str) -> None:
    first, _, rest = (inspect.getdoc(found(name)) or "").partition("\n")
    assert len(first.split()) >= 3
    assert re.search(r"[.]$", first), f"{name}: the first line is no sentence: {first!r}"
    assert not rest or rest.startswith("\n"), f"{name}: the first line goes on in the second"


def test_every_function_is_held_to_units_and_errors() -> None:
    errors = {name for name in NAMES if isinstance(found(name), type) and issubclass(found(name), BaseException)}  # type: ignore[arg-type]
    values = {"Command", "DEFAULT_VERSION", "Winner", "Workflow", "WorkflowDefinition", "WorkflowHandle"}
    assert {path.partition(".")[0] for path in SAID} - values == set(NAMES) - errors - values - WITHOUT_UNITS_OR_ERRORS


@pytest.mark.parametrize("kind", ["WorkflowDefinition", "WorkflowHandle"])
def test_every_method_is_held_to_them_but_the_async_twins(kind: str) -> None:
    names = [
        name for name in dir(found(kind)) if not name.startswith("_") and inspect.isfunction(getattr(found(kind), name))
    ]
    methods = {f"{kind}.{name}" for name in names if not (name.startswith("a") and name[1:] in dir(found(kind)))}
    assert methods - SAID.keys() == set()


@pytest.mark.parametrize("path", SAID)
def test_docstrings_name_shapes_units_and_errors(path: str) -> None:
    text = said(path)
    assert [word for word in SAID[path] if word not in text] == []


@pytest.mark.parametrize("path", OPTIONS)
def test_the_contract_s_options_are_there_by_name(path: str) -> None:
    assert set(OPTIONS[path].split()) - options(found(path)) == set()


@pytest.mark.parametrize("path", PLACES)
def test_what_the_contract_writes_without_a_star_may_be_given_by_place(path: str) -> None:
    parameters = inspect.signature(found(path)).parameters.values()
    assert [each.name for each in parameters] == PLACES[path].split()
    assert {each.kind for each in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def test_a_handle_has_all_that_is_asked_of_it_and_its_async_twin() -> None:
    handle: Any = durable_celery.WorkflowHandle("x")
    twins = [f"a{name}" for name in ASKED_OF_A_HANDLE if name not in {"id", "created"}]
    assert [name for name in twins if not hasattr(durable_celery.WorkflowHandle, name)] == []
    known = {*dir(durable_celery.WorkflowHandle), *vars(type(handle)), "id", "created"}
    assert set(ASKED_OF_A_HANDLE) - known == set()


def test_the_version_that_is_built_is_that_of_the_package() -> None:
    built = ProjectMetadata(str(ROOT), PluginManager()).version
    assert built == durable_celery.__version__


def test_errors_form_the_tree_of_the_contract() -> None:
    tree = {
        "DurableError": "UsageError NotConfigured WorkflowError ReplayError PayloadError KeyConflict InstanceNotFound "
        "InstanceClosed StepClosed NotRetryable",
        "UsageError": "NotInWorkflow BadValue",
        "WorkflowError": "StepFailed ChildFailed SignalTimeout PollTimeout UpdateRejected WorkflowFailed "
        "WorkflowCancelled WorkflowTerminated WorkflowTimedOut WorkflowBlocked",
        "ReplayError": "NonDeterminism WorkflowNotFound",
        "PayloadError": "NotSerializable PayloadTooLarge",
    }
    for base, names in tree.items():
        for name in names.split():
            assert issubclass(found(name), found(base)), (name, base)  # type: ignore[arg-type]
    assert issubclass(durable_celery.BadValue, ValueError)
    assert not issubclass(durable_celery.CancelRequested, Exception)


def test_all_of_it_is_there_before_django_is_set_up() -> None:
    code = f"""
import sys
import durable_celery
for name in {NAMES!r}:
    getattr(durable_celery, name)

@durable_celery.step
def charge(order_id: int) -> int:
    return order_id

@durable_celery.workflow
def fulfil(order_id: int) -> durable_celery.Workflow[int]:
    return (yield from charge(order_id))

assert charge.call(7) == 7
try:
    charge(7)
except durable_celery.NotInWorkflow:
    pass
from django.apps import apps
from django.conf import settings
assert not settings.configured and not apps.ready
assert "django_app" not in sys.modules, sorted(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
