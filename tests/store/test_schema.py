"""The tables: indexes that every MySQL takes, checks that stay clean, queries of people."""

from __future__ import annotations

from collections import ChainMap
from datetime import datetime, timedelta, timezone
from io import StringIO
from types import MappingProxyType
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models
from django.test import override_settings

from django_app.models import StepResult, WorkflowInstance
from django_app.models.moments import MomentField
from django_app.store import DjangoStore
from durable_celery import runtime
from durable_celery.registry import registry
from tests.store.making import NOW, at, claimed, create, end, instance, running, turn

pytestmark = pytest.mark.django_db

INDEXED_CHARACTERS = 191  # of four bytes each: 764 of the 767 bytes that every row format of InnoDB takes

PARTIAL = {
    "durable_celery_workflowinstance": {
        "durable_instance_look", "durable_instance_open", "durable_instance_parent", "durable_instance_ended",
        "durable_instance_expected", "durable_instance_warn",
    },
    "durable_celery_stepresult": {
        "durable_step_look", "durable_step_lease", "durable_step_news", "durable_step_group", "durable_step_join",
    },
    "durable_celery_message": {"durable_message_look", "durable_message_news"},
}  # fmt: skip


def declared_indexes(model: Any) -> list[list[str]]:
    meta = model._meta
    found = [[f.name] for f in meta.fields if f.db_index or f.unique]
    found += [[name.lstrip("-") for name in index.fields] for index in meta.indexes]
    return found + [list(c.fields) for c in meta.constraints if isinstance(c, models.UniqueConstraint)]


def index_columns() -> dict[str, list[str]]:
    """Every index there is, by table and name, as the database has it."""
    found = {}
    with connection.cursor() as cursor:
        for model in apps.get_app_config("durable_celery").get_models():
            table = model._meta.db_table
            for name, constraint in connection.introspection.get_constraints(cursor, table).items():
                if constraint["index"] or constraint["unique"] or constraint["primary_key"]:
                    found[f"{table}.{name}"] = [c for c in constraint["columns"] if c]
    return found


def text_length(model: type[models.Model], names: list[str], by: str = "name") -> int:
    fields = {getattr(f, by): f for f in model._meta.fields}
    lengths = [fields[n].max_length if isinstance(fields[n], models.CharField) else 0 for n in names]
    return sum(length or 0 for length in lengths)


def test_o44_no_declared_index_holds_more_text_than_every_mysql_takes():
    for model in apps.get_app_config("durable_celery").get_models():
        for names in declared_indexes(model):
            assert text_length(model, names) <= INDEXED_CHARACTERS, (model, names)
            assert not any(isinstance(model._meta.get_field(n), models.TextField) for n in names), (model, names)


def test_o44_no_index_of_the_migrated_database_holds_more_text_than_every_mysql_takes():
    tables = {m._meta.db_table: m for m in apps.get_app_config("durable_celery").get_models()}
    found = index_columns()
    for table, names in PARTIAL.items():
        assert {f"{table}.{name}" for name in names} <= set(found)
    for name, columns in found.items():
        assert text_length(tables[name.split(".")[0]], columns, by="column") <= INDEXED_CHARACTERS, name


def test_o38_what_must_be_told_apart_exactly_is_unique_by_its_hash():
    for model in apps.get_app_config("durable_celery").get_models():
        unique = [[f.name] for f in model._meta.fields if f.unique]
        unique += [list(c.fields) for c in model._meta.constraints if isinstance(c, models.UniqueConstraint)]
        for names in unique:
            texts = [n for n in names if isinstance(model._meta.get_field(n), models.CharField)]
            hashes = ("hash", "open_key", "key_hash", "dedupe_hash", "schedule_hash", "position")
            assert all(n in hashes for n in texts), names


def test_migrations_are_complete_and_checks_clean(monkeypatch):
    monkeypatch.setattr(registry, "_workflows", {})  # what checks say of the bodies of other tests is not asked here
    call_command("makemigrations", "durable_celery", check=True, dry_run=True, stdout=StringIO())
    errors = StringIO()
    call_command(
        "check", "durable_celery", databases=["default"], stderr=errors, stdout=StringIO(), fail_level="WARNING"
    )
    assert errors.getvalue() == ""


@pytest.mark.django_db(transaction=True)
def test_the_partial_indexes_can_be_taken_back():
    out = StringIO()
    call_command("sqlmigrate", "durable_celery", "0001", backwards=True, stdout=out)
    assert "durable_step_look" in out.getvalue()


def test_attributes_are_found_by_value_of_any_type(store):
    ids = {
        "köln": create(store, attributes={"city": "Köln", "paid": True}).id,
        "list": create(store, attributes={"city": ["Köln"], "paid": False}).id,
        "more": create(store, attributes={"nested": {"a": 1, "b": 2}, "with space": 1, "a__b": 2}).id,
    }
    found = WorkflowInstance.objects.with_attributes
    assert {row.id for row in found(city="Köln")} == {ids["köln"]}
    assert {row.id for row in found(city="Köln", paid=True)} == {ids["köln"]}
    assert {row.id for row in found(city="Köln", paid=False)} == set()
    assert {row.id for row in found(city=["Köln"])} == {ids["list"]}
    assert {row.id for row in found(nested={"a": 1, "b": 2})} == {ids["more"]}
    assert {row.id for row in found(nested={"a": 1})} == set()
    assert {row.id for row in found(**{"with space": 1, "a__b": 2})} == {ids["more"]}


def test_instances_are_found_by_what_they_do(store):
    objects = WorkflowInstance.objects
    pending = create(store, expected_at=at(60)).id
    retrying, (step_id,) = running(store)
    end(store, claimed(store, step_id), "RETRYING", due_at=at(9))
    blocked, _ = running(store)
    turn(store, blocked, state="BLOCKED")
    closed, _ = running(store, expected_at=at(1))
    turn(store, closed, state="COMPLETED", closes=True)

    def ids(found) -> set[object]:
        return set(found.values_list("id", flat=True))

    assert ids(objects.open()) == {pending, retrying, blocked}
    assert ids(objects.closed()) == {closed}
    assert ids(objects.waiting()) == ids(objects.retrying()) == {retrying}
    assert ids(objects.blocked()) == {blocked}
    assert ids(objects.stuck(before=at(59))) == set()
    assert ids(objects.stuck(before=at(61))) == {pending}
    assert ids(objects.open().waiting().retrying()) == {retrying}


def test_an_instance_is_shown_by_its_key_or_id(store):
    keyed, bare = create(store, key="order-7").id, create(store).id
    assert str(instance(keyed)) == "shop.fulfil order-7"
    assert str(instance(bare)) == f"shop.fulfil {bare}"


@override_settings(DURABLE_CELERY={"DATABASE": "other"})
def test_people_read_the_database_of_the_engine():
    assert WorkflowInstance.objects.open().db == "other"
    assert StepResult.objects.all().db == "other"
    assert WorkflowInstance.objects.using("default").db == "default"


@pytest.mark.parametrize("given", [MappingProxyType({"DATABASE": "other"}), ChainMap({"DATABASE": "other"}), {}])
def test_they_read_the_one_that_the_engine_writes_whatever_kind_of_mapping_the_settings_are(given):
    with override_settings(DURABLE_CELERY=given):
        assert WorkflowInstance.objects.all().db == runtime.settings().database == given.get("DATABASE", "default")


def test_an_alias_of_blanks_is_the_default_one_for_both():
    with override_settings(DURABLE_CELERY={"DATABASE": " "}):
        assert WorkflowInstance.objects.all().db == runtime.settings().database == "default"


@pytest.mark.django_db(transaction=True)
@override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo")
def test_times_are_aware_utc_also_where_the_project_has_no_time_zones(store):
    instance_id = create(store, look_at=at(5)).id
    assert store.find(instance_id).created_at == NOW
    assert [row.id for row in store.due_instances(at(5), 10)] == [instance_id]
    assert store.due_instances(at(4), 10) == []
    assert abs(store.now() - datetime.now(timezone.utc)) < timedelta(minutes=1)
    assert store.take_tick(NOW, timedelta(seconds=1), "a") == NOW
    assert not store.has_news(instance_id)


def test_a_naive_time_is_taken_for_utc():
    assert MomentField().get_prep_value(datetime(2026, 1, 1)) == datetime(2026, 1, 1, tzinfo=timezone.utc)  # noqa: DTZ001


def test_the_clock_of_the_database_is_aware_utc_and_can_be_replaced(store, costs):
    with costs() as sent:
        read = store.measure()
    assert len(sent) == (0 if connection.vendor == "sqlite" else 1)
    assert read.tzinfo == timezone.utc
    assert abs(read - datetime.now(timezone.utc)) < timedelta(minutes=1)
    assert DjangoStore("default", clock=lambda: NOW).now() == NOW
