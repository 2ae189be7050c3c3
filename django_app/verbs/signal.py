"""Send a signal to an instance."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app import acts
from django_app.verbs.console import Console, WrongUsage
from django_app.verbs.plain import read_json
from django_app.verbs.target import add_target, target
from durable_celery import codec
from durable_celery.errors import BadValue, PayloadError
from durable_celery.runtime import settings


def arguments(parser: ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("name", metavar="NAME", help="of the signal")
    parser.add_argument(
        "--payload", default="null", metavar="JSON", help="what it carries, of the signal's type (null)"
    )
    parser.add_argument("--signal-id", metavar="TEXT", help="a second one with the same id changes nothing")


def run(options: Any, console: Console) -> int:
    payload = _payload(options)
    instance = target(options)
    outcome = acts.send(instance, options.name, payload, options.signal_id)
    if outcome.ok:
        console.line(f"{instance.chain_id}: {outcome.text}")
        return 0
    if outcome.wrong:
        raise WrongUsage(outcome.text)
    console.error(f"{instance.chain_id}: {outcome.text}")
    return 1


def _payload(options: Any) -> Any:
    try:
        payload = acts.typed_payload(options.name, read_json(options.payload, "--payload"))
        codec.encode(payload, root="payload", limit=settings().payload_limit)
    except (BadValue, PayloadError) as error:
        raise WrongUsage(f"--payload does not fit: {error}") from None
    return payload
