"""Running and ended workflows, and the permanent row of each business key."""

from __future__ import annotations

from django.db import models

from django_app.models.moments import MomentField
from django_app.models.querysets import EngineManager, InstanceManager
from durable_celery.core import transitions as t
from durable_celery.core.identity import KEY_LENGTH

NAME_LENGTH = 160  # with a state beside it in an index still under 191 characters


class WorkflowInstance(models.Model):
    """One run of a workflow. ``id`` is the run's; all runs of a chain share ``chain_id``, the id of the first, and are
    numbered from 1 (``run_number``).

    ``revision`` counts what turns, pause, cancel, terminate and retry have changed; ``open_key`` is ``key_hash`` while
    the run is open. ``warn_at``: when the first of its open waits counts as stuck. Texts of values
    are ASCII JSON as the codec writes it.
    """

    id = models.UUIDField(primary_key=True)
    chain_id = models.UUIDField()
    run_number = models.IntegerField(default=1)
    name = models.CharField(max_length=NAME_LENGTH)
    version = models.IntegerField(default=1)
    fingerprint = models.CharField(max_length=64, default="", blank=True)
    key = models.CharField(max_length=KEY_LENGTH, null=True, blank=True, db_index=True)  # noqa: DJ001 - "" is no key
    key_hash = models.CharField(max_length=64, null=True, blank=True)  # noqa: DJ001
    open_key = models.CharField(max_length=64, null=True, blank=True, unique=True)  # noqa: DJ001 - NULLs are not equal

    state = models.CharField(max_length=16, default=t.PENDING)
    closing_as = models.CharField(max_length=16, default="", blank=True)
    paused_at = MomentField(null=True, blank=True)
    pause_reason = models.TextField(default="", blank=True)
    cancel_requested_at = MomentField(null=True, blank=True)
    revision = models.IntegerField(default=0)
    turn = models.IntegerField(default=0)
    turn_at = MomentField(null=True, blank=True)
    history_length = models.IntegerField(default=0)  # rows of the journal, members of maps apart
    waiting_for = models.TextField(default="", blank=True)
    waiting_since = MomentField(null=True, blank=True)
    status_text = models.TextField(default="", blank=True)
    blocked_by = models.TextField(default="", blank=True)  # fingerprints, each with a blank behind it
    left_at = MomentField(null=True, blank=True)  # since when it is left to workers of other code
    turn_deaths = models.IntegerField(default=0)  # turns since the last committed one that took their process along
    turn_begun_at = MomentField(null=True, blank=True)  # of a late turn that was begun and not committed yet

    args = models.TextField(default="", blank=True)
    result = models.TextField(null=True, blank=True)  # noqa: DJ001 - None is "no result", "null" is None
    failure = models.TextField(null=True, blank=True)  # noqa: DJ001
    attributes = models.JSONField(default=dict, blank=True)
    memo = models.JSONField(default=dict, blank=True)
    context = models.JSONField(default=dict, blank=True)
    subject_type = models.CharField(max_length=255, default="", blank=True)
    subject_id = models.CharField(max_length=255, default="", blank=True)
    subject_hash = models.CharField(max_length=64, null=True, blank=True, db_index=True)  # noqa: DJ001

    root_id = models.UUIDField()
    parent_id = models.UUIDField(null=True, blank=True)
    parent_position = models.CharField(max_length=120, default="", blank=True)
    parent_close = models.CharField(max_length=16, default="cancel", blank=True)

    queue = models.CharField(max_length=255, default="", blank=True)
    priority = models.SmallIntegerField(null=True, blank=True)
    created_at = MomentField()
    start_at = MomentField()
    started_at = MomentField(null=True, blank=True)
    finished_at = MomentField(null=True, blank=True)
    deadline_at = MomentField(null=True, blank=True)
    expected_at = MomentField(null=True, blank=True)
    warn_at = MomentField(null=True, blank=True)
    stuck_at = MomentField(null=True, blank=True)  # when somebody was last told that it is stuck
    look_at = MomentField(null=True, blank=True)

    objects = InstanceManager()

    class Meta:
        verbose_name = "workflow instance"
        permissions = [
            ("signal_workflowinstance", "Can send signals to workflow instances"),
            ("cancel_workflowinstance", "Can cancel workflow instances"),
            ("terminate_workflowinstance", "Can terminate workflow instances"),
            ("pause_workflowinstance", "Can pause and resume workflow instances"),
            ("retry_workflowinstance", "Can retry workflow instances"),
        ]
        # Partial indexes stand in the migrations: Django warns of them on MySQL (W037).
        indexes = [
            models.Index(fields=["name", "state", "-created_at"], name="durable_instance_console"),
            models.Index(fields=["state", "waiting_since"], name="durable_instance_waiting"),
            models.Index(fields=["key_hash", "created_at"], name="durable_instance_key"),
            models.Index(fields=["root_id", "finished_at"], name="durable_instance_root"),
        ]
        constraints = [models.UniqueConstraint(fields=["chain_id", "run_number"], name="durable_instance_run")]

    def __str__(self) -> str:
        return f"{self.name} {self.key or self.id}"


class WorkflowKey(models.Model):
    """The permanent row of a key of a workflow: locked by whoever starts one, so that no two start it at once.

    ``hash`` tells apart what collations do not. ``open_id`` is the open chain, ``last_*`` the one that closed last.
    """

    hash = models.CharField(max_length=64, primary_key=True)
    name = models.CharField(max_length=NAME_LENGTH)
    open_id = models.UUIDField(null=True, blank=True, db_index=True)
    last_id = models.UUIDField(null=True, blank=True)
    last_state = models.CharField(max_length=16, default="", blank=True)

    objects = EngineManager()

    def __str__(self) -> str:
        return f"{self.name} {self.hash}"
