"""The demo notices a database of an older schema."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from demo_project import embedded
from tests import settings as suite

Run = Callable[[str], str]
PROGRAM = """
import django; django.setup()
from django.db import connection
from demo_project import schema
from demo_project.launch.prepare import ForeignTables, migrate
from jobqueue.models import Job

def execute(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)

"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Return a function that runs code under the demo's settings, on a new database, and returns what it prints."""
    url = f"sqlite:///{tmp_path}/demo.sqlite3"
    config = (
        None
        if suite.SQLITE
        else embedded.database(f"{suite.NAME}_schema{os.environ.get('PYTEST_XDIST_WORKER', '')}", embedded.DATA / "tests")
    )
    if config:
        url = f"postgres://postgres@/{config['HOST']}/{config['NAME']}"
    environment = {**os.environ, "DEMO_DATA_DIR": str(tmp_path), "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "demo_project.settings"}

    def in_process(code: str) -> str:
        command = [sys.executable, "-c", PROGRAM + code]
        done = subprocess.run(command, cwd=embedded.CHECKOUT, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    yield in_process
    if config:
        with psycopg.connect(host=config["HOST"], user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(psycopg.sql.SQL("DROP DATABASE {} WITH (FORCE)").format(psycopg.sql.Identifier(config["NAME"])))


OLD = {
    "another digest": "UPDATE checkout_schema SET digest = 'of before'",
    "no digest": "DROP TABLE checkout_schema",
    "a migration that does not exist": "UPDATE django_migrations SET name = '0003_targets' WHERE name = '0002_storage'",
}


@pytest.mark.long
def test_a_database_of_this_schema_is_kept_and_one_of_an_older_schema_is_recreated(run: Run) -> None:
    code = f"""
for sql in ["SELECT 1", "SELECT 1", *{[*OLD.values()]}]:
    execute(sql)
    print(migrate(), Job.objects.count())
    Job.objects.create(task="a.b")
"""
    assert run(code).splitlines() == ["False 0", "False 1", *["True 0"] * len(OLD)]


@pytest.mark.long
def test_a_database_with_tables_of_another_project_is_left_alone(run: Run) -> None:
    code = """
migrate(); Job.objects.create(task="a.b")
execute("CREATE TABLE customers (id integer)"); execute("DROP TABLE checkout_schema")
try:
    migrate()
except ForeignTables as error:
    print(error, Job.objects.count())
"""
    assert run(code).endswith(": customers. Set DATABASE_URL to an empty database, or drop the tables. 1")
