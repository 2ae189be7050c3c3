"""Which instance a verb is about."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app import search
from django_app.models import WorkflowInstance
from django_app.verbs.console import WrongUsage


def add_target(parser: ArgumentParser) -> None:
    """``ID``, or ``--key KEY`` with ``--workflow NAME`` where several workflows use the key."""
    parser.add_argument("id", nargs="?", metavar="ID", help="the id of an instance, or of one of its later runs")
    parser.add_argument("--key", help="instead of the id: the business key, exactly")
    parser.add_argument("--workflow", metavar="NAME", help="with --key, where several workflows use it")


def target(options: Any) -> WorkflowInstance:
    """The newest run of an instance, a later run for its own id, the open or else newest instance for a key."""
    if bool(options.id) == bool(options.key):
        raise WrongUsage("say which instance: its ID, or --key KEY (with --workflow NAME)")
    return by_id(options.id) if options.id else by_key(options.key, options.workflow)


def by_id(text: str) -> WorkflowInstance:
    """The newest run of the instance with this id, else the run with it."""
    instance_id = search.as_id(text)
    if instance_id is None:
        raise WrongUsage(f"{text!r} is not an id, expected a uuid such as 01972d3e-7c5b-7e43-9a5e-3f1f0c8e2b11")
    found = search.run_of(instance_id)
    if found is None:
        raise WrongUsage(f"there is no instance with the id {text}; durable list shows those there are")
    return found


def by_key(key: str, workflow: str | None) -> WorkflowInstance:
    """The open instance with this key, else the newest."""
    rows = WorkflowInstance.objects.all().for_key(key).order_by("-created_at")
    if workflow:
        rows = search.by_name(rows, workflow)
    found = list(rows[:20])
    names = sorted({row.name for row in found})
    if len(names) > 1:
        raise WrongUsage(f"the key {key!r} is used by {', '.join(names)}; add --workflow NAME")
    if not found:
        raise WrongUsage(f"there is no instance with the key {key!r}; durable list shows those there are")
    chosen: WorkflowInstance = next((row for row in found if row.open_key), found[0])
    return chosen
