"""What people see of an instance that has gone on as new runs: one row, and the way from run to run."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.urls import reverse

from django_app.models import WorkflowInstance
from tests.django_app.rows import new_instance, new_message, new_step

pytestmark = pytest.mark.django_db


@pytest.fixture
def chain() -> list[Any]:
    """Three runs, the last of which waits; each has a step."""
    first = new_instance(key="long", state="CONTINUED")
    runs = [first]
    for number, state in ((2, "CONTINUED"), (3, "WAITING")):
        runs.append(new_instance(key="long", state=state, chain_id=first.pk, run_number=number))
    for run in runs:
        new_step(run, "1", name=f"shop.step_{run.run_number}")
    return runs


def url(instance_id: UUID, query: str = "") -> str:
    return reverse("admin:durable_celery_workflowinstance_change", args=[instance_id]) + query


def facts(response: Any) -> dict[str, tuple[str, str]]:
    return {fact.label: (fact.text, fact.url) for fact in response.context["page"].facts}


def show(*args: str) -> dict[str, Any]:
    out = StringIO()
    call_command("durable", "show", *args, "--json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def test_the_list_has_one_row_for_an_instance(admin_client: Any, chain: list[Any]) -> None:
    new_instance(key="other")
    page = reverse("admin:durable_celery_workflowinstance_changelist")

    def rows(query: str = "") -> list[tuple[str, int]]:
        response = admin_client.get(page + query)
        return [(row.key, row.run_number) for row in response.context["cl"].result_list]

    assert sorted(rows()) == [("long", 3), ("other", 1)]
    assert rows("?q=long") == [("long", 3)]
    assert rows("?state=CONTINUED") == [("long", 2), ("long", 1)]
    assert rows("?state=open&q=long") == [("long", 3)]
    assert sorted(rows(f"?q={chain[1].pk}")) == [("long", 2)]
    assert sorted(rows(f"?q={chain[0].pk}")) == [("long", 1), ("long", 3)]


def test_the_id_of_the_instance_leads_to_its_newest_run(admin_client: Any, chain: list[Any]) -> None:
    first, second, third = chain
    response = admin_client.get(url(first.pk))
    assert response.context["original"] == third
    assert facts(response)["Id"][0] == str(first.pk)
    assert facts(response)["Run"][0] == str(third.pk)
    assert facts(response)["Previous run"] == (str(second.pk), url(second.pk))
    assert "Next run" not in facts(response)
    assert [step.name for step in response.context["page"].steps] == ["shop.step_3"]


def test_each_run_has_a_page_and_links_to_its_neighbours(admin_client: Any, chain: list[Any]) -> None:
    first, second, third = chain
    response = admin_client.get(url(first.pk, "?run=1"))
    assert response.context["original"] == first
    found = facts(response)
    assert "Previous run" not in found
    assert (found["Next run"], found["Newest run"]) == (
        (str(second.pk), url(second.pk)),
        (str(third.pk), url(third.pk)),
    )
    (step,) = response.context["page"].steps
    assert (step.name, step.url.endswith("/steps/1/?run=1")) == ("shop.step_1", True)
    assert admin_client.get(step.url).context["page"].instance_url == url(first.pk, "?run=1")

    response = admin_client.get(url(second.pk))
    found = facts(response)
    assert found["Previous run"] == (str(first.pk), url(first.pk, "?run=1"))
    assert found["Next run"] == (str(third.pk), url(third.pk))
    assert "Newest run" not in found
    (step,) = response.context["page"].steps
    assert admin_client.get(step.url).context["page"].name == "shop.step_2"


def test_an_instance_of_one_run_says_nothing_of_runs(admin_client: Any) -> None:
    found = facts(admin_client.get(url(new_instance().pk)))
    assert not {"Run", "Previous run", "Next run", "Newest run"} & set(found)


@pytest.mark.parametrize("query", ["?run=", "?run=x", "?run=-1", "?run=99999999999", "?run=²"])
def test_a_number_that_is_none_is_ignored(admin_client: Any, chain: list[Any], query: str) -> None:
    assert admin_client.get(url(chain[0].pk, query)).context["original"] == chain[2]


def test_buttons_act_on_the_newest_run_alone(admin_client: Any, chain: list[Any]) -> None:
    assert admin_client.get(url(chain[1].pk)).context["buttons"] == []
    cancel = reverse("admin:durable_celery_workflowinstance_cancel", args=[chain[0].pk])
    admin_client.post(cancel, {"reason": "enough"})
    asked = WorkflowInstance.objects.filter(cancel_requested_at__isnull=False)
    assert list(asked) == [chain[2]]
    cancel = reverse("admin:durable_celery_workflowinstance_terminate", args=[chain[1].pk])
    response = admin_client.post(cancel, {"reason": "enough"}, follow=True)
    assert "it went on as a newer run" in response.content.decode()


def test_the_command_line_follows_the_chain(chain: list[Any]) -> None:
    first, second, third = chain
    told = show(str(first.pk))
    assert (told["id"], told["run_id"], told["run_number"]) == (str(first.pk), str(third.pk), 3)
    assert (told["previous_run"], told["next_run"]) == (str(second.pk), None)
    told = show(str(second.pk))
    assert (told["run_number"], told["previous_run"], told["next_run"]) == (2, str(first.pk), str(third.pk))
    assert show("--key", "long")["run_number"] == 3
    out = StringIO()
    call_command("durable", "history", str(first.pk), "--json", stdout=out)
    assert [entry["name"] for entry in json.loads(out.getvalue())] == ["shop.step_3"]


@pytest.mark.parametrize(
    ("options", "numbers"), [((), [3]), (("--state", "CONTINUED"), [2, 1]), (("--key", "lo"), [3])]
)
def test_the_command_line_lists_an_instance_once(
    chain: list[Any], options: tuple[str, ...], numbers: list[int]
) -> None:
    out = StringIO()
    call_command("durable", "list", *options, "--json", stdout=out)
    assert [row["run_number"] for row in json.loads(out.getvalue())] == numbers


def test_a_run_that_went_on_is_not_closed(chain: list[Any]) -> None:
    assert not WorkflowInstance.objects.closed().exists()
    assert list(WorkflowInstance.objects.open()) == [chain[2]]


def test_unread_signals_are_told_and_cancels_are_not(chain: list[Any]) -> None:
    new_message(chain[0], "early", {"token": "sesame", "n": 1}, taken_turn=1, delivered_turn=2)
    new_message(chain[0], "left", {"password": "sesame", "n": 2}, dedupe="w-1")
    new_message(chain[2], "kept", [3], taken_turn=2)
    new_message(chain[2], "", "enough", kind="cancel")
    told = show(str(chain[0].pk))["unread"]
    assert [(message["name"], message["signal_id"]) for message in told] == [("left", "w-1"), ("kept", None)]
    assert "sesame" not in json.dumps(told)
    assert told[1]["payload"] == [3]
