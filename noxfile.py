"""The tests on every supported Python, Django and Celery; `make nightly` runs all of it.

nox -s "tests(python='3.13', django='6.0', celery='5.7')"    one of them
nox -k 'not newest'                                          without the Django that django-celery-beat forbids yet

Each version of each meets several of the others; all 24 combinations would take hours and have never told more.
"""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False

MATRIX = [
    ("3.10", "5.2", "5.4"),
    ("3.11", "5.2", "5.5"),
    ("3.12", "5.2", "5.6"),
    ("3.13", "5.2", "5.7"),
    ("3.12", "6.0", "5.7"),
    ("3.13", "6.0", "5.4"),
    ("3.13", "6.0", "5.5"),
    ("3.12", "6.0", "5.6"),
]
# Celery's own extra holds redis-py below what a newer kombu asks for, so an old Celery gets the kombu of its time.
KOMBU = {"5.4": ["kombu<5.5"], "5.5": ["kombu<5.6"]}
NEWEST_DJANGO = "6.1"
PAIRS = ("--pair", "sqlite+memory")
# What meets Celery's version; what meets Django's as well; and the pure core, which meets only Python's.
CELERY = ("tests/celery", "tests/django_app", "tests/store", "tests/invariants")
MEETS = (*CELERY, "tests/engine", "tests/cases")
PURE = ("tests/core",)
WHOLE = {("3.10", "5.2", "5.4"), ("3.12", "6.0", "5.7")}  # a Django on its oldest Python, or on its newest Celery
NEW_PYTHON = {("3.10", "5.2", "5.4"), ("3.12", "5.2", "5.6"), ("3.13", "5.2", "5.7")}


@nox.session
@nox.parametrize("python, django, celery", MATRIX)
def tests(session: nox.Session, django: str, celery: str) -> None:
    combination = (str(session.python), django, celery)
    chosen = (*(MEETS if combination in WHOLE else CELERY), *(PURE if combination in NEW_PYTHON else ()))
    session.install(".[test]", f"django=={django}.*", f"celery=={celery}.*", *KOMBU.get(celery, ()))
    session.run("python", "tests/run.py", *PAIRS, "-q", *(session.posargs or chosen))


@nox.session(python=["3.13"])
def newest(session: nox.Session) -> None:
    """On a Django that django-celery-beat forbids yet; it works all the same."""
    session.install(".[test]")
    session.install("--no-deps", f"django=={NEWEST_DJANGO}.*")
    session.run("python", "tests/run.py", *PAIRS, "-q", *(session.posargs or MEETS))
