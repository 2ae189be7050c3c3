"""Sphinx settings: `make docs`."""

from __future__ import annotations

from durable_celery import __version__

project = "durable_celery"
author = "The durable_celery authors"
copyright = "The durable_celery authors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.intersphinx"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "description"
intersphinx_mapping: dict[str, tuple[str, None]] = {}

html_theme = "furo"
html_title = "durable_celery"
