"""The search for definitions by words."""

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from demo_project.library.models import Definition

MAX_WORDS = 6


def terms(query: str) -> list[str]:
    """Return the words of a search, without NUL, which PostgreSQL rejects."""
    return query.replace("\0", "").lower().split()[:MAX_WORDS]


def definitions(query: str) -> QuerySet[Definition]:
    """Return the definitions that contain all words of `query`, those with a matching name first."""
    words = terms(query)
    if not words:
        return Definition.objects.none()
    condition = Q()
    for word in words:
        condition &= Q(search__contains=word)
    name = words[-1]
    rank = Case(
        When(name__iexact=name, then=Value(0)),
        When(name__istartswith=name, then=Value(1)),
        When(qualified_name__icontains=name, then=Value(2)),
        default=Value(3),
        output_field=IntegerField(),
    )
    found = Definition.objects.filter(condition).select_related("module").defer("search")
    return found.order_by(rank, "module__name", "line")
