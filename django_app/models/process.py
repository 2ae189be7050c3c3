"""Processes that run steps, and the one row the ticks are won on."""

from __future__ import annotations

from django.db import models

from django_app.models.moments import MomentField
from django_app.models.querysets import EngineManager


class WorkerLease(models.Model):
    """One process incarnation that runs steps; a lease declared dead is never renewed."""

    id = models.UUIDField(primary_key=True)
    node = models.CharField(max_length=255, default="", blank=True)
    boot_id = models.CharField(max_length=64, default="", blank=True)
    pid_ns = models.CharField(max_length=64, default="", blank=True)
    pid = models.IntegerField()
    start_ticks = models.BigIntegerField()
    expires_at = MomentField()
    dead_at = MomentField(null=True, blank=True)
    lag = models.FloatField(default=0.0)
    queues = models.TextField(default="", blank=True)  # that it consumes, one a line; "" if it did not say
    code = models.TextField(default="", blank=True)  # what it can run: steps, and fingerprints of bodies

    objects = EngineManager()

    class Meta:
        verbose_name = "worker lease"

    def __str__(self) -> str:
        return f"{self.node} {self.pid}"


class EngineHeartbeat(models.Model):
    """The row with id 1: who ticked last, and since when ticks have run without a gap.

    ``beat_at``: when a tick that Beat had sent was last taken. ``stuck_looked_at``: up to when stuck ones were told.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    last_tick_at = MomentField(null=True, blank=True)
    last_tick_by = models.CharField(max_length=255, default="", blank=True)
    healthy_since = MomentField(null=True, blank=True)
    beat_at = MomentField(null=True, blank=True)
    stuck_looked_at = MomentField(null=True, blank=True)

    objects = EngineManager()

    class Meta:
        verbose_name = "heartbeat"

    def __str__(self) -> str:
        return f"last tick {self.last_tick_at}"


class ScheduleSlot(models.Model):
    """The last occurrence of a schedule for which an instance was started; and until when a purge holds its place."""

    schedule_hash = models.CharField(max_length=64, primary_key=True)
    schedule = models.CharField(max_length=255)
    slot_at = MomentField(null=True, blank=True)

    objects = EngineManager()

    class Meta:
        verbose_name = "schedule slot"

    def __str__(self) -> str:
        return f"{self.schedule} {self.slot_at}"
