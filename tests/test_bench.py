"""The benchmark runs: small, on its own server, with real workers. How fast it was is nobody's business here."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import plot, report, scenarios
from bench.scenarios import Row

CHECKOUT = Path(__file__).resolve().parent.parent
KEYS = {
    "drain",
    "drain_new",
    "enqueue",
    "bulk",
    "latency_p50",
    "latency_p99",
    "idle_statements",
    "idle_cpu",
    "memory",
    "memory_many",
    "pinned_first",
    "pinned_last",
    "blocked",
    "parking",
    "many_lines",
    "one_line",
    "one_line_least",
    "one_line_hand_over",
    "autoscale_up",
    "autoscale_down",
    "autoscale_changes",
    "retention_p95",
    "retention_rate",
    "retention_memory",
    "events_drain",
    "events_enqueue",
    "events_bulk",
    "growth_long",
    "retries",
    "pinned_slots",
}
ALONE = {"parking", "autoscale_up", "autoscale_down", "autoscale_changes", "retention_rate", "retention_memory"}  # without a neighbour
TARGETS = {"drain", "enqueue", "bulk", "latency_p99", "idle_statements", "idle_cpu", "memory", "memory_many"} | {
    "drain_new",
    "pinned_last",
    "growth_long",
    "retries",
    "pinned_slots",
    "blocked",
    "many_lines",
    "one_line",
    "one_line_hand_over",
    "autoscale_up",
    "autoscale_down",
    "autoscale_changes",
    "retention_p95",
    "retention_memory",
    "events_drain",
    "events_enqueue",
    "events_bulk",
}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], cwd=CHECKOUT, capture_output=True, text=True, timeout=420, check=False
    )


@pytest.mark.faults
@pytest.mark.slow(seconds=180)
def test_a_quick_run_measures_every_scenario_for_both_subjects(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"

    done = bench("--quick", "--out", str(out))

    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    rows = {row["key"]: row for row in found["rows"]}
    assert rows.keys() == KEYS
    assert all(row["raw"] is not None for key, row in rows.items() if key not in ALONE)
    assert all(row["ours"] > 0 for key, row in rows.items() if key != "idle_cpu")
    assert {key for key, row in rows.items() if row["target"] and row["met"] is not None} == TARGETS
    assert all(row["text"] in done.stdout for row in rows.values())
    assert found["versions"]["postgresql"]
    drawn = tmp_path / "picture.svg"
    subprocess.run([sys.executable, "-m", "bench.plot", str(out), str(drawn)], cwd=CHECKOUT, check=True, timeout=30)
    assert drawn.read_text().startswith("<svg ")


def test_an_unknown_scenario_is_refused_with_the_names_that_there_are() -> None:
    done = bench("--scenario", "drain,speed")

    assert done.returncode == 2
    assert "'speed' is no scenario" in done.stderr
    assert all(name in done.stderr for name in scenarios.SCENARIOS)


def test_a_ratio_is_the_median_of_neighbours_not_of_the_whole() -> None:
    # The machine was five times slower in the second pair, for both.
    row = scenarios.paired("drain", "drain", {"ours": [50.0, 10.0, 40.0], "raw": [100.0, 20.0, 100.0]}, 0.5)

    assert (row.ours, row.raw, row.ratio, row.met) == (40.0, 100.0, 0.5, True)


def test_the_table_tells_which_targets_were_missed() -> None:
    text = report.table([Row("drain", "drain", 1234.0, 9000.0, 0.137, "ratio at least 0.35", met=False), Row("cpu", "idle", 0.25)])

    _, _, drain, cpu = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    assert drain == ["drain", "1,234", "9,000", "0.137", "ratio at least 0.35", "missed"]
    assert cpu == ["idle", "0.25", "", "", "", ""]


def test_a_picture_shows_each_step_and_begins_and_ends_at_its_frame() -> None:
    drawn = ElementTree.fromstring(plot.picture([(0.0, 0, 0, 2), (5.0, 100, 8, 8), (10.0, 0, 0, 2)]))  # noqa: S314 - our own
    paths = {path.get("class"): path.get("d") for path in drawn.iter("{http://www.w3.org/2000/svg}path")}
    assert paths["slots"] == "M60.0,347.5 H470.0 V250.0 H880.0 V347.5 H880.0"
    assert paths["depth"] == "M60.0,210 L60.0,210.0 H470.0 V46.0 H880.0 V210.0 H880.0 L880.0,210 Z"
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text.endswith(" s")] == [f"{second} s" for second in range(11)]


@pytest.mark.parametrize(("most", "step"), [(0, 1), (2, 1), (5, 1), (8, 2), (10, 2), (11, 5), (198, 50), (200, 50), (120.4, 50)])
def test_the_lines_of_a_picture_stand_at_round_numbers(most: float, step: float) -> None:
    assert plot._step(most) == step


def test_a_picture_of_other_figures_is_refused(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    figures.write_text(json.dumps({"rows": []}))
    done = subprocess.run(
        [sys.executable, "-m", "bench.plot", str(figures), str(tmp_path / "no.svg")],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 2
    assert "measure with --scenario autoscale first" in done.stderr
