from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """One execution of a step body, so that executions can be counted."""

    run = models.CharField(max_length=100, db_index=True)
    what = models.CharField(max_length=100)
    key = models.CharField(max_length=200, default="")
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.run}: {self.what}"
