"""One answer for load balancers and monitors: is anything wrong with the engine."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse

from django_app import doctor

TOLD = ("tick", "beat", "workers", "overdue")  # findings whose text names nothing of the project


def health(request: HttpRequest) -> JsonResponse:
    """200 if the doctor finds nothing, else 503 with the ids of its findings; and the engine's state in numbers.

    It names no workflow and no key. ``texts`` say how long the clock stands still and how much is overdue.
    """
    found = doctor.findings()
    ids = sorted({finding.id for finding in found})
    texts = [finding.text for finding in found if finding.id in TOLD]
    answer = {"ok": not ids, "findings": ids, "texts": texts, "state": doctor.state()}
    return JsonResponse(answer, status=503 if ids else 200)
