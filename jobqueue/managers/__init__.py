"""The queries through the ORM, each as a method with a name. Only managers and ``db`` write `status`. Managers never import models."""

from typing import TypeVar

from django.db import models

Row = TypeVar("Row", bound=models.Model)  # the model of a manager or of a set of rows
