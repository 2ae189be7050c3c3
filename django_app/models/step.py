"""The journal: what each run asked for, position by position, and what became of it."""

from __future__ import annotations

from django.db import models

from django_app.models.instance import WorkflowInstance
from django_app.models.moments import MomentField
from django_app.models.querysets import EngineManager, StepQuerySet

POSITION_LENGTH = 120


class StepResult(models.Model):
    """A command of a run at its position: a step, a timer, a wait for a signal, a gather, a compensation.

    ``token`` is the fence of the current attempt. ``taken_*`` say when a turn took the outcome in. ``abandoned`` rows
    are wanted no longer: what becomes of them is kept and shown, never delivered. ``ended_turn`` is the turn that
    ended or gave up the row itself (timers, signal waits, gathers, withdrawn steps). ``shielded`` rows outlive a
    cancel. ``mapped`` rows are members of a map: in no journal, the row of the map stands for all of them. ``join`` and
    ``group`` are NULL where there is none, so that partial indexes hold members only.
    """

    instance = models.ForeignKey(WorkflowInstance, on_delete=models.CASCADE, related_name="steps", db_index=False)
    position = models.CharField(max_length=POSITION_LENGTH)
    kind = models.CharField(max_length=16)
    name = models.CharField(max_length=255, default="", blank=True)
    state = models.CharField(max_length=16)
    members = models.IntegerField(default=0)
    options = models.TextField(default="", blank=True)
    group = models.CharField(max_length=POSITION_LENGTH, null=True, blank=True)  # noqa: DJ001
    join = models.CharField(max_length=POSITION_LENGTH, null=True, blank=True)  # noqa: DJ001
    limited = models.BooleanField(default=False)
    abandoned = models.BooleanField(default=False)
    mapped = models.BooleanField(default=False)
    shielded = models.BooleanField(default=False)
    queue = models.CharField(max_length=255, default="", blank=True)
    compensation = models.TextField(default="", blank=True)

    args = models.TextField(default="", blank=True)
    result = models.TextField(null=True, blank=True)  # noqa: DJ001
    failure = models.TextField(null=True, blank=True)  # noqa: DJ001
    unknown_end = models.BooleanField(default=False)

    attempt = models.IntegerField(default=0)
    failures = models.IntegerField(default=0)
    deaths = models.IntegerField(default=0)
    expiries = models.IntegerField(default=0)
    resends = models.IntegerField(default=0)
    token = models.CharField(max_length=64, null=True, blank=True)  # noqa: DJ001
    lease_id = models.UUIDField(null=True, blank=True)
    pid = models.IntegerField(null=True, blank=True)
    last_heartbeat = models.TextField(null=True, blank=True)  # noqa: DJ001

    scheduled_at = MomentField()
    started_at = MomentField(null=True, blank=True)
    finished_at = MomentField(null=True, blank=True)
    heartbeat_at = MomentField(null=True, blank=True)
    due_at = MomentField(null=True, blank=True)
    start_by_at = MomentField(null=True, blank=True)
    end_by_at = MomentField(null=True, blank=True)
    close_at = MomentField(null=True, blank=True)
    look_at = MomentField(null=True, blank=True)

    taken_turn = models.IntegerField(null=True, blank=True)
    taken_order = models.IntegerField(default=0)
    taken_at = MomentField(null=True, blank=True)
    ended_turn = models.IntegerField(null=True, blank=True)

    objects = EngineManager.from_queryset(StepQuerySet)()

    class Meta:
        verbose_name = "step"
        constraints = [models.UniqueConstraint(fields=["instance", "position"], name="durable_step_position")]

    def __str__(self) -> str:
        return f"{self.position} {self.kind} {self.name}".strip()


class StepAttempt(models.Model):
    """An attempt that failed, was lost or superseded, kept for people."""

    step = models.ForeignKey(StepResult, on_delete=models.CASCADE, related_name="attempts")
    attempt = models.IntegerField()
    outcome = models.CharField(max_length=16)
    result = models.TextField(null=True, blank=True)  # noqa: DJ001
    failure = models.TextField(null=True, blank=True)  # noqa: DJ001
    node = models.CharField(max_length=255, default="", blank=True)
    started_at = MomentField(null=True, blank=True)
    finished_at = MomentField()

    objects = EngineManager()

    class Meta:
        verbose_name = "attempt"

    def __str__(self) -> str:
        return f"attempt {self.attempt}: {self.outcome}"


class Marker(models.Model):
    """What a run decided once: ``patched``, ``get_version``, ``side_effect``. ``key_hash`` tells keys apart exactly."""

    instance = models.ForeignKey(WorkflowInstance, on_delete=models.CASCADE, related_name="markers", db_index=False)
    key_hash = models.CharField(max_length=64)
    key = models.TextField()
    value = models.TextField()

    objects = EngineManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["instance", "key_hash"], name="durable_marker_key")]

    def __str__(self) -> str:
        return self.key
