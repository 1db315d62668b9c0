"""The pages of the library: search, packages, modules."""

from django.core.paginator import Paginator
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from demo_project.library import search
from demo_project.library.models import Definition, Module, Package, Word

PER_PAGE = 25


def home(request: HttpRequest) -> HttpResponse:
    """Show the definitions of a search; without a query, show the covers of all packages."""
    query = request.GET.get("q", "").strip()[:200]
    if not query:
        return render(request, "library/home.html", {"packages": _packages(), "words": Word.objects.all(), **_totals()})
    page = Paginator(search.definitions(query), PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "library/results.html", {"query": query, "terms": search.terms(query), "page": page})


def package(request: HttpRequest, name: str) -> HttpResponse:
    """Show one package and its modules."""
    found = get_object_or_404(_packages(), name=name)
    modules = found.modules.annotate(size=Count("definitions")).order_by("name")
    page = Paginator(modules, 4 * PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "library/package.html", {"package": found, "page": page})


def module(request: HttpRequest, name: str) -> HttpResponse:
    """Show one module and its definitions, at the page with the requested line."""
    found = get_object_or_404(Module.objects.select_related("package"), name=name)
    line = request.GET.get("line", "")
    paginator = Paginator(found.definitions.defer("search"), 2 * PER_PAGE)
    wanted = request.GET.get("page")
    if wanted is None and line.isascii() and line.isdigit() and len(line) < 8:
        wanted = str(1 + found.definitions.filter(line__lt=int(line)).count() // paginator.per_page)
    return render(request, "library/module.html", {"module": found, "page": paginator.get_page(wanted), "line": line})


def _packages() -> QuerySet[Package]:
    return Package.objects.annotate(files=Count("modules"), lines=Sum("modules__line_count")).order_by("name")


def _totals() -> dict[str, int]:
    return {
        "module_count": Module.objects.count(),
        "definition_count": Definition.objects.count(),
        "line_count": Module.objects.aggregate(lines=Sum("line_count"))["lines"] or 0,
    }
