"""What a workflow body should not do, found by reading its source: ``manage.py check`` shows it. Pure.

Rules of this package:
- A rule is one small function: it gets the code of one function and yields what it sees; ``rules.RULES`` is the table.
- What cannot be read, resolved or seen for certain is silent: a false alarm costs more than a miss.
- ``# durable: ok`` at the end of a line silences it.
"""

from __future__ import annotations

from durable_celery.lints.finding import Finding as Finding
from durable_celery.lints.rules import RULES as RULES
from durable_celery.lints.search import findings as findings
