"""Renew the catalogues of translations from the texts of the admin, and compile them: ``make messages``.

Texts are found without GNU gettext: in Python by its syntax tree, in templates by Django's own conversion to Python.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from babel.messages import Catalog, mofile, pofile
from django.utils.translation.template import templatize

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "jobqueue"
DATE = datetime(2026, 1, 1, tzinfo=UTC)
LANGUAGES = ("ar", "de", "es", "fr")
FUNCTIONS = {"_", "_lazy", "gettext", "gettext_lazy", "gettext_noop", "ngettext", "ngettext_lazy", "pgettext", "npgettext"}
FUNCTIONS |= {"sentence", "counted"}  # jobqueue.core.sentences
STYLES = PACKAGE / "static" / "jobqueue" / "admin.css"
LABELS = STYLES.with_name("labels.css")
STRING = r"""u?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
CALL = re.compile(rf"\b({'|'.join(sorted(FUNCTIONS))})\(\s*({STRING}(?:\s*,\s*{STRING})*)", re.DOTALL)

Message = tuple[str | None, str, str | None]  # context, singular, plural


def message(function: str, texts: list[str]) -> Message:
    """Return the message of a call of gettext."""
    context = texts.pop(0) if "pgettext" in function else None
    return context, texts[0], texts[1] if "ngettext" in function or function in ("npgettext", "counted") else None


def of_python(source: str) -> Iterator[Message]:
    """Return the messages of a module."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if name in FUNCTIONS and texts:
            yield message(name, texts)


def of_template(source: str) -> Iterator[Message]:
    """Return the messages of a template."""
    for name, texts in CALL.findall(templatize(source)):
        yield message(name, [ast.literal_eval(text) for text in re.findall(STRING, texts, re.DOTALL)])


def found() -> dict[Message, list[str]]:
    """Return the messages of the package, with the files that contain them."""
    places: dict[Message, list[str]] = {}
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.html")]):
        source, name = path.read_text(), path.relative_to(ROOT).as_posix()
        for one in of_python(source) if path.suffix == ".py" else of_template(source):
            if name not in places.setdefault(one, []):
                places[one].append(name)
    for one, _rule in labels():
        places.setdefault((None, one, None), []).append(STYLES.relative_to(ROOT).as_posix())
    return places


def labels() -> list[tuple[str, str]]:
    """Return the labels that the styles show before the cells of a list on a phone, each with its selector."""
    return [
        (text, selector.strip())
        for selector, text in re.findall(r'^(.*::before) { content: "([a-z ]+) "; }$', STYLES.read_text(), re.MULTILINE)
    ]


def translated_labels(catalogs: dict[str, Catalog]) -> str:
    """Return the styles with the translated labels."""
    rules = [
        f'  :lang({code}) {selector} {{ content: "{catalog.get(text).string} "; }}'
        for code, catalog in catalogs.items()
        for text, selector in labels()
    ]
    return "\n".join(["/* Written by make messages, from admin.css and the catalogues. */", "@media (max-width: 767px) {", *rules, "}", ""])


def path_of(language: str, suffix: str = "po") -> Path:
    """Return the path of a catalogue."""
    return PACKAGE / "locale" / language / "LC_MESSAGES" / f"django.{suffix}"


def read(language: str) -> Catalog:
    """Return the catalogue of a language."""
    path = path_of(language)
    if not path.exists():
        return Catalog(language)
    with path.open("rb") as file:
        return pofile.read_po(file, locale=language)


def renewed(language: str) -> Catalog:
    """Return the catalogue with today's texts, each with the translation that it has."""
    old, new = read(language), Catalog(language, project="jobqueue", charset="utf-8", fuzzy=False)
    new.mime_headers = [
        (name, value) for name, value in old.mime_headers if name in ("Language", "Plural-Forms", "MIME-Version", "Content-Type")
    ]
    for (context, singular, plural), places in found().items():
        key = (singular, plural) if plural else singular
        had = old.get(singular, context)
        string = had.string if had is not None and isinstance(had.string, tuple | list) == bool(plural) else None
        new.add(key, string, [(place, None) for place in places], context=context)
    return new


def write(catalog: Catalog, language: str) -> None:
    """Write a catalogue and its compiled form."""
    path = path_of(language)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        pofile.write_po(file, catalog, width=0, sort_output=True, omit_header=True)
    fields = {"Language": language, "Content-Type": "text/plain; charset=utf-8", "Plural-Forms": catalog.plural_forms}
    head = 'msgid ""\nmsgstr ""\n' + "".join(f'"{name}: {value}\\n"\n' for name, value in fields.items()) + "\n"
    path.write_text(head + path.read_text())
    catalog.creation_date = catalog.revision_date = DATE  # so that the same texts are the same file
    with path_of(language, "mo").open("wb") as file:
        mofile.write_mo(file, catalog)


if __name__ == "__main__":
    for code in LANGUAGES:
        catalog = renewed(code)
        write(catalog, code)
        missing = sum(not (all(one.string) if isinstance(one.string, tuple | list) else one.string) for one in catalog if one.id)
        print(f"{code}: {len(catalog)} texts, {missing} without a translation.")
    LABELS.write_text(translated_labels({code: read(code) for code in LANGUAGES}))
