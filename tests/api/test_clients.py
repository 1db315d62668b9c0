"""Clients that generators make of the OpenAPI document: they are complete, and work with a real server.

The test of Python needs ``openapi-python-client`` (from PyPI) in PATH, that of TypeScript ``openapi-typescript`` and ``tsc`` (the packages
openapi-typescript and typescript of npm).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.api.conftest import ROOT, MakeUser
from tests.factories import JobFactory, WorkerFactory

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

SCRIPT = """
import sys
from client import AuthenticatedClient
from client.api.default import health_get, job_cancel_post, job_get, jobs_get, queues_get, status_get, workers_get
from client.models import Error, Health, Job, Jobs, Status

base, token, number = sys.argv[1:]
with AuthenticatedClient(base_url=base, token=token) as client:
    jobs = jobs_get.sync(client=client, q="status:QUEUED")
    assert isinstance(jobs, Jobs) and [job.queue for job in jobs.jobs] == ["mail"], jobs
    job = job_get.sync(jobs.jobs[0].public_id, client=client)
    assert isinstance(job, Job) and (job.id, job.status) == (int(number), "QUEUED"), job
    assert isinstance(health_get.sync(client=client), Health)
    status = status_get.sync(client=client)
    assert isinstance(status, Status) and status.queues[0].name == "mail", status
    assert len(workers_get.sync(client=client).workers) == len(queues_get.sync(client=client).queues) == 1
    assert job_cancel_post.sync_detailed(int(number), client=client).status_code == 200
    again = job_cancel_post.sync_detailed(int(number), client=client)
    assert (again.status_code, isinstance(again.parsed, Error)) == (409, True), again
print("fine")
"""


@pytest.fixture
def document(client: Client, tokens: None, tmp_path: Path) -> Path:
    """Write the document to a file."""
    path = tmp_path / "openapi.json"
    path.write_bytes(client.get(f"{ROOT}openapi.json").content)
    return path


def run(folder: Path, *command: str) -> str:
    """Run a tool in a folder; return its output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("openapi-python-client") is None, reason="it needs openapi-python-client")
def test_a_generated_python_client_reads_and_cancels_jobs(document: Path, make_user: MakeUser, live_server: Any) -> None:
    tool = shutil.which("openapi-python-client") or ""
    said = run(document.parent, tool, "generate", "--path", document.name, "--output-path", "client", "--meta", "none")
    assert "WARNING parsing" not in said, "the generator has left out an endpoint"
    generated = {path.stem for path in (document.parent / "client" / "api" / "default").glob("*.py")} - {"__init__"}
    operations = {one["operationId"] for methods in json.loads(document.read_text())["paths"].values() for one in methods.values()}
    assert generated == operations
    job = JobFactory(queue="mail")
    WorkerFactory()
    user = make_user(is_superuser=True)
    (document.parent / "use.py").write_text(SCRIPT)
    interpreter = Path(tool).resolve().parent / "python"  # that of the generator has what its clients need
    arguments = (f"{live_server.url}{ROOT.rstrip('/')}", user.username, str(job.pk))
    assert run(document.parent, str(interpreter), "use.py", *arguments).strip() == "fine"


@pytest.mark.skipif(shutil.which("openapi-typescript") is None or shutil.which("tsc") is None, reason="it needs openapi-typescript and tsc")
def test_generated_types_of_typescript_are_complete_and_strict(document: Path) -> None:
    run(document.parent, "openapi-typescript", document.name, "-o", "schema.d.ts")
    places = [(path, method) for path, methods in json.loads(document.read_text())["paths"].items() for method in methods]
    responses = [
        f"export type T{index} = paths[{json.dumps(path)}][{json.dumps(method)}]['responses'];"
        for index, (path, method) in enumerate(places)
    ]
    text = """
import type { components, paths } from "./schema";
type Jobs = paths["/jobs/"]["get"]["responses"][200]["content"]["application/json"];
export const read = (found: Jobs): string => found.jobs[0].task;
export const good: components["schemas"]["Health"] = { healthy: true, problems: [] };
// @ts-expect-error: a field is missing
export const bad: components["schemas"]["Health"] = { healthy: true };
"""
    (document.parent / "use.ts").write_text(text + "\n".join(responses))
    run(document.parent, "tsc", "--noEmit", "--strict", "use.ts")
    assert os.path.getsize(document.parent / "schema.d.ts") > 1000
