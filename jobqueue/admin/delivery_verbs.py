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

from jobqueue.admin import delivery_columns as cells
from jobqueue.admin import listing
from jobqueue.admin.base import ReadOnlyAdmin, audited
from jobqueue.core.amounts import plural
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
    label: str
    asks: str  # the question of the confirmation: "Send {} again?"
    done: str
    record: str
    permission: str
    statuses: tuple[str, ...]
    others: str  # the state of the selected deliveries that it cannot change
    refusal: str  # the same state, as the reason of a refusal
    warning: str
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
    label="Redeliver",
    asks="Send {} again?",
    done="sent again",
    record="Redelivered",
    permission="redeliver",
    statuses=(Status.DELIVERED, Status.FAILED),
    others="still to be sent",
    refusal=redelivery.STILL_TO_BE_SENT,
    warning=(
        "The same message is sent again, with the same id and content. A receiver that records the ids of messages "
        "ignores it; any other receiver processes it twice."
    ),
    act=redelivery.redeliver,
)
SEND_NOW: Final = Verb(
    name="send-now",
    refusal=redelivery.NOT_TO_BE_SENT,
    label="Send now",
    asks="Send {} now?",
    done="sent now",
    record="Sent now",
    permission="redeliver",
    statuses=(Status.PENDING,),
    others="not to be sent",
    warning="The next attempt is made at once. It counts as one of the attempts, and the delay after it is the usual one.",
    act=redelivery.send_now,
)
GIVE_UP: Final = Verb(
    name="give-up",
    refusal=redelivery.ENDED_ALREADY,
    label="Give up",
    asks="Give up {}?",
    done="given up",
    record="Given up",
    permission="give_up",
    statuses=(Status.PENDING,),
    others="not to be sent",
    warning=(
        "No further attempt is made, and the receiver never gets these events unless the delivery is redelivered. An "
        "attempt in progress cannot be stopped."
    ),
    act=redelivery.give_up,
)
USE_PRESENT_URL: Final = Verb(
    name="use-current-url",
    refusal=redelivery.DELIVERED,
    label="Use the current URL",
    asks="Send {} to the current URL?",
    done="sent to the current URL",
    record="Moved to the current URL",
    permission="redeliver",
    statuses=(Status.PENDING, Status.FAILED),
    others="delivered",
    warning="The message is sent at once to the URL that the job, or else its queue, has now. The attempts are counted from 0 again.",
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
            only = f"This action covers only the newest {MAX_AT_ONCE}; repeat it for the rest."
            text = f"More than {MAX_AT_ONCE} deliveries were selected. {only}"
            self.message_user(request, text, messages.INFO)
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
            was = f"Delivery {done[0]} is" if len(done) == 1 else f"{len(done):,} deliveries are"
            self.message_user(request, f"{was} {verb.done}.", messages.SUCCESS)
        for reason in dict.fromkeys(reasons):
            self.message_user(request, f"{reasons.count(reason):,} not {verb.done}: {reason}.", messages.WARNING)
        if not rows:
            self.message_user(request, f"Nothing was {verb.done}: {NO_SUCH}.", messages.WARNING)
        return None

    def _ask(self, request: HttpRequest, verb: Verb, rows: list[WebhookDelivery], others: int, *, on_list: bool) -> HttpResponse:
        fields = [(FIELD, ",".join(str(row.pk) for row in rows))]
        if on_list:
            fields += [("action", verb.action), *((ACTION_CHECKBOX_NAME, str(row.pk)) for row in rows)]
        number = plural(len(rows), "delivery", "deliveries")
        context = {
            **self.page_context(request),
            "title": verb.asks.format(number),
            "verb": verb,
            "rows": [(row, *(cell(row) for cell in CONFIRMED_CELLS)) for row in rows[:MAX_SHOWN]],
            "unnamed": max(len(rows) - MAX_SHOWN, 0),
            "others": others,
            "fields": fields,
            "button": f"{verb.label}: {number if len(rows) > 1 else f'delivery {rows[0].pk}'}",
            "back": request.get_full_path() if on_list else reverse("admin:jobqueue_webhookdelivery_change", args=[rows[0].pk]),
        }
        return TemplateResponse(request, "jobqueue/admin/redeliver.html", context)

    def page_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context that all pages of deliveries need."""
        request.current_app = self.admin_site.name
        return {**self.admin_site.each_context(request), "is_nav_sidebar_enabled": False, "opts": self.opts, "media": self.media}

    def redirect_missing(self, request: HttpRequest, object_id: object) -> HttpResponse:
        """Report that there is no such delivery, and redirect to the list."""
        self.message_user(request, f"There is no delivery {str(object_id)[:40]}; it may have been deleted.", messages.WARNING)
        return HttpResponseRedirect(reverse("admin:jobqueue_webhookdelivery_changelist", current_app=self.admin_site.name))
