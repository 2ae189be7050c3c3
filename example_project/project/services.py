"""Reads the two addresses the shop needs, a database and a broker, into the settings Django and Celery want.

An empty address means the one that needs no server: SQLite, and a broker made of files, both under the data folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ENGINES = {
    "postgres": "django.db.backends.postgresql",
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
    "mariadb": "django.db.backends.mysql",
}
BROKERS = ("redis", "rediss", "amqp", "amqps")


def database(url: str, data_dir: Path) -> dict[str, Any]:
    """The ``DATABASES["default"]`` of an address such as ``postgres://user:secret@host:5432/shop``."""
    if not url:
        return _sqlite(data_dir / "shop.sqlite3")
    parts = urlsplit(url)
    if parts.scheme not in ENGINES:
        raise ValueError(f"DATABASE_URL has the scheme {parts.scheme!r}; give one of {', '.join(ENGINES)}")
    engine = ENGINES[parts.scheme]
    if engine.endswith("mysql"):
        import pymysql

        pymysql.install_as_MySQLdb()
    return {
        "ENGINE": engine,
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
    }


def _sqlite(path: Path) -> dict[str, Any]:
    # Readers never wait for the writer (WAL), and a transaction takes the write lock when it begins: taking it half-way
    # is what makes SQLite answer "database is locked" at once, whatever the time-out.
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


def broker(url: str, data_dir: Path) -> tuple[str, dict[str, Any]]:
    """The ``CELERY_BROKER_URL`` and ``CELERY_BROKER_TRANSPORT_OPTIONS`` of an address such as ``redis://host/0``."""
    if not url or url == "filesystem://":
        return "filesystem://", _folders(data_dir / "broker")
    scheme = urlsplit(url).scheme
    if scheme not in BROKERS:
        raise ValueError(f"BROKER_URL has the scheme {scheme!r}; give one of {', '.join(BROKERS)} or filesystem")
    return url, {}


def _folders(root: Path) -> dict[str, Any]:
    queue, control = root / "queue", root / "control"
    for folder in (queue, control):
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "data_folder_in": str(queue),
        "data_folder_out": str(queue),
        "control_folder": str(control),
        "polling_interval": 0.02,
    }
