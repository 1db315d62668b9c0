"""`runworkers --processes 2` starts three processes in any environment, or ends with one sentence; it never starts more."""

from __future__ import annotations

import os
import sys
import zipapp
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults import tasks
from tests.faults.crowd import Crowd
from tests.faults.harness import ROOT, WorkerProcess, Workers, state, wait_for, wait_until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.django_db,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it counts processes in /proc"),
]

PYTHON = sys.executable
OPTIONS = ["runworkers", "--processes", "2", "--once"]
MANAGE = """
import os, sys

def main():
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.faults.settings")
    from django.core.management import execute_from_command_line
    execute_from_command_line(sys.argv)

if __name__ == "__main__":
    main()
"""
CALL = """
import django
from django.core.management import call_command
django.setup()
call_command("runworkers", processes=2, once=True)
"""
COMMAND = """
from django.core.management import BaseCommand, call_command

class Command(BaseCommand):
    def handle(self, *args, **options):
        call_command("runworkers", processes=2, once=True)
"""


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    with Crowd(3) as made:
        yield made


def manage(folder: Path) -> str:
    """Write a manage.py and return its path."""
    path = folder / "manage.py"
    path.write_text(MANAGE)
    return str(path)


def other_command(folder: Path) -> list[str]:
    """Write a command that calls `runworkers`, in an app of its own."""
    commands = folder / "wrapping" / "management" / "commands"
    commands.mkdir(parents=True)
    (commands / "work.py").write_text(COMMAND)
    (folder / "wrapping" / "__init__.py").touch()
    (folder / "wrapped_settings.py").write_text("from tests.faults.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'wrapping']\n")
    return [PYTHON, manage(folder), "work", "--settings", "wrapped_settings", "--pythonpath", str(folder)]


def console_script(folder: Path) -> list[str]:
    """Write a script of its own name, which makes up the command line."""
    script = folder / "workers"
    lines = [f"#!{PYTHON}", "import sys", f"sys.argv = ['manage.py', *{OPTIONS}]", MANAGE]
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    return [str(script)]


def archive(folder: Path) -> list[str]:
    """Put the program and its settings into a zip file."""
    source = folder / "source"
    source.mkdir()
    (source / "__main__.py").write_text(MANAGE.replace("tests.faults.settings", "zipped_settings"))
    (source / "zipped_settings.py").write_text("from tests.faults.settings import *\n")
    zipapp.create_archive(source, folder / "workers.pyz")
    return [PYTHON, str(folder / "workers.pyz"), *OPTIONS]


WAYS: dict[str, Callable[[Path], list[str]]] = {
    "manage.py": lambda folder: [PYTHON, manage(folder), *OPTIONS],
    "python -m django": lambda folder: [PYTHON, "-m", "django", *OPTIONS],
    "django-admin": lambda folder: [str(Path(PYTHON).with_name("django-admin")), *OPTIONS],
    "python -c": lambda folder: [
        PYTHON,
        "-c",
        f"import sys; sys.argv = ['manage.py', *{OPTIONS}]; exec(open({manage(folder)!r}).read())",
    ],
    "runpy": lambda folder: [
        PYTHON,
        "-c",
        f"import runpy, sys; sys.argv = ['x', *{OPTIONS}]; runpy.run_path({manage(folder)!r}, run_name='__main__')",
    ],
    "call_command": lambda folder: [
        PYTHON,
        "-c",
        CALL,
    ],
    "another command": other_command,
    "console script": console_script,
    "zip file": archive,
    "options of Python": lambda folder: [PYTHON, "-X", "dev", "-W", "ignore", "-O", "-P", manage(folder), *OPTIONS],
}


def start(workers: Workers, crowd: Crowd, program: list[str], folder: Path = ROOT, **more: str) -> WorkerProcess:
    # Compiled modules are kept, those of -O too.
    environment = {**crowd.environment, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "", **more}
    return workers.start(program=program, folder=folder, environment=environment, MIN_WORKERS=1, MAX_WORKERS=1)


@pytest.mark.parametrize("way", WAYS)
def test_it_becomes_three_processes(way: str, workers: Workers, crowd: Crowd, tmp_path: Path) -> None:
    """In another working folder, too: the temporary one has neither the project nor jobqueue."""
    jobs = [workers.enqueue(tasks.flags, 0.5) for _ in range(2)]
    started = start(workers, crowd, WAYS[way](tmp_path), tmp_path)
    assert started.wait(60) == 0, started.text
    assert crowd.seen == 3
    assert [state(job) for job in jobs] == ["SUCCESS"] * 2
    assert [wait_for(job, "SUCCESS").result for job in jobs] == [[int(way == "options of Python"), way == "options of Python"]] * 2


AGAIN = "#!/bin/sh\nexec {python} {manage} runworkers --processes 2\n"
CONFIGURE = """
from django.conf import settings
import tests.faults.settings as module
settings.configure(**{name: getattr(module, name) for name in dir(module) if name.isupper()})
"""
REFUSED = {
    "frozen": ("sys.frozen = True", "--processes needs a Python interpreter, and this program has none of its own"),
    "without an interpreter": ("sys.executable = ''", "--processes needs a Python interpreter"),
    "something else": ("sys.executable = '/bin/true'", "/bin/true ended with status 0 and did not report as a worker."),
    "itself again": ("sys.executable = os.environ['AGAIN']", "again ended with status 1 and did not report as a worker."),
    "no such file": ("sys.executable = '/nowhere/python'", "/nowhere/python cannot be executed (No such file or directory)."),
    "not executable": ("sys.executable = os.environ['PLAIN']", "plain cannot be executed (Permission denied)."),
    "settings in code": (
        CONFIGURE,
        "--processes needs a settings module, and the settings were made in code",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_ends_with_one_sentence_if_workers_cannot_be_started(case: str, workers: Workers, crowd: Crowd, tmp_path: Path) -> None:
    line, sentence = REFUSED[case]
    (again := tmp_path / "again").write_text(AGAIN.format(python=PYTHON, manage=manage(tmp_path)))
    again.chmod(0o755)
    (plain := tmp_path / "plain").write_text("no program")
    code = f"import os, sys\n{line}\nsys.argv = ['manage.py', 'runworkers', '--processes', '2']\nexec(open({manage(tmp_path)!r}).read())"
    started = start(workers, crowd, [PYTHON, "-c", code], AGAIN=str(again), PLAIN=str(plain))
    assert started.wait(60) == 1
    said = [line for line in started.text.splitlines() if line.startswith("CommandError: ")]
    assert sentence in said[-1], started.text
    assert crowd.seen <= 3
    assert "Traceback" not in started.text


def test_a_program_that_a_task_starts_cannot_start_workers(workers: Workers, crowd: Crowd) -> None:
    job = workers.enqueue(tasks.start_workers)
    parent = workers.start("--processes", "1", environment=crowd.environment)
    assert "--processes is refused inside a worker process" in wait_for(job, "SUCCESS", seconds=30).result
    assert parent.stop() == 0
    assert crowd.seen == 3, "the parent, its worker, and the program that was refused"


def test_a_child_without_its_parent_ends_with_one_sentence(workers: Workers, crowd: Crowd) -> None:
    from jobqueue.worker.fleet.spawn import VARIABLE

    orders = ["", "7", '{"number": 1, "descriptor": 0}']
    program = [PYTHON, "-c", "from jobqueue.worker.process.childmain import main; main()"]
    started = [workers.start(program=program, environment={**crowd.environment, VARIABLE: order}) for order in orders]
    for one in started:
        assert one.wait() == 1
        assert one.text.startswith(f"{VARIABLE} holds no order of a parent process"), one.text
        assert len(one.text.splitlines()) == 1


def test_a_parent_whose_children_never_report_ends_them(workers: Workers, crowd: Crowd, tmp_path: Path) -> None:
    (silent := tmp_path / "silent").write_text("#!/bin/sh\nexec sleep 300\n")
    silent.chmod(0o755)
    lines = [
        "import sys",
        f"sys.executable = {str(silent)!r}",
        "import django",
        "django.setup()",
        "from jobqueue.worker.fleet import processes",
        "processes.REPORT_SECONDS = 1",
        "sys.argv = ['manage.py', 'runworkers', '--processes', '2']",
        f"exec(open({manage(tmp_path)!r}).read())",
    ]
    started = start(workers, crowd, [PYTHON, "-c", "\n".join(lines)])
    assert started.wait() == 1
    assert "silent was killed by signal 9 and did not report as a worker." in started.text
    wait_until(lambda: not crowd.members(), "none is left")
