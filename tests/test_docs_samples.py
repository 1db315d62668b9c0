"""The pages about samples and the autoscaling signal say what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from jobqueue.core import scaling
from jobqueue.core.loads import OTHER, QUEUE, RINGS, TASK, TOTAL, Load
from jobqueue.duties import collect_metrics, sample_rings
from jobqueue.insight import prometheus
from jobqueue.insight.samples import Figures
from jobqueue.models import Sample
from jobqueue.worker.probes import state

DOCS = Path(__file__).parent.parent / "docs"
PAGE, SCALING = (DOCS / "samples.md").read_text(), (DOCS / "autoscaling.md").read_text()


def test_the_table_has_every_field_and_no_other() -> None:
    table = PAGE.split("## What a sample contains")[1].split("Samples are kept")[0]
    assert re.findall(r"`(\w+)`", table) == [one.name for one in fields(Figures)]


def test_the_periods_are_the_codes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) s \|", PAGE, re.MULTILINE)
    assert [(name, int(seconds)) for name, seconds in rows] == [(name, ring.seconds) for name, ring in RINGS.items()]


def test_the_limits_are_the_codes() -> None:
    limits = (collect_metrics.MAX_COUNTED, collect_metrics.MAX_QUEUED, collect_metrics.MAX_BY_TASK, sample_rings.MAX_NAMES)
    assert {f"{limit:,}" for limit in limits} <= {*re.findall(r"\d[\d,]*\d", PAGE)}
    assert f"{collect_metrics.LAG_SECONDS:.0f} seconds" in PAGE
    assert f"`{OTHER}`" in PAGE
    assert sample_rings.TOTAL_KEPT == 86400


@pytest.mark.django_db
def test_the_table_has_every_metric_with_its_type_and_labels() -> None:
    load = Load(1, 1, 1.0, 1, 1, 1, 1, 1.0, 1.0, [1], [1])
    for kind in (QUEUE, TASK):
        Sample.objects.create(kind=kind, name="mail", seconds=TOTAL, slot=0, begins=0, **load.columns())
    there = {}
    for family in prometheus.families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for one in family.samples for label in one.labels} - {"le"}
        there[name] = (family.type, labels or {"queue"})
    rows = re.findall(r"^\| `(jobqueue_\w+)` \| (\w+) \| (.+?) \|$", PAGE.split("## Metrics of one worker")[0], re.MULTILINE)
    assert {name: (kind, {*re.findall(r"`(\w+)`", labels)}) for name, kind, labels in rows} == there


def test_the_table_has_every_metric_of_a_worker() -> None:
    rows = re.findall(r"^\| `(jobqueue_\w+)` \| (\w+) \| (.+?) \| .+ \|$", PAGE.split("## Metrics of one worker")[1], re.MULTILINE)
    expected = [(f"{state.PREFIX}_{name}", "gauge", "`process`") for name in state.GAUGES]
    expected += [(f"{state.PREFIX}_{name}_total", "counter", "`process`") for name in state.COUNTERS]
    assert rows == [*expected, (f"{state.PREFIX}_{state.ENDED}_total", "counter", "`process`, `status`")]


def test_the_formula_has_the_numbers_of_the_code() -> None:
    assert f"(within - {scaling.REACTION_SECONDS:.0f})" in SCALING
    assert f"fewer than {scaling.FEW}" in SCALING
    assert f"times {scaling.HEADROOM}" in SCALING
    assert f"`within`, {scaling.DEFAULT_TARGET} seconds" in SCALING
    steps = [int(one) for one in re.findall(r"\d+", SCALING.split("one of the steps")[1].split("and so on")[0])]
    assert steps == sorted({scaling.step(number) for number in range(1, 41)})
