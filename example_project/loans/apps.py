from __future__ import annotations

from django.apps import AppConfig


class LoansConfig(AppConfig):
    name = "loans"
