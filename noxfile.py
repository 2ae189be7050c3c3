"""The tests on every supported Python, Django and Celery; `make nightly` runs all of it.

nox -s "tests(python='3.13', django='6.0', celery='5.7')"    one of them
nox -k 'not newest'                                          without the Django that django-celery-beat forbids yet
"""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False

PYTHONS = {"5.2": ["3.10", "3.11", "3.12", "3.13"], "6.0": ["3.12", "3.13"]}  # that a Django runs on
CELERYS = ["5.4", "5.5", "5.6", "5.7"]
NEWEST_DJANGO = "6.1"
PAIRS = ("--pair", "sqlite+memory", "--pair", "postgres+redis")

MATRIX = [(python, django, celery) for django, pythons in PYTHONS.items() for python in pythons for celery in CELERYS]


@nox.session
@nox.parametrize("python, django, celery", MATRIX)
def tests(session: nox.Session, django: str, celery: str) -> None:
    session.install(".[test]", f"django=={django}.*", f"celery=={celery}.*")
    session.run("python", "tests/run.py", *PAIRS, *session.posargs)


@nox.session(python=PYTHONS["6.0"])
def newest(session: nox.Session) -> None:
    """On a Django that django-celery-beat forbids yet; it works all the same."""
    session.install(".[test]")
    session.install("--no-deps", f"django=={NEWEST_DJANGO}.*")
    session.run("python", "tests/run.py", *PAIRS, *session.posargs)
