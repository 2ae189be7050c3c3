"""The Django project of the tests. `tests.project.surroundings` says what the environment decides.

TEST_DURABLE_CELERY, TEST_CELERY, TEST_BROKER_OPTIONS and TEST_DATABASE, each a JSON object, change settings of worker
processes: `{"LEASE": 2}`, `{"task_always_eager": true}`, `{"visibility_timeout": 3}`, `{"CONN_MAX_AGE": 600}`.
TEST_RESULTS=django-db keeps results. TEST_APPS, a JSON list, adds apps.
"""

from __future__ import annotations

import json
import os

from tests.project import surroundings

SECRET_KEY = "not a secret: tests only"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.project.urls"
STATIC_URL = "/static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "durable_celery",
    "tests.project.testapp",
    *json.loads(os.environ.get("TEST_APPS", "[]")),
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {"default": {**surroundings.database(), **json.loads(os.environ.get("TEST_DATABASE", "{}"))}}

CELERY_BROKER_URL = surroundings.broker_url()
CELERY_BROKER_TRANSPORT_OPTIONS = {
    **surroundings.broker_options(),
    **json.loads(os.environ.get("TEST_BROKER_OPTIONS", "{}")),
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_DEFAULT_QUEUE = f"tests-{surroundings.RUN}"
CELERY_RESULT_BACKEND = os.environ.get("TEST_RESULTS")
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
for key, value in json.loads(os.environ.get("TEST_CELERY", "{}")).items():
    globals()[f"CELERY_{key.upper()}"] = value
if CELERY_RESULT_BACKEND == "django-db":
    INSTALLED_APPS.append("django_celery_results")

DURABLE_CELERY = json.loads(os.environ.get("TEST_DURABLE_CELERY", "{}"))

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(process)d %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("TEST_LOG_LEVEL", "INFO")},
}
