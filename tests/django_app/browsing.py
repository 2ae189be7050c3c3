"""Looking at pages of the admin."""

from __future__ import annotations

import re
from typing import Any

from django.urls import reverse


def url_of(instance: Any, query: str = "") -> str:
    return reverse("admin:durable_celery_workflowinstance_change", args=[instance.pk]) + query


def text_of(client: Any, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, response
    text: str = response.content.decode()
    return text


def drawing_in(html: str) -> str:
    start = html.index('<svg class="durable-timeline"')
    return html[start : html.index("</svg>", start)]


def squeezed(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())
