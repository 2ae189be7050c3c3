"""One answer for load balancers and monitors: is anything wrong with the engine."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse

from django_app import doctor


def health(request: HttpRequest) -> JsonResponse:
    """200 if the doctor finds nothing, else 503 with the ids of its findings; and the engine's state in numbers.

    It names no workflow and no key.
    """
    found = doctor.findings()
    ids = sorted({finding.id for finding in found})
    return JsonResponse({"ok": not ids, "findings": ids, "state": doctor.state()}, status=503 if ids else 200)
