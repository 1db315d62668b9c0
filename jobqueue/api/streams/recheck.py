"""Check again, while a stream is open, whether its user may still see it: a revoked permission ends the stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.contrib.auth import SESSION_KEY, get_user
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.http import HttpRequest

from jobqueue.api import access
from jobqueue.api.responses import ApiError

CHECK_SECONDS = 5.0

_lock = threading.Lock()
_verdicts: dict[Any, tuple[float, bool]] = {}


def permission_check(request: HttpRequest, user: Any, names: Sequence[str]) -> Callable[[], bool]:
    """Return a function that checks whether the request would still be allowed; streams of one session share its result."""
    session = getattr(request, "session", None)
    user_id = session.get(SESSION_KEY) if session is not None else None
    by_session = user_id is not None and user_id == str(user.pk)
    key = (session.session_key, user.pk, tuple(names)) if session is not None and by_session else None

    def check() -> bool:
        try:
            if by_session:
                renew(request)
            current = access.authenticate(request)
            current = type(current)._default_manager.get(pk=current.pk) if getattr(current, "pk", None) is not None else current
            access.check_permissions(current, names)
        except (ApiError, ObjectDoesNotExist, PermissionDenied):
            return False
        return bool(current.pk == user.pk and current.is_active)

    return check if key is None else lambda: _shared(key, check)


def renew(request: HttpRequest) -> None:
    """Read the request's session and its user again."""
    request.session = type(request.session)(request.session.session_key)
    request.user = get_user(request)  # an anonymous user if the session has ended


def _shared(key: Any, check: Callable[[], bool]) -> bool:
    with _lock:
        now = time.monotonic()
        for old in [shared for shared, (when, _) in _verdicts.items() if now - when > CHECK_SECONDS * 0.8]:
            del _verdicts[old]
        known = _verdicts.get(key)
    if known is not None:
        return known[1]
    answer = check()
    with _lock:
        _verdicts[key] = (time.monotonic(), answer)
    return answer
