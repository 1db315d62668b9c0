"""The problems of a settings dict: unknown names, rejected values, and values that contradict each other."""

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from typing import Any, NamedTuple

from jobqueue.core import duty_rules, masking, queue_rules
from jobqueue.core.setting_rules import Rule
from jobqueue.core.texts import safe_repr


class SettingProblem(NamedTuple):
    """A problem of a setting: the id of its system check, what is wrong, and how to correct it."""

    id: str
    message: str
    hint: str


def problems(setting: str, raw: Any, known: "Mapping[str, Field[Any]]") -> list[SettingProblem]:
    """Return all problems of the dict of that setting, given its known fields."""
    if not isinstance(raw, Mapping):
        return [
            SettingProblem(
                "E005", f"{setting} is a {type(raw).__name__}.", f'It must be a dict, for instance {setting} = {{"MAX_WORKERS": 8}}.'
            )
        ]
    given = {name: value for name, value in raw.items() if value is not None}
    problems = [_unknown(setting, name, known) for name in raw if name not in known]
    wrong = [name for name in given if name in known and not _accepts(known[name].metadata["rule"], given[name])]
    problems += [_wrong(known[name], name, given[name]) for name in wrong]
    values = {name: field.default for name, field in known.items()} | given
    return problems + [problem for names, judge in TOGETHER if not names & {*wrong} for problem in judge(values)]


def _workers(values: Mapping[str, Any]) -> Sequence[SettingProblem]:
    """Return a problem if the minimum number of slots is above the maximum."""
    least, most = values["MIN_WORKERS"], values["MAX_WORKERS"]
    if least <= most:
        return []
    return [
        SettingProblem(
            "E003",
            f"MIN_WORKERS is {least}, which is above MAX_WORKERS ({most}).",
            f"Set MAX_WORKERS to {least} or more, or lower MIN_WORKERS.",
        )
    ]


def _heartbeat(values: Mapping[str, Any], prefix: str = "") -> Sequence[SettingProblem]:
    """Return a problem if a heartbeat is too long for the lease that it renews."""
    beats, leases = f"{prefix}HEARTBEAT_SECONDS", f"{prefix}LEASE_SECONDS"
    beat, lease = values[beats], values[leases]
    if beat <= lease / 2:
        return []
    hint = (
        "It must be at most half of the lease, so that one lost heartbeat does not lose the leases: "
        f"set {leases} to {2 * beat} or more, or {beats} to {lease / 2} or less."
    )
    return [SettingProblem("E004", f"{beats} is {beat}, and {leases} is {lease}.", hint)]


def _rotations(values: Mapping[str, Any]) -> Sequence[SettingProblem]:
    """Return a problem for each duty that would change its leader before a lease can run out."""
    lease = values["DUTY_LEASE_SECONDS"]
    hint = f"Set it to {lease} or more, or lower DUTY_LEASE_SECONDS: otherwise the leader changes faster than other workers check for it."
    return [
        SettingProblem(
            "E004", f"DUTIES gives {name} a rotate_after_seconds of {seconds}, which is below DUTY_LEASE_SECONDS ({lease}).", hint
        )
        for name, seconds in duty_rules.shorter_rotations(values["DUTIES"], lease)
    ]


def _queues(values: Mapping[str, Any]) -> Sequence[SettingProblem]:
    """Check the items of the served queues."""
    wrong = queue_rules.problem(values["QUEUES"])
    return [] if wrong is None else [SettingProblem("E002", f"QUEUES: {wrong.text}", wrong.fix)]


TOGETHER: tuple[tuple[frozenset[str], Callable[[Mapping[str, Any]], Sequence[SettingProblem]]], ...] = (
    (frozenset({"MIN_WORKERS", "MAX_WORKERS"}), _workers),
    (frozenset({"HEARTBEAT_SECONDS", "LEASE_SECONDS"}), _heartbeat),
    (frozenset({"DUTY_HEARTBEAT_SECONDS", "DUTY_LEASE_SECONDS"}), functools.partial(_heartbeat, prefix="DUTY_")),
    (frozenset({"QUEUES"}), _queues),
    (frozenset({"DUTIES", "DUTY_LEASE_SECONDS"}), _rotations),
)


def _accepts(rule: Rule, value: Any) -> bool:
    """Return whether a rule accepts a value. A value that cannot be checked, such as an int beyond all floats, is not accepted."""
    try:
        return rule.accepts(value)
    except (TypeError, ValueError, OverflowError):
        return False


def _unknown(setting: str, name: object, known: "Mapping[str, Field[Any]]") -> SettingProblem:
    """Return the problem of a name that is not a setting."""
    near = difflib.get_close_matches(str(name).upper(), known, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"The settings are {', '.join(known)}."
    return SettingProblem("E001", f"Unknown setting {name!r} in {setting}.", hint)


def _wrong(field: "Field[Any]", name: str, value: object) -> SettingProblem:
    """Return the problem of a value that its rule rejects."""
    hint = f"It must be {field.metadata['rule'].text}; the default is {field.default!r}."
    if isinstance(value, str) and isinstance(field.default, tuple):
        hint += f" Write a single name as [{safe_repr(value)}]."
    shown = masking.MASK if masking.is_secret_name(name) else safe_repr(value)
    return SettingProblem("E002", f"{name} is {shown}.", hint)
