"""Fail where a test was skipped, or expected to fail, without being named in `.ci/allowed-skips.txt`.

Reads the JUnit reports that are named on the command line. A report's file name without ``.xml`` is its leg.
A report in which no test ran is a failure, too.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parent.parent
ALLOWED = Path(__file__).with_name("allowed-skips.txt")


@dataclass(frozen=True)
class Rule:
    """One line of the list: the leg, the test, and the reason for the skip."""

    leg: str
    test: str
    reason: str

    def allows(self, skip: "Skip") -> bool:
        """Return whether the rule allows this skip."""
        return matches(self.leg, skip.leg) and matches(self.test, skip.test)


@dataclass(frozen=True)
class Skip:
    """One test that did not run, with its reason."""

    leg: str
    test: str
    message: str


def main(reports: list[Path]) -> int:
    """Print the errors and the rules that no skip needed; return 1 if there are errors."""
    if not reports:
        raise SystemExit("Name at least one JUnit report.")
    rules = read_rules(ALLOWED)
    ran, skips = zip(*map(read_report, reports), strict=True)
    wrong = [f"{report.stem}: no test ran, so this leg proves nothing." for report, number in zip(reports, ran, strict=True) if not number]
    everything = [skip for leg in skips for skip in leg]
    refused = [skip for skip in everything if not any(rule.allows(skip) for rule in rules)]
    wrong += [
        f"{skip.leg}: {skip.test} may not be skipped ({skip.message}): make it run, or name it in {ALLOWED.name}." for skip in refused
    ]
    for rule in rules:
        if not any(rule.allows(skip) for skip in everything):
            print(f"{ALLOWED.name}: no skip needed {rule.leg} | {rule.test}")
    print("\n".join(wrong))
    return 1 if wrong else 0


def read_report(path: Path) -> tuple[int, list[Skip]]:
    """Return how many tests of a report ran, and those that did not; print both numbers."""
    cases = list(ElementTree.parse(path).iter("testcase"))  # noqa: S314 -- pytest wrote it a moment ago
    marks = [(case, mark) for case in cases if (mark := case.find("skipped")) is not None]
    skips = [Skip(path.stem, identify(case), mark.get("message", "")) for case, mark in marks]
    print(f"{path.stem}: {len(cases) - len(skips)} tests ran, {len(skips)} were skipped.")
    return len(cases) - len(skips), skips


def read_rules(path: Path) -> list[Rule]:
    """Return the rules of the list: ``leg | test | reason``, with ``*`` for anything."""
    rules = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            parts = [part.strip() for part in line.split("|", 2)]
            if len(parts) != 3 or not all(parts):
                raise SystemExit(f"{path.name}:{number}: {line!r} is not of the form: leg | test | reason")
            rules.append(Rule(*parts))
    return rules


def identify(case: ElementTree.Element) -> str:
    """Return a test's id as pytest prints it: ``tests/test_x.py::TestY::test_z[1]``, or a skipped module's path."""
    name, parts = case.get("name", ""), case.get("classname", "").split(".")
    if parts == [""]:
        return name.replace(".", "/") + ".py"
    for length in range(len(parts), 0, -1):
        module = "/".join(parts[:length]) + ".py"
        if (CHECKOUT / module).exists():
            return "::".join([module, *parts[length:], name])
    return "::".join([*parts, name])


def matches(pattern: str, text: str) -> bool:
    """Match with ``*`` alone as a wildcard, since test ids contain brackets."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
