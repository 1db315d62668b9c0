"""The admin of the library's rows."""

from django.contrib import admin

from demo_project.library.models import Module, Package


@admin.register(Package)
class PackageAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The list of the packages with their measures."""

    list_display = ("name", "summary", "complexity", "link_count")
    search_fields = ("name", "summary")


@admin.register(Module)
class ModuleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The list of the modules."""

    list_display = ("name", "package", "line_count", "indexed_at")
    list_filter = ("package",)
    search_fields = ("name",)
