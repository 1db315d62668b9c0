"""The tables of the library."""

from typing import ClassVar

from django.db import models
from django.urls import reverse


class Package(models.Model):
    """One package of the standard library, or the group of modules without a package."""

    name = models.CharField(max_length=100, unique=True)
    summary = models.CharField(max_length=300, blank=True)
    cover = models.ImageField(upload_to="covers", blank=True)
    complexity = models.FloatField(null=True, blank=True, help_text="Mean number of paths through a function.")
    link_count = models.PositiveIntegerField(null=True, blank=True, help_text="Different web addresses named in docstrings.")

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]

    def __str__(self) -> str:
        """Return the package's name."""
        return self.name

    def get_absolute_url(self) -> str:
        """Return the URL of the package's page."""
        return reverse("library:package", args=[self.name])


class Module(models.Model):
    """One source file of a package."""

    package = models.ForeignKey(Package, on_delete=models.CASCADE, related_name="modules")
    name = models.CharField(max_length=200, unique=True)
    docstring = models.TextField(blank=True)
    line_count = models.PositiveIntegerField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the source that was indexed.")
    indexed_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]

    def __str__(self) -> str:
        """Return the module's dotted name."""
        return self.name

    def get_absolute_url(self) -> str:
        """Return the URL of the module's page."""
        return reverse("library:module", args=[self.name])


class Definition(models.Model):
    """One class, function or method."""

    class Kind(models.TextChoices):
        """The kinds of definitions."""

        CLASS = "CLASS", "class"
        FUNCTION = "FUNCTION", "function"
        COROUTINE = "COROUTINE", "coroutine"
        METHOD = "METHOD", "method"

    module = models.ForeignKey(Module, on_delete=models.CASCADE, related_name="definitions")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    name = models.CharField(max_length=200)
    qualified_name = models.CharField(max_length=400)
    signature = models.CharField(max_length=300, blank=True)
    line = models.PositiveIntegerField()
    docstring = models.TextField(blank=True)
    search = models.TextField(help_text="The text that the search page searches, in lower case.")

    class Meta:
        ordering: ClassVar[list[str]] = ["module_id", "line"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["module", "line", "qualified_name"], name="library_one_definition_per_place"),
        ]

    def __str__(self) -> str:
        """Return the name in the form of an import."""
        return f"{self.module_id}:{self.qualified_name}"

    def get_absolute_url(self) -> str:
        """Return the URL of the definition's line on its module's page."""
        return f"{self.module.get_absolute_url()}?line={self.line}#line-{self.line}"


class Word(models.Model):
    """A word that many docstrings use, offered on the search page."""

    text = models.CharField(max_length=60, unique=True)
    uses = models.PositiveIntegerField()

    class Meta:
        ordering: ClassVar[list[str]] = ["-uses", "text"]

    def __str__(self) -> str:
        """Return the word."""
        return self.text
