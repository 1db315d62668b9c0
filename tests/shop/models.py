"""Rows that belong to a job, that keep it from being deleted, and that outlive it."""

from django.db import models

from jobqueue.models import Job


class Parcel(models.Model):
    """Go with the job."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+")
    text = models.TextField(default="", db_default="")

    def __str__(self) -> str:
        return f"parcel {self.pk}"


class Event(models.Model):
    """Go with the job, and have nothing that goes with it."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE)
    text = models.TextField(default="", db_default="")

    def __str__(self) -> str:
        return f"event {self.pk}"


class Label(models.Model):
    """Go with the parcel, and so with the job."""

    parcel = models.ForeignKey(Parcel, on_delete=models.CASCADE, related_name="labels")

    def __str__(self) -> str:
        return f"label {self.pk}"


class Receipt(models.Model):
    """Keep the job."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT)

    def __str__(self) -> str:
        return f"receipt {self.pk}"


class Note(models.Model):
    """Outlive the job."""

    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL)

    def __str__(self) -> str:
        return f"note {self.pk}"
