"""What an instance is about: a model instance of the user's, kept as label and primary key without a foreign key."""

from __future__ import annotations

import hashlib
from typing import Any

from durable_celery.errors import BadValue


def subject_of(subject: Any) -> tuple[str, str]:
    """The label ("shop.order") and primary key of a model instance; of a (label, pk) pair, the pair itself."""
    if isinstance(subject, (tuple, list)) and len(subject) == 2 and all(isinstance(part, str) for part in subject):
        return subject[0].lower(), subject[1]
    meta = getattr(subject, "_meta", None)
    if meta is None or isinstance(subject, type):
        raise BadValue(f"subject must be a saved model instance, got {subject!r}", path="subject")
    if subject.pk is None:
        raise BadValue(f"subject {subject!r} has no primary key; save it first", path="subject")
    return meta.concrete_model._meta.label_lower, str(subject.pk)


def subject_hash(subject: Any) -> str:
    """64 hex digits that stand for exactly this subject in an index."""
    return hashlib.sha256("\0".join(subject_of(subject)).encode("utf-8", "surrogatepass")).hexdigest()
