"""The files in ``deploy/`` are valid, and name only options, probes, metrics and addresses that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import load_command_class
from django.urls import resolve

from jobqueue import conf
from jobqueue.worker.fleet.child import times
from jobqueue.worker.probes.server import probe_pages
from jobqueue.worker.probes.state import ProbeState

FOLDER = Path(__file__).resolve().parent.parent / "deploy"
UNIT = FOLDER / "systemd" / "jobqueue.service"
MANIFESTS = sorted(FOLDER.glob("kubernetes/*.yaml"))
KINDS = {"Deployment", "ScaledObject", "TriggerAuthentication", "HorizontalPodAutoscaler"}


def documents() -> dict[str, Any]:
    """Return the documents of all manifests by their kind."""
    return {one["kind"]: one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text())}


def command_of_unit() -> list[str]:
    found = re.search(r"^ExecStart=(.+)$", UNIT.read_text(), re.MULTILINE)
    assert found
    return found[1].split()


def container() -> dict[str, Any]:
    found: dict[str, Any] = documents()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("command", [command_of_unit(), container()["command"]], ids=["systemd", "kubernetes"])
def test_every_option_of_the_commands_exists(command: list[str]) -> None:
    assert command[1:4] == ["-m", "jobqueue", "runworkers"]
    load_command_class("jobqueue", "runworkers").create_parser("manage.py", "runworkers").parse_args(command[4:])
    assert "--http" in command


def test_every_probe_is_a_page_of_the_server_on_the_port_of_the_command() -> None:
    pages = probe_pages(ProbeState, dict)
    port = int(container()["command"][-1].rpartition(":")[2])
    assert container()["ports"] == [{"name": "probes", "containerPort": port}]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container()[name]["httpGet"]
        assert (probe["path"] in pages, probe["port"]) == (True, "probes"), name
    annotations = documents()["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] in pages
    assert annotations["prometheus.io/port"] == str(port)


def test_both_platforms_wait_for_the_end_of_a_worker_before_they_kill_it() -> None:
    longest = times(conf.Settings()).drain_seconds
    assert documents()["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > longest
    found = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert found
    assert int(found[1]) > longest


def test_the_autoscalers_scale_the_deployment_by_the_signal() -> None:
    found = documents()
    assert set(found) == KINDS
    name = found["Deployment"]["metadata"]["name"]
    [trigger] = found["ScaledObject"]["spec"]["triggers"]
    address = re.sub(r"^https://[^/]+|\?.*$", "", trigger["metadata"]["url"])
    assert resolve(address).url_name == "scaler"
    assert trigger["authenticationRef"]["name"] == found["TriggerAuthentication"]["metadata"]["name"]
    assert float(trigger["metadata"]["targetValue"]) == conf.Settings().max_workers
    [metric] = found["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert f"`{metric['external']['metric']['name']}`" in (FOLDER.parent / "docs" / "samples.md").read_text()
    assert float(metric["external"]["target"]["averageValue"]) == conf.Settings().max_workers
    assert {found[kind]["spec"]["scaleTargetRef"]["name"] for kind in ("ScaledObject", "HorizontalPodAutoscaler")} == {name}


def test_kubernetes_accepts_the_manifests() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="it needs the package kubernetes-validate")
    for kind in ("Deployment", "HorizontalPodAutoscaler"):  # no schema knows those of KEDA
        validate.validate(documents()[kind], validate.latest_version(), strict=True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="it needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    text = UNIT.read_text().replace("/srv/app/.venv/bin/python", sys.executable).replace("/srv/app", str(tmp_path))
    unit.write_text(text.replace("User=app", "User=root"))
    # Only what this unit itself says: the units of this machine have faults of their own.
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, complaints) == (0, []), done.stderr
