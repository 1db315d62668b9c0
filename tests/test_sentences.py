"""A sentence is English wherever it is a text, and keeps what a translation needs."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.admin.labels import error_text, translated
from jobqueue.core.masking import mask_text
from jobqueue.core.sentences import Sentence, bounded, changed, counted, joined, message_of, sentence
from jobqueue.exceptions import InvalidOption, JobQueueError


def jobs(number: int, *, more: bool = False) -> Sentence:
    return counted(
        "%(number)s thread did not stop",
        "%(number)s threads did not stop",
        bounded(number, more),
    )


@pytest.mark.parametrize(
    ("number", "more", "english", "german"),
    [
        (0, False, "0 threads did not stop", "0 Threads haben nicht angehalten"),
        (1, False, "1 thread did not stop", "1 Thread hat nicht angehalten"),
        (12_345, False, "12,345 threads did not stop", "12.345 Threads haben nicht angehalten"),
        (10_000, True, "10,000+ threads did not stop", "10.000+ Threads haben nicht angehalten"),
    ],
)
def test_a_number_has_the_plural_and_the_separators_of_the_language(number: int, more: bool, english: str, german: str) -> None:
    with translation.override("de"):
        assert (str(jobs(number, more=more)), translated(jobs(number, more=more))) == (english, german)


def test_the_plurals_of_arabic_are_used() -> None:
    with translation.override("ar"):
        assert len({translated(jobs(number)).replace(str(number), "N") for number in (1, 2, 3, 11, 100)}) == 5


def test_sentences_within_sentences_are_translated_and_names_are_not() -> None:
    text = sentence(
        "it is %(status)s%(since)s; resume, cancel or delete it", status="ERROR", since=sentence(" since %(time)s", time="09:15")
    )
    both = joined(text, sentence("It is canceled if it has not started by %(time)s.", time="10:00"))
    assert both == "it is ERROR since 09:15; resume, cancel or delete it It is canceled if it has not started by 10:00."
    with translation.override("fr"):
        assert translated(both).startswith("il est ERROR depuis 09:15 ; reprenez-le")
    with translation.override("ar"):
        assert "\N{FIRST STRONG ISOLATE}ERROR\N{POP DIRECTIONAL ISOLATE}" in translated(both)


def test_a_copy_can_still_be_translated() -> None:
    for one in (copy.deepcopy(jobs(2)), pickle.loads(pickle.dumps(jobs(2)))):  # noqa: S301
        with translation.override("es"):
            assert translated(one) == "2 hilos no se detuvieron"
    assert json.loads(json.dumps({"text": jobs(2)})) == {"text": "2 threads did not stop"}


def test_a_secret_in_a_value_is_masked_in_every_language() -> None:
    text = changed(sentence("The check %(name)s failed: %(error)s", name="x", error="password=hunter2 is wrong"), mask_text)
    with translation.override("de"):
        shown = translated(text)
    assert "hunter2" not in text + shown
    assert shown.startswith("Die Prüfung x ist gescheitert: password=")


@given(st.text(), st.integers())
def test_any_value_can_be_shown(text: str, number: int) -> None:
    one = counted(
        "%(number)s more problems of this kind (%(code)s).", "%(number)s more problems of this kind (%(code)s).", number, code=text
    )
    assert text in one
    with translation.override("de"):
        assert text in translated(one)


def test_an_error_is_shown_in_the_language_of_its_sentence_only() -> None:
    with translation.override("de"):
        assert error_text(InvalidOption(sentence("raise it"))) == "erhöhen Sie den Wert"
        assert error_text(JobQueueError("raise it")) == "raise it"
        assert error_text(JobQueueError()) == ""
        assert (str(InvalidOption(sentence("raise it"))), message_of(InvalidOption("x"))) == ("raise it", "x")
