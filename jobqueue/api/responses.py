"""Responses of the API: always JSON, never stored by a cache, never interpreted as another type."""

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
    """Like Django's encoder, but values of unknown types become text, for example bytes in a text column of SQLite."""

    def default(self, value: Any) -> Any:
        try:
            return super().default(value)
        except TypeError:
            return str(value)


class ApiError(Exception):
    """An error that ends a request: its HTTP status, a sentence for people, and details for programs."""

    def __init__(self, status: int, message: str, /, *, headers: dict[str, str] | None = None, **details: Any) -> None:
        """Set the status, headers and body of the response."""
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body = {"error": {"code": details.pop("code", CODES[status]), "message": message, **details}}

    def response(self) -> JsonResponse:
        """Return the error as a JSON response."""
        return json_response(self.body, self.status, self.headers)


def json_response(body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> JsonResponse:
    """Return a JSON response with the headers that all responses have."""
    response = JsonResponse(body, _Encoder, status=status)
    response.headers["Cache-Control"] = "no-store, private"
    response.headers["X-Content-Type-Options"] = "nosniff"
    for name, value in (headers or {}).items():
        response.headers[name] = value
    return response
