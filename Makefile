# Every target installs what it needs first, and is quick when nothing changed. ARGS goes to the program that the target runs.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
REPORTS := .reports
WORKERS ?= 2
# Tests with processes of their own wait for most of their time.
WAITING_WORKERS ?= 3

# The first of these that starts and is new enough. Say PYTHON=… for another one.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONUNBUFFERED := 1
# Compiled modules are kept, whatever the environment says: else each of hundreds of processes compiles everything again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo package lock test test-all test-zones test-plain test-pgbouncer test-rows django-6.0 django-6.1 django-6.1-pgbouncer lint style types layers sizes words migrations messages bench clean

help:
	@echo "make demo        install, fill the queue of the demo project, run it, and serve its admin (ARGS=--once: end with the batch)"
	@echo "make test        run what a commit needs: the quick tests on PostgreSQL, then on SQLite"
	@echo "make test-all    run the tests that make test leaves out: long ones, real processes, a browser, state machines, the whole demo"
	@echo "make test-plain  run the tests without worker processes on PostgreSQL without the fast path (FAST_PATH)"
	@echo "make test-pgbouncer   run the tests without worker processes on PostgreSQL through PgBouncer (the Debian package pgbouncer)"
	@echo "make package     build the package, check it, install it into a clean environment, and run a job there"
	@echo "make lock        renew the lock of what CI installs (.ci/lock-*.txt)"
	@echo "make test-zones  run the tests without worker processes with USE_TZ = False in Asia/Shanghai and America/St_Johns"
	@echo "make test-rows   try every bad row that the generator knows beside good jobs, on both databases (about an hour)"
	@echo "make django-6.1  run the tests of what builds on Django's insides on Django 6.1 (PYTHON=python3.12 or newer); django-6.0: what the task backend promises"
	@echo "make lint        check style, types, layers, sizes, words and migrations"
	@echo "make messages    renew the catalogues of translations from the texts of the admin, and compile them"
	@echo "make bench       run the benchmarks (ARGS=--help tells more)"
	@echo "make clean       remove the environments, caches and reports; the data in .data stays"

install: $(STAMP)

# Make an environment at the stamp's place (a broken one is made anew) and install the project, with $(1) beside it.
define INSTALL
@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found. Install one, or say PYTHON=/path/to/python." >&2; exit 1; }
@echo "Installing into $(@D), which takes a minute the first time."
@$(@D)/bin/python -c "" 2>/dev/null || $(PYTHON) -m venv --clear $(@D)
@$(@D)/bin/python -m pip install -qq --upgrade "pip>=25.1"
@$(@D)/bin/python -m pip install -qq --editable . --group dev $(1) $$($(@D)/bin/python .ci/lock.py)
@touch $@
endef

$(STAMP): pyproject.toml
	$(call INSTALL)

.venv-dj61/.installed: pyproject.toml
	$(call INSTALL,"Django~=6.1.0")

# All but Django itself is that of 6.1, found behind it in the path: a second installation would take a minute for nothing else.
.venv-dj60/.installed: .venv-dj61/.installed
	@$(PYTHON) -m venv --clear --without-pip $(@D)
	@.venv-dj61/bin/python -m pip --python $(@D)/bin/python install -qq --no-deps "Django~=6.0.0"
	@.venv-dj61/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
		"$$($(@D)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/behind.pth"
	@touch $@

# `exec`: a Ctrl-C then reaches the demo once, and its exit code is the recipe's.
demo: $(STAMP)
	@exec $(PY) -m demo_project.demo $(ARGS)

bench: $(STAMP)
	@exec $(PY) -m bench $(ARGS)

# $(call PYTEST,environment,report)
PYTEST = $(1)/bin/python -m pytest --junitxml=$(REPORTS)/$(2).xml -n $(WORKERS)
# Tests that wait (in an order of their own: tests/order.py); what only waited in vain beside others runs once more, alone.
# The longest, a quick run of all benchmarks, takes longer than other tests may hang.
# $(call PATIENTLY,environment,report,options)
PATIENTLY = $(call PYTEST,$(1),$(2)) --dist loadfile -n $(WAITING_WORKERS) -o faulthandler_timeout=900 $(3) $(ARGS) || \
	$(PY) .ci/again.py $(REPORTS)/$(2).xml $(1)/bin/python -m pytest
# What a commit needs; the tests without worker processes; and what `test` leaves out.
QUICK := --dist worksteal -m "not faults and not browser and not slow and not long"
TOGETHER := --dist worksteal -m "not faults and not browser and not slow"
ALONE := -m "(faults or browser or long) and not slow"
SLOW := -m slow
# The files that have such tests: to read all the others takes each process longer than some of the tests.
FILES = $(shell grep -rlE 'mark\.($(1))\b' --include='test_*.py' tests)

# Of the tests with real processes, those in which SQLite's single writer could make a difference.
ON_SQLITE := $(patsubst %,tests/faults/test_%.py,bad_input command deaths drain interrupts ledger many_workers pipelines)

# Run all of several parts, and end with the worst of their statuses: $(BEGIN) part; $(NOTE) part; $(NOTE) $(END)
BEGIN := worst=0; note() { if [ $$1 -gt $$worst ]; then worst=$$1; fi; };
NOTE := note $$?;
END := exit $$worst

test: $(STAMP)
	$(BEGIN) $(call PYTEST,$(VENV),postgresql) $(QUICK) $(ARGS); $(NOTE) \
	TEST_DATABASE=sqlite $(call PYTEST,$(VENV),sqlite) $(QUICK) $(ARGS); $(NOTE) \
	$(END)

# All that `test` leaves out; CI runs both.
test-all: $(STAMP)
	$(BEGIN) $(call PATIENTLY,$(VENV),postgresql-alone,$(ALONE) $(call FILES,faults|browser|long)); $(NOTE) \
	$(call PATIENTLY,$(VENV),postgresql-slow,$(SLOW) $(call FILES,slow)); $(NOTE) \
	export TEST_DATABASE=sqlite; \
	$(call PATIENTLY,$(VENV),sqlite-rest,-m "(faults or long) and not slow" $(sort $(ON_SQLITE) $(call FILES,long))); $(NOTE) \
	$(call PATIENTLY,$(VENV),sqlite-slow,$(SLOW) tests/lifecycle tests/faults/test_bad_rows.py); $(NOTE) \
	$(END)

# Renew the lock of what CI installs, for the oldest Python and for a newer one.
lock: $(STAMP) .venv-dj61/.installed
	$(PY) .ci/lock.py --editable . --group dev
	.venv-dj61/bin/python .ci/lock.py --editable . --group dev "Django~=6.1.0"

# The catalogues of translations; what is new in them is to be translated.
messages: $(STAMP)
	$(PY) .ci/messages.py

# What a user gets: the archives, the description, a clean installation that runs a job.
package: .venv-package/.installed
	.venv-package/bin/python .ci/packaging.py

.venv-package/.installed: pyproject.toml
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install -qq --upgrade "pip>=25.1"
	@$(@D)/bin/python -m pip install -qq --group package
	@touch $@

# The same tests with naive times in the project, far from UTC.
test-zones: $(STAMP)
	$(BEGIN) TEST_USE_TZ=0 TEST_TIME_ZONE=Asia/Shanghai $(call PYTEST,$(VENV),postgresql-zones) $(TOGETHER) $(ARGS); $(NOTE) \
	TEST_DATABASE=sqlite TEST_USE_TZ=0 TEST_TIME_ZONE=America/St_Johns $(call PYTEST,$(VENV),sqlite-zones) $(TOGETHER) $(ARGS); $(NOTE) \
	$(END)

# Without what only speeds PostgreSQL up.
test-plain: $(STAMP)
	TEST_FAST_PATH=0 $(call PYTEST,$(VENV),postgresql-plain) $(TOGETHER) $(ARGS)

# In transaction mode, each transaction in another session than the one before.
test-pgbouncer: $(STAMP)
	TEST_PGBOUNCER=1 $(call PYTEST,$(VENV),postgresql-pgbouncer) $(TOGETHER) $(ARGS)

# Every value for every column; test-all tries a sample of them.
test-rows: export BAD_ROWS := all
test-rows: $(STAMP)
	$(BEGIN) $(call PYTEST,$(VENV),postgresql-rows) tests/faults/test_bad_rows.py $(ARGS); $(NOTE) \
	TEST_DATABASE=sqlite $(call PYTEST,$(VENV),sqlite-rows) tests/faults/test_bad_rows.py $(ARGS); $(NOTE) \
	$(END)

# What builds on Django's own insides, or on a connection's, and is no part of the whole suite that runs through PgBouncer.
NEXT_DJANGO := $(wildcard tests/test_conformance*.py tests/worker/test_failures_seen.py) $(addprefix tests/,db models tasks_layer)

django-6.1: .venv-dj61/.installed
	$(call PYTEST,.venv-dj61,$@) $(TOGETHER) $(NEXT_DJANGO) $(ARGS)

# test-pgbouncer runs the long ones, too.
django-6.1-pgbouncer: .venv-dj61/.installed
	TEST_PGBOUNCER=1 $(call PYTEST,.venv-dj61,postgresql-pgbouncer) $(QUICK) $(ARGS)

CONFORMANCE := $(wildcard tests/test_conformance*.py tests/tasks_layer)

django-6.0: .venv-dj60/.installed
	$(if $(CONFORMANCE),$(call PYTEST,.venv-dj60,$@) $(CONFORMANCE) $(ARGS))

lint: style types layers sizes words migrations

style: $(STAMP)
	$(PY) -m ruff check
	$(PY) -m ruff format --check

# With SQLite, reading the settings starts no server.
types: $(STAMP)
	DATABASE_URL=sqlite:///.data/lint.sqlite3 $(PY) -m mypy

layers: $(STAMP)
	$(VENV)/bin/lint-imports

sizes: $(STAMP)
	$(PY) .ci/sizes.py

words: $(STAMP)
	$(PY) .ci/words.py

migrations: $(STAMP)
	DJANGO_SETTINGS_MODULE=tests.settings TEST_DATABASE=sqlite $(PY) -W error manage.py makemigrations --check --dry-run
	DATABASE_URL=sqlite:///.data/lint.sqlite3 $(PY) -W error manage.py makemigrations --check --dry-run

clean:
	rm -rf .venv .venv-* build dist *.egg-info $(REPORTS) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path "./.data/*" -prune -exec rm -rf {} +
