"""What the API answers: JSON whatever happens, never stored by a cache, never taken for another type."""

from __future__ import annotations

from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import JsonResponse

CODES = {
    400: "bad_request",
    401: "not_authenticated",
    403: "not_allowed",
    404: "not_found",
    405: "wrong_method",
    409: "refused",
    429: "too_many_streams_of_user",
    500: "failed",
    503: "no_database",
}


class _Encoder(DjangoJSONEncoder):
    """Encode what Django's encoder does, and show what it refuses, such as bytes that SQLite holds in a text column."""

    def default(self, value: Any) -> Any:
        try:
            return super().default(value)
        except TypeError:
            return str(value)


class Problem(Exception):
    """End a request with an error: its HTTP status, a sentence for people, and what programs may want to know beside it."""

    def __init__(self, status: int, message: str, /, *, headers: dict[str, str] | None = None, **details: Any) -> None:
        """Keep what to answer."""
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body = {"error": {"code": details.pop("code", CODES[status]), "message": message, **details}}

    def response(self) -> JsonResponse:
        """Return the answer."""
        return answer(self.body, self.status, self.headers)


def answer(body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> JsonResponse:
    """Return a JSON answer with the headers that all of them have."""
    made = JsonResponse(body, _Encoder, status=status)
    made.headers["Cache-Control"] = "no-store, private"
    made.headers["X-Content-Type-Options"] = "nosniff"
    for name, value in (headers or {}).items():
        made.headers[name] = value
    return made
