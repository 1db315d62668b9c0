"""Fixtures of the demo's tests."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def media(settings: Any, tmp_path: Path) -> Path:
    """Keep the files that tasks write in a folder of the test."""
    settings.MEDIA_ROOT = tmp_path / "media"
    return tmp_path / "media"


@pytest.fixture
def pages(settings: Any) -> None:
    """Serve the demo's URLs."""
    settings.ROOT_URLCONF = "demo_project.urls"
    settings.MEDIA_URL = "/media/"
