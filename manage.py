#!/usr/bin/env python3
"""Run Django's command line for the demo project."""

import os
import sys


def main() -> None:
    """Run one administrative command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "demo_project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
