"""The Django app of durable_celery: everything that has state. Its label is ``durable_celery``."""
