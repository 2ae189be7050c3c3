"""The adapters to Celery and kombu: tasks, transport, the wiring of workers and Beat. Nothing else imports Celery."""
