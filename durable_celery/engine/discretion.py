"""What may be told outside an instance's own rows: to a log, to Celery's tracer and with it to events and hooks.

Rules of this file:
- Words of errors lose the secrets of the arguments that led to them. A definition that names secrets tells no result:
  what it makes of them may be one.
- Nothing is read for a success, and nothing here fails: without the database the secrets at hand are taken out alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from durable_celery import disclosure
from durable_celery.codec import redact, redact_call
from durable_celery.codec.redaction import PLACEHOLDER
from durable_celery.disclosure import Disclosure
from durable_celery.ports import Claimed
from durable_celery.runtime import Runtime
from durable_celery.secrecy import UNSEARCHED, Scrubber, scrubber, scrubber_of_calls, without_secrets


def call(claimed: Claimed, of: Disclosure, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments of a task, as a log may have them."""
    hidden = (*of.hidden, *disclosure.of_child(claimed.workflow).hidden)
    return redact_call(args, kwargs, of.parameters or (), hidden)


def words(rt: Runtime, instance_id: UUID, text: str) -> str:
    """A text of an instance, which may repeat an error, as a log may have it."""
    if not text:
        return text
    try:
        found = rt.store.scrubbers([instance_id]).get(instance_id)
    except Exception:  # noqa: BLE001 - a line of a log is no reason to fail
        return UNSEARCHED
    return text if found is None else found(text)


def error(rt: Runtime, claimed: Claimed, raised: BaseException | None, of: Disclosure | None = None) -> Any:
    """What an attempt raised, as Celery may see it. ``of``: of a task that has no definition of ours."""
    return None if raised is None else without_secrets(raised, _secrets(rt, claimed, of))


def value(claimed: Claimed, returned: Any, of: Disclosure | None = None) -> Any:
    """What an attempt returned, as Celery may see it: itself, unless it bears the name of a secret or may be one."""
    step, workflow = of or disclosure.of_step(claimed.step.name), disclosure.of_child(claimed.workflow)
    if step.has_secrets or (workflow.parameters is not None and workflow.has_secrets):
        return None if returned is None else PLACEHOLDER
    shown = redact(returned, (*step.hidden, *workflow.hidden))
    return shown if shown != redact(returned, ()) else returned


def refusal(raised: BaseException, of: Disclosure, args: Sequence[Any], kwargs: dict[str, Any]) -> BaseException:
    """Why a call was refused."""
    return without_secrets(raised, scrubber_of_calls([([args, kwargs], of)]))


def _secrets(rt: Runtime, claimed: Claimed, of: Disclosure | None) -> Scrubber:
    """Those of the step's own call, and of its instance's: it may have got one under another name."""
    step = (of or disclosure.of_step(claimed.step.name)) | disclosure.of_child(claimed.workflow)
    own = scrubber([(claimed.args, step)] if claimed.args else [])
    run = claimed.step.instance_id
    try:
        found = rt.store.scrubbers([run]).get(run)
    except Exception:  # noqa: BLE001 - the end of the attempt is stored already
        found = None
    return own if found is None else own | found
