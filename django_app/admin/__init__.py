"""The console in Django's admin. Importing it registers the pages, as Django's autodiscovery does."""

from __future__ import annotations

from django_app.admin.instances import WorkflowInstanceAdmin as WorkflowInstanceAdmin
