"""Settings of the example shop. Everything that differs between machines comes from the environment:

DATABASE_URL     postgres://... or mysql://...; SQLite when empty
BROKER_URL       redis://... or amqp://...; a folder of files when empty
ALLOWED_HOSTS    the names the shop is called by, with commas between them; localhost,127.0.0.1
SHOP_DATA_DIR    where SQLite, the broker's files and logs live; .data beside manage.py
SHOP_TIME_SCALE  how many times faster than life the shop's waits pass; 1
SHOP_RESULTS     1 stores task results by django-celery-results, as many projects do
SHOP_DEBUG       1 for runserver
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from celery.schedules import crontab

from . import services

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(os.environ.get("SHOP_DATA_DIR") or BASE_DIR / ".data")
DATA_DIR.mkdir(parents=True, exist_ok=True)

SECRET_KEY = os.environ.get("SECRET_KEY", "only-for-the-example")
DEBUG = os.environ.get("SHOP_DEBUG") == "1"
ALLOWED_HOSTS = [name.strip() for name in os.environ.get("ALLOWED_HOSTS", "localhost,127.0.0.1").split(",")]
ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "durable_celery",
    "shop",
    "loans",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
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
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# A request is one transaction: an order and the start of its workflow are committed together or not at all.
DATABASES = {"default": services.database(os.environ.get("DATABASE_URL", ""), DATA_DIR) | {"ATOMIC_REQUESTS": True}}

CELERY_BROKER_URL, CELERY_BROKER_TRANSPORT_OPTIONS = services.broker(os.environ.get("BROKER_URL", ""), DATA_DIR)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_BEAT_SCHEDULE = {
    "import prices": {"task": "shop.import_prices", "schedule": crontab(hour="2", minute="30")},  # starts the workflow
}
if os.environ.get("SHOP_RESULTS") == "1":
    INSTALLED_APPS.append("django_celery_results")
    CELERY_RESULT_BACKEND = "django-db"

DURABLE_CELERY = {
    "STEP_TIMEOUT": timedelta(minutes=1),
    "RETENTION": timedelta(days=90),
}

SHOP_TIME_SCALE = float(os.environ.get("SHOP_TIME_SCALE", "1"))
SHOP_PAYMENT_WINDOW = timedelta(minutes=30) / SHOP_TIME_SCALE
SHOP_PARTNER_LATENCY = timedelta(milliseconds=30)
SHOP_PRICE_LIST = DATA_DIR / "prices.csv"
