"""A BLOCKED instance as a repair bench: both sides on its page and on the command line, and the verbs that mend it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from django_app.models import WorkflowInstance
from durable_celery import RetryPolicy, Signal, Workflow, gather, get_handle, step
from tests.django_app.test_command import durable
from tests.pump import Pump, release

pytestmark = pytest.mark.engine

go = Signal("bench.go")
broken: set[str] = set()


@dataclass(frozen=True)
class Parcel:
    number: int


@step(name="bench.pack", retry=RetryPolicy(initial_interval=3600, jitter=False))
def pack(what: str) -> str:
    if what in broken:
        raise ValueError(what)
    return what


@step(name="bench.ship", retry=None)
def ship(what: str) -> Parcel:
    return Parcel(1)


def before() -> Workflow[Any]:
    yield from pack("a")
    yield from pack("b")
    yield from gather(pack("c"), pack("d"))
    return (yield from go.wait(timeout=timedelta(days=1)))


def after() -> Workflow[Any]:
    yield from pack("a")
    parcel = yield from ship("b")
    yield from gather(pack("c"), pack("d"))
    yield from go.wait(timeout=timedelta(days=1))
    return parcel


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    broken.clear()
    yield
    broken.clear()


@pytest.fixture
def blocked(pump: Pump) -> str:
    handle = release("bench.workflow", before).start()
    pump.drain()
    release("bench.workflow", after)
    go.send(handle, "go")
    pump.drain()
    assert handle.status == "BLOCKED"
    return str(handle.id)


def page_of(client: Client, django_user_model: Any, id: str) -> str:
    client.force_login(django_user_model.objects.create_superuser("root"))
    return client.get(reverse("admin:durable_celery_workflowinstance_change", args=[id])).content.decode()


def test_the_page_shows_both_sides_where_they_part(blocked: str, client: Client, django_user_model: Any) -> None:
    page = page_of(client, django_user_model, blocked)
    bench = page[page.index('id="bench"') :].partition("</section>")[0]
    lines = [row.partition("</tr>")[0] for row in bench.split("<tr")[2:]]
    texts = [" ".join(line.replace("<", " <").replace(">", "> ").split()) for line in lines]
    assert len(lines) == 5
    assert ["durable-here" in line for line in lines] == [False, True, False, False, False]
    assert "step bench.pack" in texts[0]
    assert "the same" in texts[0]
    for word in (" 2 ", "step bench.pack", "SUCCEEDED", "step bench.ship"):
        assert word in texts[1]
    assert "gather of 2 members" in texts[2]
    assert "not reached" in texts[2]
    assert "after, line " in bench
    assert "without patched(...)" in bench
    assert "fork(position) starts a new instance" in bench


def test_an_instance_that_is_not_blocked_by_a_mismatch_has_no_bench(
    pump: Pump, client: Client, django_user_model: Any
) -> None:
    def bug() -> Workflow[Any]:
        yield from pack("a")
        raise ValueError("a bug")

    handle = release("bench.workflow", bug).start()
    pump.drain()
    assert handle.status == "BLOCKED"
    assert 'id="bench"' not in page_of(client, django_user_model, handle.id)
    assert "does not fit" not in durable("show", handle.id)[1]


def test_a_failure_that_cannot_be_read_breaks_no_page(blocked: str, client: Client, django_user_model: Any) -> None:
    WorkflowInstance.objects.filter(pk=blocked).update(failure="{")
    assert 'id="bench"' not in page_of(client, django_user_model, blocked)


def test_show_prints_both_sides_and_what_to_do(blocked: str) -> None:
    code, out, _ = durable("show", blocked)
    assert code == 0
    found = out[out.index("does not fit at 2 (after, line ") :].splitlines()
    rows = [line.split(maxsplit=4) for line in found[1:7]]
    assert rows[0][:3] == ["AT", "RECORDED", "STATE"]
    assert rows[1] == ["1", "step", "bench.pack", "SUCCEEDED", "the same"]
    assert rows[2] == [">", "2", "step", "bench.pack", "SUCCEEDED  step bench.ship"]
    assert "usual causes:" in found
    assert any("skip(position, result=...)" in line for line in found)
    shown = json.loads(durable("show", blocked, "--json")[1])["mismatch"]
    assert (shown["position"], shown["requested_command"]["name"]) == ("2", "bench.ship")


def test_skip_mends_it_with_a_result_of_the_type_asked_for(blocked: str, pump: Pump) -> None:
    code, out, err = durable("skip", blocked, "2", "--result", '{"number": "x"}')
    assert (code, out) == (2, "")
    assert "result.number" in err
    assert durable("skip", blocked, "2", "--result", '{"number": 7}') == (0, "step 2: skipped\n", "")
    pump.finish()
    assert get_handle(blocked).result(timeout=0) == Parcel(7)
    history = durable("history", blocked)[1]
    assert "2!1" in history


def test_what_was_set_aside_is_shown_as_such(blocked: str, pump: Pump, client: Client, django_user_model: Any) -> None:
    durable("skip", blocked, "2", "--result", '{"number": 7}')
    pump.finish()
    page = page_of(client, django_user_model, blocked)
    assert 'id="step-2!1"' in page
    assert "set aside by skip()" in page
    step_page = client.get(reverse("admin:durable_celery_workflowinstance_step", args=[blocked, "2!1"]))
    assert step_page.status_code == 200


def test_fork_prints_the_id_of_the_new_instance(blocked: str, pump: Pump) -> None:
    code, out, err = durable("fork", blocked, "2")
    assert (code, err) == (0, "")
    pump.drain()
    fork = get_handle(out.strip())
    assert fork.status == "WAITING"
    assert [entry.position for entry in fork.history()] == ["1", "2", "3", "3.0", "3.1", "4"]


def test_retry_step_makes_a_step_due(pump: Pump) -> None:
    broken.add("a")
    handle = release("bench.workflow", before).start()
    pump.drain()
    broken.clear()
    assert durable("retry-step", handle.id, "1") == (0, "step 1: will be tried again\n", "")
    pump.drain()
    assert [entry.state for entry in handle.history()[:2]] == ["SUCCEEDED", "SUCCEEDED"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["skip", "9"], 2, "has nothing at position '9'"),
        (["skip", "x"], 2, "is not allowed, expected one such as"),
        (["skip", "1"], 1, "is SUCCEEDED already"),
        (["retry-step", "1"], 1, "it has its result"),
        (["retry-step", "9"], 2, "has nothing at position '9'"),
        (["fork", "9"], 1, "does not fit what instance"),
        (["fork", "x"], 2, "is not allowed, expected one such as"),
    ],
)
def test_a_refusal_says_why(blocked: str, words: list[str], code: int, says: str) -> None:
    told = durable(words[0], blocked, words[1])
    assert (told[0], told[1]) == (code, "")
    assert says in told[2]
    assert get_handle(blocked).status == "BLOCKED"


# -- acts in the admin -------------------------------------------------------------------------------------------------


def act(client: Client, name: str, id: str, **data: str) -> Any:
    return client.post(reverse(f"admin:durable_celery_workflowinstance_{name}", args=[id]), data)


def test_skip_in_the_admin_asks_first_and_is_logged(
    blocked: str, pump: Pump, client: Client, django_user_model: Any
) -> None:
    page = page_of(client, django_user_model, blocked)
    for name in ("skip", "retry-step", "fork"):
        assert f"/{blocked}/{name}/" in page
    asked = client.get(reverse("admin:durable_celery_workflowinstance_skip", args=[blocked])).content.decode()
    assert 'value="2"' in asked
    assert get_handle(blocked).status == "BLOCKED"
    wrong = act(client, "skip", blocked, position="2", result='{"number": "x"}').content.decode()
    assert "result.number" in wrong
    done = act(client, "skip", blocked, position="2", result='{"number": 7}', reason="packed by hand")
    assert done.status_code == 302
    pump.finish()
    assert get_handle(blocked).result(timeout=0) == Parcel(7)
    message = LogEntry.objects.get().get_change_message()
    assert message == "Skip: BLOCKED -> BLOCKED, position 2: skipped. Reason: packed by hand"


def test_fork_and_refusals_in_the_admin(blocked: str, pump: Pump, client: Client, django_user_model: Any) -> None:
    page_of(client, django_user_model, blocked)
    assert act(client, "fork", blocked, position="2").status_code == 302
    fork = WorkflowInstance.objects.exclude(pk=blocked).get()
    assert f"forked as {fork.pk}" in LogEntry.objects.get().get_change_message()
    assert act(client, "retry-step", blocked, position="1").status_code == 302
    told = client.get(reverse("admin:durable_celery_workflowinstance_change", args=[blocked])).content.decode()
    assert "it has its result" in told
    assert LogEntry.objects.count() == 1


def test_repairs_in_the_admin_need_the_permission_to_retry(
    blocked: str, client: Client, django_user_model: Any
) -> None:
    user = django_user_model.objects.create_user("ana", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_workflowinstance"))
    client.force_login(user)
    for name in ("skip", "retry-step", "fork"):
        assert act(client, name, blocked, position="2").status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="retry_workflowinstance"))
    assert act(client, "skip", blocked, position="2", result='{"number": 7}').status_code == 302
