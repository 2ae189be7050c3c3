"""Start an instance and print its id."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.verbs.console import Console, WrongUsage
from django_app.verbs.plain import read_call, read_json
from durable_celery.errors import DurableError, KeyConflict, NotConfigured, WorkflowNotFound
from durable_celery.registry import registry


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the workflow")
    parser.add_argument("--args", dest="call_args", default="[]", metavar="JSON", help='a list of arguments: [7, "x"]')
    parser.add_argument(
        "--kwargs", dest="call_kwargs", default="{}", metavar="JSON", help='an object of named ones: {"order_id": 7}'
    )
    parser.add_argument("--key", help="the business key, in place of the workflow's own")
    parser.add_argument("--delay", type=float, default=0, metavar="SECONDS", help="start it that much later")
    parser.add_argument("--queue", help="where its turns run")


def run(options: Any, console: Console) -> int:
    try:
        workflow = registry.newest(options.name)
    except WorkflowNotFound:
        known = ", ".join(sorted({name for name, _version in registry.workflows})) or "none"
        raise WrongUsage(f"there is no workflow {options.name!r}; known here: {known}") from None
    args, kwargs = _arguments(workflow, options)
    try:
        starter = workflow.using(key=options.key, start_delay=options.delay, queue=options.queue)
        handle = starter.start(*args, **kwargs)
    except KeyConflict as refusal:
        console.error(str(refusal))
        return 1
    except NotConfigured:
        raise
    except (DurableError, TypeError) as error:
        raise WrongUsage(str(error)) from None
    console.line(handle.id)
    if not handle.created:
        console.error("nothing was started: an open instance has this key")
    return 0


def _arguments(workflow: Any, options: Any) -> Any:
    args, kwargs = read_json(options.call_args, "--args"), read_json(options.call_kwargs, "--kwargs")
    if not isinstance(args, list):
        raise WrongUsage(f"--args is {options.call_args:.80}, expected a JSON list such as [7]")
    if not isinstance(kwargs, dict):
        raise WrongUsage(f'--kwargs is {options.call_kwargs:.80}, expected a JSON object such as {{"order_id": 7}}')
    parameters = workflow.signature.parameters.values()
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return read_call(workflow.body, names, args, kwargs)
