"""Make the links of the README absolute in the package's description: a package index shows it without the repository beside it."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
SOURCE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
README = (ROOT / "README.md").read_text()

setup(
    long_description=re.sub(r"\]\((?!https?:|#)", f"]({SOURCE}/", README),
    long_description_content_type="text/markdown",
)
