"""Masked values in a form of JSON: which of them are restored when the form is submitted, and which the user must enter again.

The form shows a mask in place of each secret. A mask that is submitted unchanged means the stored secret,
unless the change could send the secret to another receiver:

- A secret is restored if the object that contains it is unchanged, except for its descriptions (`DESCRIPTIONS`).
- The objects of a list can be moved, added and removed: each is recognized by its content.
- A secret is not restored if an object around it was changed in a value that may name a receiver (`_has_place`).
  The same holds for a change in another part that has such a value, unless the secret's own object has one.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import Any, Final

from jobqueue.core.masking import MASK

# Keys whose values have no effect: they can be added and changed beside a secret.
DESCRIPTIONS: Final = frozenset({"note", "notes", "comment", "comments", "description", "remark", "remarks", "label", "title"})

_PLACE_KEY = re.compile(
    r"url|uri|link|href|host|server|endpoint|addr|proxy|domain|origin|hook|callback|gateway|recipient|receiver|mail|bucket|broker|dsn"
    r"|account|verify|protocol|scheme|socket|location|(?:^|[_\W])(?:site|port|path|base|dest|target|to|user|login|ssl|tls|ip|peer|node)s?(?:$|[_\W])",
    re.IGNORECASE,
)
_PLACE_VALUE = re.compile(r"://|@|^/|\w\.[A-Za-z]{2,}|:\d{1,5}(?:/|$)")


def restored(given: Any, shown: Any, stored: Any, *, moved: bool = False) -> Any:
    """Return the submitted value with the stored secrets in place of their masks; a secret that is not restored keeps its mask.

    `moved` means that a value around it, which may name a receiver, was changed.
    """
    if given == shown and not moved:
        return stored
    if all(isinstance(value, dict) for value in (given, shown, stored)):
        return _object(given, shown, stored, moved)
    if all(isinstance(value, list) for value in (given, shown, stored)) and len(shown) == len(stored):
        return _list(given, shown, stored, moved)
    return given


def names_other_place(given: Any, shown: Any, name: str = "") -> bool:
    """Return whether a change of the value `name` may name another receiver, at any depth; a removed list item does not."""
    if given == shown:
        return False
    if isinstance(given, dict) and isinstance(shown, dict):
        changed = [key for key in {**given, **shown} if given.get(key, ...) != shown.get(key, ...) and key not in DESCRIPTIONS]
        return any(names_other_place(given.get(key), shown.get(key), key) for key in changed)
    if isinstance(given, list) and isinstance(shown, list):
        before, after = Counter(map(_key, shown)), Counter(map(_key, given))
        return any(_has_place(name, json.loads(text)) for text in after - before)
    return _has_place(name, given) or _has_place(name, shown)


def places_of_masks(value: Any, name: str) -> list[str]:
    """Return the paths of masks in a value, such as ``kwargs.feeds[0].token``."""
    if isinstance(value, dict):
        inside = [(item, f"{name}.{key}") for key, item in value.items()]
    elif isinstance(value, list):
        inside = [(item, f"{name}[{at}]") for at, item in enumerate(value)]
    else:
        return [name] if isinstance(value, str) and MASK in value else []
    return [path for item, place in inside for path in places_of_masks(item, place)]


def _object(given: dict[str, Any], shown: dict[str, Any], stored: dict[str, Any], moved: bool) -> dict[str, Any]:
    changed = [
        name
        for name in {**given, **shown}
        if name not in DESCRIPTIONS
        and not (_is_container(given.get(name, ...)) and _is_container(shown.get(name, ...)))
        and given.get(name, ...) != shown.get(name, ...)
    ]
    around = moved or any(names_other_place(given.get(name), shown.get(name), name) for name in changed)
    parts = {name for name in given if name in shown and name not in changed and names_other_place(given[name], shown[name], name)}
    result = {}
    for name, value in given.items():
        if name not in shown or name in changed:
            result[name] = value
        elif _is_container(value):
            shielded = _has_own_place(shown[name])
            result[name] = restored(value, shown[name], stored.get(name), moved=around or (bool(parts - {name}) and not shielded))
        else:
            hidden = value == shown[name] and _is_hidden(shown[name], stored.get(name))
            result[name] = stored[name] if hidden and not moved and not changed and not parts else value
    return result


def _list(given: list[Any], shown: list[Any], stored: list[Any], moved: bool) -> list[Any]:
    plain = [item for item in given if not _is_container(item)] == [item for item in shown if not _is_container(item)]
    moved = moved or not plain  # the meaning of a plain item is not known
    is_unchanged = not moved and len(given) == len(shown) and not names_other_place(given, shown)
    places = _matched(given, shown)
    return [
        restored(item, shown[places[at]], stored[places[at]], moved=moved)
        if at in places
        else stored[at]
        if is_unchanged and not _is_container(item) and item == shown[at]
        else item
        for at, item in enumerate(given)
    ]


def _matched(given: list[Any], shown: list[Any]) -> dict[int, int]:
    """Return a mapping from the indexes of objects in the submitted list to their indexes in the list that was shown.

    Equal objects are matched in their order if none of them was added or removed, and otherwise not at all.
    """
    before, after = _by_key(shown), _by_key(given)
    matched = {
        at: place
        for key, places in after.items()
        if len(before.get(key, ())) == len(places)
        for at, place in zip(places, before[key], strict=True)
    }
    changed = [at for key, places in after.items() if key not in before for at in places]
    removed = {at for key, places in before.items() if key not in after for at in places}
    return {**matched, **{at: at for at in changed if at in removed and type(given[at]) is type(shown[at])}}


def _by_key(items: list[Any]) -> dict[str, list[int]]:
    indexes: dict[str, list[int]] = defaultdict(list)
    for at, item in enumerate(items):
        if _is_container(item):
            indexes[_key(item)].append(at)
    return dict(indexes)


def _key(value: Any) -> str:
    """Return the key by which values are equal: all but the descriptions of an object."""
    compared = {name: item for name, item in value.items() if name not in DESCRIPTIONS} if isinstance(value, dict) else value
    return json.dumps(compared, sort_keys=True)


def _has_place(name: str, value: Any) -> bool:
    """Return whether a value may name a receiver, by its name or by its content."""
    if isinstance(value, dict):
        return bool(value and _PLACE_KEY.search(name)) or any(_has_place(key, item) for key, item in value.items())
    if isinstance(value, list):
        return any(_has_place(name, item) for item in value)
    return value is not None and (_PLACE_KEY.search(name) is not None or (isinstance(value, str) and bool(_PLACE_VALUE.search(value))))


def _has_own_place(value: Any) -> bool:
    """Return whether an object, or each object of a list, names its own receiver."""
    if isinstance(value, list):
        return bool(value) and all(_has_own_place(item) for item in value)
    return isinstance(value, dict) and any(not _is_container(item) and _has_place(key, item) for key, item in value.items())


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list)


def _is_hidden(shown: Any, stored: Any) -> bool:
    return not _is_container(shown) and shown != stored
