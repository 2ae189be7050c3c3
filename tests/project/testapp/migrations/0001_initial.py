from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run", models.CharField(db_index=True, max_length=100)),
                ("what", models.CharField(max_length=100)),
                ("key", models.CharField(default="", max_length=200)),
                ("at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
