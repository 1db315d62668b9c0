"""The text of a list that found nothing: what was searched, in how many rows, and which links may find more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.views.main import IGNORED_PARAMS, PAGE_VAR
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue.admin import figures, task_choices
from jobqueue.admin.base import MAX_ID
from jobqueue.core import masking
from jobqueue.core.search import FIELDS, Search, part_of
from jobqueue.core.targets import Target
from jobqueue.core.texts import clean, shorten
from jobqueue.db import claims, overview
from jobqueue.models import Job, Queue

MAX_TENANTS = 1000
NO_FILTERS = (*IGNORED_PARAMS, PAGE_VAR)
MAX_TEXT_BYTES = 200
MAX_NUMBER_BYTES = 60


@dataclass(frozen=True, slots=True)
class NothingFound:
    """The sentence, and links that may find more, each with a text and a URL."""

    text: str
    offers: list[tuple[str, str]]


def jobs(cl: Any, wanted: str, job_id: int | None, scope: str, most: int) -> NothingFound:
    """Return the text for the list of jobs; `scope` names the rows that were searched, if these are not all."""
    number = 0 if scope else _count(cl.root_queryset, most)
    jobs_text = ngettext("all %(number)s job", "all %(number)s jobs", min(number, most) + (number > most))
    where = scope or jobs_text % {"number": figures.count(min(number, most), more=number > most)}
    chosen = [name for name in cl.params if cl.params[name] and name not in NO_FILTERS]
    with_filters = ngettext(" with the chosen filter (%(names)s)", " with the chosen filters (%(names)s)", len(chosen))
    filters = with_filters % {"names": ", ".join(chosen)} if chosen else ""
    values = {"number": job_id, "filters": filters, "where": where}
    if job_id is not None and not 0 < job_id <= MAX_ID:
        text = _no_number(wanted)
    elif job_id is not None:
        text = _("No job has the number %(number)s%(filters)s. It may have been deleted by retention.") % values
    elif cl.invalid:
        text = _("%(error)s No job was searched for.") % {"error": masking.mask_text(clean(cl.invalid))}
    elif wanted:
        text = _("No job found%(filters)s. The search covered %(where)s, by %(fields)s.") % {
            **values,
            "fields": _fields(cl.conditions, wanted),
        }
    else:
        text = _("No job found%(filters)s. The search covered %(where)s.") % values
    further = [(_("Search further back"), cl.further_url)] if cl.further_url else []
    without = [(_("Search without the filters"), f"?{urlencode({'q': wanted})}")] if wanted and chosen else []
    offers = _offers(cl, wanted) + without or _other_searches(wanted)
    return NothingFound(text, [*offers, *further, (_("Show all jobs"), "?")])


def _other_searches(wanted: str) -> list[tuple[str, str]]:
    """Return links that search for a text that is not written in the search language, in a target's name and in messages."""
    if not wanted or any(character in wanted for character in '\0 ="') or _as_field(wanted) or masking.mask_text(wanted) != wanted:
        return []
    parts = [part_of(field, shorten(wanted, MAX_TEXT_BYTES)) for field in ("target", "error")]
    return [(_("Search for %(text)s") % {"text": clean(part)}, f"?{urlencode({'q': part})}") for part in parts]


def _as_field(text: str) -> bool:
    """Return whether a text begins with a field of the search language, or is a number."""
    return text.partition(":")[0] in FIELDS or text.removeprefix("#").isdigit()


def _fields(conditions: Search, wanted: str) -> str:
    """Return the names of what a search compared, and for a single word how to search for other things."""
    if conditions.texts.get("task") == wanted:
        return _(
            "the path of the task, or a part of the path of a registered task. To search for an argument, write NAME=VALUE; for a "
            'message, error:"TEXT"'
        )
    names = [
        *conditions.texts,
        *conditions.times,
        *(_("the argument %(name)s") % {"name": argument.path[0]} for argument in conditions.arguments),
    ]
    return clean(masking.mask_text(", ".join(names)))


def deliveries(cl: Any, wanted: str, job_id: int | None, scope: str, most: int) -> NothingFound:
    """Return the text for the list of deliveries."""
    number = _count(cl.root_queryset, most)
    all_text = ngettext("all %(number)s delivery", "all %(number)s deliveries", min(number, most) + (number > most))
    where = scope or all_text % {"number": figures.count(min(number, most), more=number > most)}
    show_all = [(_("Show all deliveries"), "?")]
    if wanted and (job_id is None or not 0 < job_id <= MAX_ID):
        return NothingFound(_("No delivery found. %(reason)s") % {"reason": _no_number(wanted)}, show_all)
    text = _("by the number of a job") if wanted else _("with the chosen filters")
    return NothingFound(_("No delivery found. The search covered %(where)s, %(text)s.") % {"where": where, "text": text}, show_all)


def _count(rows: Any, most: int) -> int:
    counted: int = rows.order_by("-pk").values("pk")[: most + 1].count()
    return counted


def _no_number(wanted: str) -> str:
    """Return the sentence that the search text cannot be the number of a job."""
    shown = shorten(clean(masking.mask_text(wanted)), MAX_NUMBER_BYTES)
    return _("%(text)s is not the number of a job, which is a whole number from 1 to %(most)s.") % {"text": shown, "most": MAX_ID}


def _offers(cl: Any, wanted: str) -> list[tuple[str, str]]:
    """Return links to the jobs of a queue or a target whose name is the search text."""
    if not wanted or "\0" in wanted or masking.mask_text(wanted) != wanted:
        return []
    shown = shorten(clean(wanted), MAX_TEXT_BYTES)
    database = Job.objects.database
    offers = []
    queues = task_choices.queues() | {*claims.queued_queues(database, MAX_TENANTS)}
    if wanted in queues or Queue.objects.filter(pk=wanted).exists():
        offers.append((_("Jobs of queue %(name)s") % {"name": shown}, f"?{urlencode({'queue': wanted})}"))
    heads = overview.target_heads(database, [Target(tenant, wanted) for tenant in overview.tenants_in_lines(database, MAX_TENANTS)])
    ids = {job_id for head in heads for job_id in head.job_ids}
    if ids and cl.root_queryset.filter(pk__in=ids).exists():
        offers.append((_("Jobs of target %(name)s") % {"name": shown}, f"?{urlencode({'target': wanted})}"))
    return offers
