"""The table of received messages."""

from typing import ClassVar

from django.db import models


class Message(models.Model):
    """One message, even if it came several times: its id is the same each time."""

    message_id = models.CharField(max_length=100, unique=True)
    type = models.CharField(max_length=100)
    body = models.TextField()
    times = models.PositiveIntegerField(default=1)
    arrived_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]

    def __str__(self) -> str:
        """Return its type and its id."""
        return f"{self.type} {self.message_id}"
