"""The instances about an object, on the object's own page in the admin."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core import checks
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path

from django_app.admin.subjects import SHOWN, WorkflowInstancesInline
from django_app.models import WorkflowInstance
from durable_celery import Workflow, workflow
from tests.django_app.rows import new_step
from tests.project.testapp.models import Effect


def about_nothing() -> Workflow[None]:
    return
    yield


about = workflow(name="tests.subjects.about")(about_nothing)
site = admin.AdminSite("other")
bare = admin.AdminSite("bare")


@admin.register(Effect, site=bare)
@admin.register(Effect, site=site)
class EffectAdmin(admin.ModelAdmin):
    inlines = [WorkflowInstancesInline]


site.register(WorkflowInstance, type(admin.site.get_model_admin(WorkflowInstance)))
urlpatterns = [path("admin/", admin.site.urls), path("other/", site.urls), path("bare/", bare.urls)]

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


def page_of(effect: Effect) -> str:
    return f"/other/testapp/effect/{effect.pk}/change/"


@pytest.fixture
def effect() -> Effect:
    made: Effect = Effect.objects.create(run="r", what="sold")
    return made


def test_the_checks_of_django_accept_the_inline() -> None:
    assert EffectAdmin(Effect, site).check() == []
    assert not [found for found in checks.run_checks() if "Inline" in str(found.obj)]


def test_the_instances_about_an_object_are_shown_newest_first_with_links(effect: Effect, admin_client: Client) -> None:
    other = Effect.objects.create(run="r", what="other")
    mine = [about.using(subject=effect, key=f"{name}<b>").start() for name in ("first", "second")]
    about.using(subject=other, key="not mine").start()
    new_step(WorkflowInstance.objects.get(pk=mine[1].id), "1", kind="signal", name="paid", state="SCHEDULED", attempt=0)
    WorkflowInstance.objects.filter(pk=mine[1].id).update(state="WAITING")
    text = admin_client.get(page_of(effect)).content.decode()
    assert text.index("second&lt;b&gt;") < text.index("first&lt;b&gt;")
    assert "not mine" not in text
    assert f'href="/other/durable_celery/workflowinstance/{mine[0].id}/change/"' in text
    assert '<span class="durable-badge durable-waiting">WAITING</span>' in text
    assert "signal &#x27;paid&#x27; at 1" in text
    assert "durable_celery/admin.css" in text


def test_the_page_saves_as_before_and_leaves_the_instances_alone(effect: Effect, admin_client: Client) -> None:
    handle = about.using(subject=effect).start()
    before = WorkflowInstance.objects.values().get(pk=handle.id)
    posted = {"run": "r", "what": "bought", "key": "k", "durable_instances-0-state": "FAILED"}
    response = admin_client.post(page_of(effect), posted)
    assert response.status_code == 302
    effect.refresh_from_db()
    assert effect.what == "bought"
    assert WorkflowInstance.objects.values().get(pk=handle.id) == before
    assert "This field is required" in admin_client.post(page_of(effect), {"what": ""}).content.decode()


def test_a_new_object_has_no_instances_to_show(admin_client: Client) -> None:
    page = admin_client.get("/other/testapp/effect/add/")
    assert page.status_code == 200
    assert "durable_instances-heading" not in page.content.decode()


def test_who_may_not_view_instances_sees_none(effect: Effect) -> None:
    about.using(subject=effect, key="secret").start()
    user = User.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=("view_effect", "change_effect")))
    client = Client()
    client.force_login(user)
    text = client.get(page_of(effect)).content.decode()
    assert "sold" in text
    assert "secret" not in text
    assert "durable_instances-heading" not in text


def test_a_crowd_of_instances_costs_two_queries_and_is_cut(effect: Effect, admin_client: Client) -> None:
    admin_client.get(page_of(effect))
    with CaptureQueriesContext(connection) as few:
        admin_client.get(page_of(effect))
    for _ in range(SHOWN + 5):
        about.using(subject=effect).start()
    with CaptureQueriesContext(connection) as many:
        page = admin_client.get(page_of(effect))
    assert len(many) == len(few) + 1
    assert page.content.decode().count('<tr class="form-row">') == SHOWN


def test_a_site_without_the_page_of_instances_shows_them_without_links(effect: Effect, admin_client: Client) -> None:
    about.using(subject=effect, key="here").start()
    text = admin_client.get(page_of(effect).replace("/other/", "/bare/")).content.decode()
    assert "tests.subjects.about here" in text
    assert "workflowinstance/" not in text
