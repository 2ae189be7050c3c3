"""What may not be told of instances outside their own rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from django_app import families
from django_app.store.connected import Connected
from django_app.store.retries import retried
from durable_celery.secrecy import Scrubber


class Secrets(Connected):
    """Secrets for lines of a log, where no page reads them."""

    @retried
    def scrubbers(self, instance_ids: Collection[UUID]) -> Mapping[UUID, Scrubber]:
        """What takes the secrets out of the texts of each instance."""
        return families.scrubbers(instance_ids, longest=None)
