"""What Django finds for ``"durable_celery"`` in INSTALLED_APPS.

Exactly one app config may stand here: beside a second one Django falls back silently to a bare config without models.
"""

from __future__ import annotations


def _refuse_a_shadow() -> None:
    """Raise ImportError if ``django_app`` is a package of the project, found before the one installed with this one."""
    from importlib import import_module
    from importlib.util import find_spec

    found = find_spec("django_app")
    if found is None:
        raise ImportError(
            "durable_celery is installed without its package 'django_app', which holds its models: install it again "
            "(pip install --force-reinstall durable_celery)"
        )
    folders = found.submodule_search_locations
    has_config = folders is not None and find_spec("django_app.apps") is not None
    if has_config and hasattr(import_module("django_app.apps"), "DurableCeleryConfig"):
        return
    place = next(iter(folders or ()), found.origin)
    raise ImportError(
        f"'django_app' is {place}, expected the package of that name that durable_celery brings: yours comes first on "
        f"sys.path and hides it. Rename your package (git mv django_app shop; then its name in INSTALLED_APPS, its "
        f"AppConfig and its imports), or move it into another package (project.django_app)",
        name="django_app",
        path=place,
    )


_refuse_a_shadow()

from django_app.apps import DurableCeleryConfig as DurableCeleryConfig  # noqa: E402
