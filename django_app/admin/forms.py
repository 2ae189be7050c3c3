"""What the confirmation page of an act asks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from django import forms
from django.utils.translation import gettext_lazy as _

from django_app import acts
from django_app.models import WorkflowInstance
from django_app.repairs import Repair, skipped_type
from durable_celery import codec, runtime
from durable_celery.codec import signature_text
from durable_celery.errors import DurableError
from durable_celery.messages import signals

REASON = 1_000  # characters
OFFERED = 100  # names of signals
NAMES = "durable-names"  # the id of their datalist


class ReasonForm(forms.Form):
    """Why it is done; kept in the log of the instance."""

    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=REASON,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"}),
        help_text=_("Kept with your name in the log of the instance."),
    )


class RepairForm(ReasonForm):
    """Which position, and for ``skip`` the result to put there: JSON that fits what the step returns."""

    position = forms.CharField(
        label=_("Position"),
        max_length=120,
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
        help_text=_("As the table of steps shows it."),
    )
    result = forms.CharField(
        label=_("Result"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "class": "vLargeTextField", "spellcheck": "false"}),
        help_text=_("JSON; empty is None."),
    )

    field_order = ["position", "result", "reason"]

    def __init__(self, data: Any, *, act: Repair, instance: WorkflowInstance, position: str) -> None:
        super().__init__(data, initial={"position": position})
        self._instance = instance
        if not act.takes_result:
            del self.fields["result"]

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        if given.get("result") and "position" in given:
            try:
                data = _json(given["result"])
                given["result"] = codec.from_plain(data, skipped_type(self._instance, given["position"]), path="result")
            except (DurableError, _Unfit) as error:
                self.add_error("result", str(error))
        else:
            given["result"] = None
        return given


class SignalForm(ReasonForm):
    """Which signal, and its payload: JSON that fits the type of the signal, where this process knows one."""

    name = forms.CharField(
        label=_("Signal"),
        max_length=191,
        widget=forms.TextInput(attrs={"class": "vTextField", "list": NAMES, "autocomplete": "off"}),
    )
    payload = forms.CharField(
        label=_("Payload"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 6, "class": "vLargeTextField", "spellcheck": "false"}),
        help_text=_("JSON; empty is null."),
    )
    signal_id = forms.CharField(max_length=191, widget=forms.HiddenInput)  # sent twice, it is stored once

    field_order = ["name", "payload", "reason", "signal_id"]

    def __init__(self, data: Any = None, *, awaited: Sequence[str] = ()) -> None:
        super().__init__(data, initial={"name": awaited[0] if awaited else "", "signal_id": f"admin-{uuid4()}"})
        known = {name: signal.type for name, signal in list(signals.items())}
        self.names = [*awaited, *sorted(known.keys() - set(awaited))[:OFFERED]]  # of the datalist beside the field
        self.types = [(name, signature_text(known[name])) for name in self.names if name in known]

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        if "name" in given and "payload" in given:
            try:
                given["payload"] = _payload(given["name"], given["payload"])
            except _Unfit as error:
                self.add_error("payload", str(error))
        return given


class _Unfit(ValueError):
    """The text is no payload of the signal; says why."""


def _payload(name: str, text: str) -> Any:
    data = _json(text) if text.strip() else None
    try:
        payload = acts.typed_payload(name, data)
        codec.encode(payload, root="payload", limit=runtime.settings().payload_limit)
    except (DurableError, RecursionError) as error:
        raise _Unfit(str(error)) from None
    return payload


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise _Unfit(f"This is not JSON: {error.msg} in line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise _Unfit("This JSON is nested too deep.") from None
    except ValueError as error:  # Python reads no number of thousands of digits
        raise _Unfit(f"This JSON cannot be read: {error}.") from None


def _refuse(name: str) -> Any:
    raise _Unfit(f"This is not JSON: {name} is no number there.")
