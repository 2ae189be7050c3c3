"""What the bank knows. One report and one payout for each application, so that every step is safe to run twice."""

from __future__ import annotations

from django.db import models


class Application(models.Model):
    class State(models.TextChoices):
        APPLIED = "APPLIED"
        REFUSED = "REFUSED"
        PAID = "PAID"

    applicant = models.CharField(max_length=100)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    income = models.DecimalField(max_digits=10, decimal_places=2)
    state = models.CharField(max_length=10, choices=State, default=State.APPLIED)
    refused_because = models.CharField(max_length=100, default="", blank=True)
    applied_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.amount} for {self.applicant}"


class CreditReport(models.Model):
    application = models.OneToOneField(Application, on_delete=models.CASCADE, related_name="credit")
    score = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.score} of application {self.application.pk}"


class ComplianceReport(models.Model):
    application = models.OneToOneField(Application, on_delete=models.CASCADE, related_name="compliance")
    cleared = models.BooleanField()

    def __str__(self) -> str:
        return f"application {self.application.pk} {'cleared' if self.cleared else 'held'}"


class Payout(models.Model):
    application = models.OneToOneField(Application, on_delete=models.CASCADE, related_name="payout")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    requests = models.IntegerField(default=1)  # how often it was asked for; paid once all the same

    def __str__(self) -> str:
        return f"{self.amount} for application {self.application.pk}"
