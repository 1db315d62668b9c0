"""Tasks: what may run, with which options, and what a running task sees."""

from jobqueue.tasks.context import TaskContext
from jobqueue.tasks.results import JobResult
from jobqueue.tasks.task import JobTask, task

__all__ = ["JobResult", "JobTask", "TaskContext", "task"]
