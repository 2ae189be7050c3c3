"""The tests on every supported Python, Django and Celery; `make nightly` runs all of it.

nox -s tests-3.13      one Python
nox -k 'not newest'    without the Django that django-celery-beat does not allow yet
"""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
DJANGOS = {"5.2": PYTHONS, "6.0": ["3.12", "3.13"]}
CELERYS = ["5.4", "5.5", "5.6", "5.7"]
NEWEST_DJANGO = "6.1"


@nox.session(python=PYTHONS)
@nox.parametrize("celery", CELERYS)
@nox.parametrize("django", list(DJANGOS))
def tests(session: nox.Session, django: str, celery: str) -> None:
    if session.python not in DJANGOS[django]:
        session.skip(f"Django {django} does not run on Python {session.python}")
    session.install(".[test]", f"django=={django}.*", f"celery=={celery}.*")
    session.run("python", "tests/run.py", *session.posargs)


@nox.session(python=["3.12", "3.13"])
def newest(session: nox.Session) -> None:
    """On a Django that django-celery-beat does not allow yet; it works all the same."""
    session.install(".[test]")
    session.install("--no-deps", f"django=={NEWEST_DJANGO}.*")
    session.run("python", "tests/run.py", *session.posargs)
