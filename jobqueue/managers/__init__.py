"""The queries, each as a named method. Only managers and ``db`` write a status. Managers never import models."""

from typing import TypeVar

from django.db import models

Row = TypeVar("Row", bound=models.Model)  # the model of a manager or a set of rows
