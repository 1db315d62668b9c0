"""Finding the standard library."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from demo_project.library import catalogue


def test_every_module_is_on_one_shelf() -> None:
    shelved = [source for shelf in catalogue.packages().values() for source in shelf]
    assert sorted(source.name for source in shelved) == [source.name for source in catalogue.sources()]
    assert len({source.name for source in shelved}) == len(shelved)


def test_names_are_those_that_one_imports() -> None:
    for name, package in (("json", "json"), ("json.decoder", "json"), ("argparse", catalogue.TOP), ("xml.dom.minidom", "xml")):
        source, spec = catalogue.find(name), find_spec(name)
        assert spec is not None
        assert (source.package, source.path.resolve()) == (package, Path(str(spec.origin)).resolve())


def test_tests_and_installed_packages_are_left_out() -> None:
    assert not {"test", "django", "site-packages"} & set(catalogue.packages())
    assert not [source.name for source in catalogue.sources() if ".test" in source.name]


def test_an_unknown_name_is_refused_with_the_name() -> None:
    with pytest.raises(LookupError, match=r"'../../etc/passwd'"):
        catalogue.find("../../etc/passwd")
