"""Tokens: what the outside names a step by. Signed with the project's SECRET_KEY, so none can be guessed or forged."""

from __future__ import annotations

from django.core import signing

from django_app.models import StepResult
from django_app.store import rows
from django_app.store.connected import Connected
from django_app.store.retries import retried
from durable_celery.errors import BadValue, StepClosed
from durable_celery.ports import OpenStep

SIGNER = signing.Signer(salt="durable_celery.step")


class Tokens(Connected):
    """A token belongs to the step, not to an attempt; keys rotate by SECRET_KEY_FALLBACKS."""

    def token_of(self, step_id: int) -> str:
        """What the outside names this step by; the same for every attempt."""
        return SIGNER.sign(str(step_id))

    @retried
    def step_of(self, token: str) -> OpenStep:
        """The row a token names, in whatever state."""
        try:
            step_id = int(SIGNER.unsign(token))
        except (signing.BadSignature, TypeError, ValueError):
            text = f"{token!r:.80} is no token of a step; pass current_step().token as it was"
            raise BadValue(text, path="token") from None
        values = self.rows(StepResult).filter(pk=step_id).values_list(*rows.STEP_FIELDS).first()
        if values is None:
            raise StepClosed("the step of this token is gone: its instance was purged")
        return rows.open_step(values)
