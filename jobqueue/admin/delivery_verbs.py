"""The verbs on deliveries: redeliver, send now, give up, use the current URL; on one or many, after a confirmation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.utils.translation import gettext_noop, ngettext, ngettext_lazy

from jobqueue.admin import delivery_columns as cells
from jobqueue.admin import figures, listing
from jobqueue.admin.base import ReadOnlyAdmin, audited
from jobqueue.admin.labels import translated
from jobqueue.models import Job, WebhookDelivery
from jobqueue.webhooks import redelivery
from jobqueue.webhooks.redelivery import NO_SUCH, RedeliveryAnswer

FIELD = "confirmed"
MAX_AT_ONCE = 500
MAX_SHOWN = 50
UNSELECTED = ("", "0", "false", "False")
Status = WebhookDelivery.Status


@dataclass(frozen=True, slots=True)
class Verb:
    """An action on deliveries: its permission, the states in which it is possible, and its texts."""

    name: str  # in its URL
    label: Promise
    asks: Promise  # the question of the confirmation
    done: str  # English; pages translate it
    record: str
    permission: str
    statuses: tuple[str, ...]
    others: str  # the state of the selected deliveries that it cannot change
    refusal: str  # the same state, as the reason of a refusal
    warning: Promise
    act: Callable[[int], RedeliveryAnswer]

    @property
    def action(self) -> str:
        """Its name among the actions of the list."""
        return f"{self.name.replace('-', '_')}_selected"

    def allowed(self, request: HttpRequest) -> bool:
        """Return whether the user has its permission."""
        return request.user.has_perm(f"jobqueue.{self.permission}_webhookdelivery")

    def possible(self, delivery: WebhookDelivery) -> bool:
        """Return whether the state of a delivery allows it."""
        return delivery.status in self.statuses


REDELIVER: Final = Verb(
    name="redeliver",
    label=_lazy("Redeliver"),
    asks=ngettext_lazy("Send %(number)s delivery again?", "Send %(number)s deliveries again?", "count"),
    done=gettext_noop("sent again"),
    record="Redelivered",
    permission="redeliver",
    statuses=(Status.DELIVERED, Status.FAILED),
    others=gettext_noop("still to be sent"),
    refusal=redelivery.STILL_TO_BE_SENT,
    warning=_lazy(
        "The same message is sent again, with the same id and content. A receiver that records the ids of messages "
        "ignores it; any other receiver processes it twice."
    ),
    act=redelivery.redeliver,
)
SEND_NOW: Final = Verb(
    name="send-now",
    refusal=redelivery.NOT_TO_BE_SENT,
    label=_lazy("Send now"),
    asks=ngettext_lazy("Send %(number)s delivery now?", "Send %(number)s deliveries now?", "count"),
    done=gettext_noop("sent now"),
    record="Sent now",
    permission="redeliver",
    statuses=(Status.PENDING,),
    others=gettext_noop("not to be sent"),
    warning=_lazy("The next attempt is made at once. It counts as one of the attempts, and the delay after it is the usual one."),
    act=redelivery.send_now,
)
GIVE_UP: Final = Verb(
    name="give-up",
    refusal=redelivery.ENDED_ALREADY,
    label=_lazy("Give up"),
    asks=ngettext_lazy("Give up %(number)s delivery?", "Give up %(number)s deliveries?", "count"),
    done=gettext_noop("given up"),
    record="Given up",
    permission="give_up",
    statuses=(Status.PENDING,),
    others=gettext_noop("not to be sent"),
    warning=_lazy(
        "No further attempt is made, and the receiver never gets these events unless the delivery is redelivered. An "
        "attempt in progress cannot be stopped."
    ),
    act=redelivery.give_up,
)
USE_PRESENT_URL: Final = Verb(
    name="use-current-url",
    refusal=redelivery.DELIVERED,
    label=_lazy("Use the current URL"),
    asks=ngettext_lazy("Send %(number)s delivery to the current URL?", "Send %(number)s deliveries to the current URL?", "count"),
    done=gettext_noop("sent to the current URL"),
    record="Moved to the current URL",
    permission="redeliver",
    statuses=(Status.PENDING, Status.FAILED),
    others=gettext_noop("delivered"),
    warning=_lazy(
        "The message is sent at once to the URL that the job, or else its queue, has now. The attempts are counted from 0 again."
    ),
    act=redelivery.use_current_url,
)
VERBS: Final = {verb.name: verb for verb in (REDELIVER, SEND_NOW, USE_PRESENT_URL, GIVE_UP)}


def action_of(verb: Verb) -> Any:
    """Return the bulk action for a verb."""

    def act(modeladmin: DeliveryVerbsAdmin, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> HttpResponse | None:
        return modeladmin.act_on_selected(request, queryset, verb)

    act.__name__ = verb.action
    act.short_description = verb.label  # type: ignore[attr-defined]
    act.allowed_permissions = (verb.permission,)  # type: ignore[attr-defined]
    return act


CONFIRMED_CELLS = (cells.status, cells.event, cells.job, cells.receiver, cells.attempts, cells.last_response)


class DeliveryVerbsAdmin(ReadOnlyAdmin[WebhookDelivery]):
    """The admin with the verbs on deliveries."""

    actions = tuple(action_of(verb) for verb in VERBS.values())

    def has_redeliver_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may send messages."""
        return REDELIVER.allowed(request)

    def has_give_up_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may give up messages."""
        return GIVE_UP.allowed(request)

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs for the buttons of a delivery's page."""
        view = self.admin_site.admin_view(self.verb_view)
        urls = [
            path(f"<int:object_id>/{verb.name}/", view, {"name": verb.name}, name=f"jobqueue_webhookdelivery_{verb.name.replace('-', '_')}")
            for verb in VERBS.values()
        ]
        return [*urls, *super().get_urls()]

    def verbs_of(self, request: HttpRequest, delivery: WebhookDelivery) -> list[tuple[Verb, str]]:
        """Return the verbs that the user can run on a delivery, each with its URL."""
        able = [verb for verb in VERBS.values() if verb.allowed(request) and verb.possible(delivery)]
        names = [f"admin:jobqueue_webhookdelivery_{verb.name.replace('-', '_')}" for verb in able]
        return [(verb, reverse(name, args=[delivery.pk], current_app=self.admin_site.name)) for verb, name in zip(able, names, strict=True)]

    @audited
    def verb_view(self, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
        """Run a verb on one delivery, by POST; a GET (as after a login) only redirects to its page."""
        verb = VERBS.get(name)
        if verb is None:
            raise Http404(f"Deliveries have no action {name!r}.")
        delivery = self.get_object(request, str(object_id))
        if not self.has_view_permission(request, delivery) or not verb.allowed(request):
            raise PermissionDenied
        if delivery is None:
            if request.method == "POST":
                self.log_missing(request, name, [f"webhook delivery {object_id}"])
            return self.redirect_missing(request, object_id)
        confirmation = self._act(request, verb, [delivery], on_list=False) if request.method == "POST" else None
        page = "admin:jobqueue_webhookdelivery_change"
        return confirmation or HttpResponseRedirect(reverse(page, args=[delivery.pk], current_app=self.admin_site.name))

    def act_on_selected(self, request: HttpRequest, queryset: QuerySet[WebhookDelivery], verb: Verb) -> HttpResponse | None:
        """Run a verb on the selected deliveries of the list."""
        if not verb.allowed(request):
            raise PermissionDenied
        if request.POST.get("select_across", "") in UNSELECTED:
            # The list's filters are not applied: a delivery that no longer matches them must be reported, not
            # skipped.
            selected = {int(value) for value in request.POST.getlist(ACTION_CHECKBOX_NAME)}
            existing = list(self.get_queryset(request).filter(pk__in=selected))
            self.log_missing(
                request, verb.name, [f"webhook delivery {delivery_id}" for delivery_id in sorted(selected - {row.pk for row in existing})]
            )
            return self._act(request, verb, existing)
        rows = list(queryset.filter(status__in=verb.statuses)[: MAX_AT_ONCE + 1])
        if len(rows) > MAX_AT_ONCE:
            text = _(
                "More than %(number)s deliveries were selected. This action covers only the newest %(number)s; repeat it for the rest."
            )
            self.message_user(request, text % {"number": MAX_AT_ONCE}, messages.INFO)
        return self._act(request, verb, rows[:MAX_AT_ONCE])

    def _act(self, request: HttpRequest, verb: Verb, rows: list[WebhookDelivery], *, on_list: bool = True) -> HttpResponse | None:
        """Run a verb and report the numbers; return the confirmation page if the user must confirm first."""
        can = [row for row in rows if verb.possible(row)]
        confirmed = {listing.as_id(part) for part in request.POST.get(FIELD, "").split(",")}
        if {row.pk for row in can} - confirmed:
            return self._ask(request, verb, can, len(rows) - len(can), on_list=on_list)
        done, reasons = [], [verb.refusal] * (len(rows) - len(can))
        for row in sorted(can, key=lambda row: row.pk):
            # The change and its record are committed together.
            with Job.objects.database.atomic():
                if answer := verb.act(row.pk):
                    self.log_verb(request, row, verb.name, f"{verb.record}; it was {row.status}.")
                else:
                    self.log_refusal(request, row, verb.name, answer.reason)
            (done.append(row.pk) if answer else reasons.append(answer.reason))
        if done:
            one, several = _("Delivery %(id)s is %(done)s."), _("%(number)s deliveries are %(done)s.")
            values = {"id": done[0], "number": figures.count(len(done)), "done": translated(verb.done)}
            self.message_user(request, (one if len(done) == 1 else several) % values, messages.SUCCESS)
        for reason in dict.fromkeys(reasons):
            self.message_user(request, _("%(number)s not %(done)s: %(reason)s.") % _refused(verb, reasons, reason), messages.WARNING)
        if not rows:
            self.message_user(request, _("Nothing was %(done)s: %(reason)s.") % _refused(verb, reasons, NO_SUCH), messages.WARNING)
        return None

    def _ask(self, request: HttpRequest, verb: Verb, rows: list[WebhookDelivery], others: int, *, on_list: bool) -> HttpResponse:
        fields = [(FIELD, ",".join(str(row.pk) for row in rows))]
        if on_list:
            fields += [("action", verb.action), *((ACTION_CHECKBOX_NAME, str(row.pk)) for row in rows)]
        context = {
            **self.page_context(request),
            "title": verb.asks % {"count": len(rows), "number": figures.count(len(rows))},
            "verb": verb,
            "rows": [(row, *(cell(row) for cell in CONFIRMED_CELLS)) for row in rows[:MAX_SHOWN]],
            "unnamed": max(len(rows) - MAX_SHOWN, 0),
            "others": others,
            "state": translated(verb.others),
            "fields": fields,
            "button": f"{verb.label}: {_number(rows)}",
            "back": request.get_full_path() if on_list else reverse("admin:jobqueue_webhookdelivery_change", args=[rows[0].pk]),
        }
        return TemplateResponse(request, "jobqueue/admin/redeliver.html", context)

    def page_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context that all pages of deliveries need."""
        request.current_app = self.admin_site.name
        return {**self.admin_site.each_context(request), "is_nav_sidebar_enabled": False, "opts": self.opts, "media": self.media}

    def redirect_missing(self, request: HttpRequest, object_id: object) -> HttpResponse:
        """Report that there is no such delivery, and redirect to the list."""
        self.message_user(
            request, _("There is no delivery %(number)s; it may have been deleted.") % {"number": str(object_id)[:40]}, messages.WARNING
        )
        return HttpResponseRedirect(reverse("admin:jobqueue_webhookdelivery_changelist", current_app=self.admin_site.name))


def _number(rows: list[WebhookDelivery]) -> str:
    """Return the deliveries that a button changes: the number of one, or how many they are."""
    if len(rows) == 1:
        return _("delivery %(number)s") % {"number": rows[0].pk}
    return ngettext("%(number)s delivery", "%(number)s deliveries", len(rows)) % {"number": figures.count(len(rows))}


def _refused(verb: Verb, reasons: list[str], reason: str) -> dict[str, Any]:
    return {"number": figures.count(reasons.count(reason)), "done": translated(verb.done), "reason": translated(reason)}
