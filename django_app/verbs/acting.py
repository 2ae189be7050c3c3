"""What the verbs share that do the same to one instance or to several."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.acts import Act, perform
from django_app.models import WorkflowInstance
from django_app.verbs.console import Console, WrongUsage
from django_app.verbs.target import by_id, by_key


def add_targets(parser: ArgumentParser, *, reason: bool) -> None:
    """``ID ...``, or ``--key KEY`` with ``--workflow NAME`` where several workflows use the key."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="the id of an instance or of a run; several are fine")
    parser.add_argument("--key", help="instead of ids: the business key, exactly")
    parser.add_argument("--workflow", metavar="NAME", help="with --key, where several workflows use it")
    if reason:
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept with the instance")


def act_on(act: Act, options: Any, console: Console) -> int:
    """Do it to each, in order, each by itself; 1 if one of them was refused."""
    refused = 0
    for instance in _targets(options):
        outcome = perform(act, instance, getattr(options, "reason", ""))
        if outcome.wrong:  # as it would be for each of them: nothing was done
            raise WrongUsage(outcome.text)
        if outcome.ok:
            console.line(f"{instance.chain_id}: {outcome.text}")
        else:
            console.error(f"{instance.chain_id}: {outcome.text}")
            refused += 1
    return 1 if refused else 0


def _targets(options: Any) -> list[WorkflowInstance]:
    """All of them, before anything is done to one."""
    if bool(options.ids) == bool(options.key):
        raise WrongUsage("say which instances: their IDs, or --key KEY (with --workflow NAME)")
    return [by_key(options.key, options.workflow)] if options.key else [by_id(text) for text in options.ids]
