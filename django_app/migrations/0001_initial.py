"""All tables, with the indexes that no model can declare."""

import django.db.models.deletion
from django.db import migrations, models

import django_app.models.moments
from django_app.migrations._indexes import JsonIndex, PartialIndex


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="EngineHeartbeat",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("last_tick_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("last_tick_by", models.CharField(blank=True, default="", max_length=255)),
                ("healthy_since", django_app.models.moments.MomentField(blank=True, null=True)),
                ("beat_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("stuck_looked_at", django_app.models.moments.MomentField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "heartbeat",
            },
        ),
        migrations.CreateModel(
            name="Mailbox",
            fields=[
                ("instance_id", models.UUIDField(primary_key=True, serialize=False)),
                ("opened_by", models.CharField(blank=True, default="", max_length=32)),
                ("closed_at", django_app.models.moments.MomentField(blank=True, null=True)),
            ],
            options={
                "verbose_name_plural": "mailboxes",
            },
        ),
        migrations.CreateModel(
            name="StepResult",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.CharField(max_length=120)),
                ("kind", models.CharField(max_length=16)),
                ("name", models.CharField(blank=True, default="", max_length=255)),
                ("state", models.CharField(max_length=16)),
                ("members", models.IntegerField(default=0)),
                ("options", models.TextField(blank=True, default="")),
                ("group", models.CharField(blank=True, max_length=120, null=True)),
                ("join", models.CharField(blank=True, max_length=120, null=True)),
                ("limited", models.BooleanField(default=False)),
                ("abandoned", models.BooleanField(default=False)),
                ("mapped", models.BooleanField(default=False)),
                ("shielded", models.BooleanField(default=False)),
                ("queue", models.CharField(blank=True, default="", max_length=255)),
                ("compensation", models.TextField(blank=True, default="")),
                ("args", models.TextField(blank=True, default="")),
                ("result", models.TextField(blank=True, null=True)),
                ("failure", models.TextField(blank=True, null=True)),
                ("unknown_end", models.BooleanField(default=False)),
                ("attempt", models.IntegerField(default=0)),
                ("failures", models.IntegerField(default=0)),
                ("deaths", models.IntegerField(default=0)),
                ("expiries", models.IntegerField(default=0)),
                ("resends", models.IntegerField(default=0)),
                ("token", models.CharField(blank=True, max_length=64, null=True)),
                ("lease_id", models.UUIDField(blank=True, null=True)),
                ("pid", models.IntegerField(blank=True, null=True)),
                ("last_heartbeat", models.TextField(blank=True, null=True)),
                ("scheduled_at", django_app.models.moments.MomentField()),
                ("started_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("finished_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("heartbeat_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("due_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("start_by_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("end_by_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("close_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("look_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("taken_turn", models.IntegerField(blank=True, null=True)),
                ("taken_order", models.IntegerField(default=0)),
                ("taken_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("ended_turn", models.IntegerField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "step",
            },
        ),
        migrations.CreateModel(
            name="WorkerLease",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("node", models.CharField(blank=True, default="", max_length=255)),
                ("boot_id", models.CharField(blank=True, default="", max_length=64)),
                ("pid_ns", models.CharField(blank=True, default="", max_length=64)),
                ("pid", models.IntegerField()),
                ("start_ticks", models.BigIntegerField()),
                ("expires_at", django_app.models.moments.MomentField()),
                ("dead_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("lag", models.FloatField(default=0.0)),
                ("queues", models.TextField(blank=True, default="")),
                ("code", models.TextField(blank=True, default="")),
            ],
            options={
                "verbose_name": "worker lease",
            },
        ),
        migrations.CreateModel(
            name="ScheduleSlot",
            fields=[
                ("schedule_hash", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("schedule", models.CharField(max_length=255)),
                ("slot_at", django_app.models.moments.MomentField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "schedule slot",
            },
        ),
        migrations.CreateModel(
            name="WorkflowKey",
            fields=[
                ("hash", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=160)),
                ("open_id", models.UUIDField(blank=True, db_index=True, null=True)),
                ("last_id", models.UUIDField(blank=True, null=True)),
                ("last_state", models.CharField(blank=True, default="", max_length=16)),
            ],
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("chain_id", models.UUIDField()),
                ("instance_id", models.UUIDField(db_index=True)),
                ("kind", models.CharField(max_length=16)),
                ("name", models.CharField(blank=True, default="", max_length=255)),
                ("payload", models.TextField(blank=True, default="")),
                ("dedupe", models.TextField(blank=True, null=True)),
                ("dedupe_hash", models.CharField(blank=True, max_length=64, null=True)),
                ("stored_at", django_app.models.moments.MomentField()),
                ("look_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("taken_turn", models.IntegerField(blank=True, null=True)),
                ("taken_order", models.IntegerField(default=0)),
                ("taken_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("delivered_turn", models.IntegerField(blank=True, null=True)),
                ("answer", models.TextField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("chain_id", "dedupe_hash"), name="durable_message_dedupe")
                ],
            },
        ),
        migrations.CreateModel(
            name="StepAttempt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("attempt", models.IntegerField()),
                ("outcome", models.CharField(max_length=16)),
                ("result", models.TextField(blank=True, null=True)),
                ("failure", models.TextField(blank=True, null=True)),
                ("node", models.CharField(blank=True, default="", max_length=255)),
                ("started_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("finished_at", django_app.models.moments.MomentField()),
                (
                    "step",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="attempts",
                        to="durable_celery.stepresult",
                    ),
                ),
            ],
            options={
                "verbose_name": "attempt",
            },
        ),
        migrations.CreateModel(
            name="WorkflowInstance",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("chain_id", models.UUIDField()),
                ("run_number", models.IntegerField(default=1)),
                ("name", models.CharField(max_length=160)),
                ("version", models.IntegerField(default=1)),
                ("fingerprint", models.CharField(blank=True, default="", max_length=64)),
                ("key", models.CharField(blank=True, db_index=True, max_length=191, null=True)),
                ("key_hash", models.CharField(blank=True, max_length=64, null=True)),
                ("open_key", models.CharField(blank=True, max_length=64, null=True, unique=True)),
                ("state", models.CharField(default="PENDING", max_length=16)),
                ("closing_as", models.CharField(blank=True, default="", max_length=16)),
                ("paused_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("pause_reason", models.TextField(blank=True, default="")),
                ("cancel_requested_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("revision", models.IntegerField(default=0)),
                ("turn", models.IntegerField(default=0)),
                ("turn_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("history_length", models.IntegerField(default=0)),
                ("waiting_for", models.TextField(blank=True, default="")),
                ("left_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("waiting_since", django_app.models.moments.MomentField(blank=True, null=True)),
                ("status_text", models.TextField(blank=True, default="")),
                ("blocked_by", models.TextField(blank=True, default="")),
                ("args", models.TextField(blank=True, default="")),
                ("result", models.TextField(blank=True, null=True)),
                ("failure", models.TextField(blank=True, null=True)),
                ("attributes", models.JSONField(blank=True, default=dict)),
                ("memo", models.JSONField(blank=True, default=dict)),
                ("context", models.JSONField(blank=True, default=dict)),
                ("subject_type", models.CharField(blank=True, default="", max_length=255)),
                ("subject_id", models.CharField(blank=True, default="", max_length=255)),
                ("subject_hash", models.CharField(blank=True, db_index=True, max_length=64, null=True)),
                ("root_id", models.UUIDField()),
                ("parent_id", models.UUIDField(blank=True, null=True)),
                ("parent_position", models.CharField(blank=True, default="", max_length=120)),
                ("parent_close", models.CharField(blank=True, default="cancel", max_length=16)),
                ("queue", models.CharField(blank=True, default="", max_length=255)),
                ("priority", models.SmallIntegerField(blank=True, null=True)),
                ("created_at", django_app.models.moments.MomentField()),
                ("start_at", django_app.models.moments.MomentField()),
                ("started_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("finished_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("deadline_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("expected_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("warn_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("stuck_at", django_app.models.moments.MomentField(blank=True, null=True)),
                ("look_at", django_app.models.moments.MomentField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "workflow instance",
                "permissions": [
                    ("signal_workflowinstance", "Can send signals to workflow instances"),
                    ("cancel_workflowinstance", "Can cancel workflow instances"),
                    ("terminate_workflowinstance", "Can terminate workflow instances"),
                    ("pause_workflowinstance", "Can pause and resume workflow instances"),
                    ("retry_workflowinstance", "Can retry workflow instances"),
                ],
                "indexes": [
                    models.Index(fields=["name", "state", "-created_at"], name="durable_instance_console"),
                    models.Index(fields=["state", "waiting_since"], name="durable_instance_waiting"),
                    models.Index(fields=["key_hash", "created_at"], name="durable_instance_key"),
                    models.Index(fields=["root_id", "finished_at"], name="durable_instance_root"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("chain_id", "run_number"), name="durable_instance_run")
                ],
            },
        ),
        migrations.AddField(
            model_name="stepresult",
            name="instance",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="steps",
                to="durable_celery.workflowinstance",
            ),
        ),
        migrations.CreateModel(
            name="Marker",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key_hash", models.CharField(max_length=64)),
                ("key", models.TextField()),
                ("value", models.TextField()),
                (
                    "instance",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="markers",
                        to="durable_celery.workflowinstance",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="stepresult",
            constraint=models.UniqueConstraint(fields=("instance", "position"), name="durable_step_position"),
        ),
        migrations.AddConstraint(
            model_name="marker",
            constraint=models.UniqueConstraint(fields=("instance", "key_hash"), name="durable_marker_key"),
        ),
        PartialIndex("workflowinstance", "durable_instance_look", ["look_at"], "{look_at} IS NOT NULL"),
        PartialIndex("workflowinstance", "durable_instance_open", ["chain_id", "finished_at"], "{finished_at} IS NULL"),
        PartialIndex("workflowinstance", "durable_instance_parent", ["parent_id"], "{parent_id} IS NOT NULL"),
        PartialIndex(
            "workflowinstance",
            "durable_instance_ended",
            ["finished_at", "id"],
            "{finished_at} IS NOT NULL AND {parent_id} IS NULL",
        ),
        PartialIndex(
            "workflowinstance",
            "durable_instance_expected",
            ["expected_at"],
            "{expected_at} IS NOT NULL AND {finished_at} IS NULL",
        ),
        PartialIndex(
            "workflowinstance",
            "durable_instance_warn",
            ["warn_at"],
            "{warn_at} IS NOT NULL AND {finished_at} IS NULL",
        ),
        PartialIndex("stepresult", "durable_step_look", ["look_at"], "{look_at} IS NOT NULL"),
        PartialIndex("stepresult", "durable_step_lease", ["lease_id"], "{lease_id} IS NOT NULL"),
        PartialIndex(
            "stepresult", "durable_step_news", ["instance", "mapped", "state", "taken_turn"], "{taken_turn} IS NULL"
        ),
        PartialIndex("stepresult", "durable_step_journal", ["instance", "mapped", "id"], "NOT {mapped}"),
        PartialIndex("stepresult", "durable_step_group", ["instance", "group", "state", "id"], "{group} IS NOT NULL"),
        PartialIndex("stepresult", "durable_step_join", ["instance", "join", "state"], "{join} IS NOT NULL"),
        PartialIndex("message", "durable_message_look", ["look_at"], "{look_at} IS NOT NULL"),
        PartialIndex("message", "durable_message_news", ["chain_id", "taken_turn"], "{taken_turn} IS NULL"),
        JsonIndex("workflowinstance", "durable_instance_attributes", "attributes"),
    ]
