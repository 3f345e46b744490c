import dataclasses
import html
import os
import re
import stat
from html.parser import HTMLParser

import pytest

from tests.report.examples import CLAIMED, HOSTILE, HOSTILE_NAMES, MEAN, MODEL, SEEDED
from userdp.errors import InvalidInputError
from userdp.report import Released, render, write_report

CONTENTS = {"mean": MEAN, "model": MODEL, "hostile": HOSTILE}


class Outline(HTMLParser):
    """Tags, attributes and text of a page, and whether its elements close in order."""

    VOID = frozenset({"meta", "br", "img", "input", "link", "hr"})

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_the_page_is_whole(content):
    outline = Outline(render(content))
    assert outline.open == []
    ids = [value for name, value in outline.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert outline.tags.count(landmark) == 1
    linked = {value[1:] for name, value in outline.attributes if name == "href"}
    assert linked <= set(ids)
    assert {"released", "promise", "budget", "limits"} <= set(ids)
    assert ("lang", "en") in outline.attributes


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_the_page_needs_and_allows_nothing_else(content):
    page = render(content)
    outline = Outline(page)
    assert "http:" not in page
    assert "https:" not in page
    assert not [name for name, _ in outline.attributes if name in ("src", "srcset", "xlink:href", "ping")]
    assert all(value.startswith("#") for name, value in outline.attributes if name == "href")
    assert set(re.findall(r"url\((.)|@(import|font-face)", page)) == {("#", "")}
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(outline.tags)
    assert outline.tags.count("script") == outline.tags.count("style") == 1
    # Inline handlers and styles would be stopped by the policy; there are none to stop.
    assert not [name for name, _ in outline.attributes if name.startswith("on") or name == "style"]
    policy = next(value for name, value in outline.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_hostile_text_stays_text():
    page = render(HOSTILE)
    outline = Outline(page)
    text = "".join(outline.text)
    for name in HOSTILE_NAMES:
        assert name.replace("\x00", "�") in text or name in text
    for raw in (
        "<script>alert",
        "<img src",
        "</style></script>",
        "<i>person",
        "<u>gate",
        "<em>",
        "<h1>halted",
    ):
        assert raw not in page
    assert not {"img", "u", "em"} & set(outline.tags)
    assert "<bdi>49" not in page


def test_numbers_and_words_are_on_the_page():
    text = html.unescape(render(MEAN))
    for expected in (
        "Flights out of New York City, 2013",
        "2025-03-14 09:26 UTC",
        "11.85",
        "11.49 to 12.21",
        "× 2.72",
        "54.8%",
        "at most 8.1%",
        "0.2234",
        "1e-06",
        "4,037",
        "all its rows",
        "The number of users is public.",
        "epsilon = 1, 4,037 users: noise (standard deviation) 0.183 (this release)",
        "userdp 0.1.0",
    ):
        assert expected in text
    assert 'class="banner"' not in text
    assert "<title>Flights" in text


@pytest.mark.parametrize(("statement", "words"), [(SEEDED, "protects nobody"), (CLAIMED, "Not certified.")])
def test_a_release_that_falls_short_says_so_before_anything_else(statement, words):
    page = render(dataclasses.replace(MEAN, statement=statement))
    assert page.index('class="banner"') < page.index(words) < page.index("<header>")
    assert "<title>Warning: " in page
    assert "Certified: every constant" not in page


def test_without_a_plan_there_is_no_error_curve():
    assert 'id="users"' not in render(MODEL)


def test_the_same_content_gives_the_same_page():
    assert render(MEAN) == render(dataclasses.replace(MEAN))


def test_a_page_is_light():
    assert len(render(MEAN).encode()) < 80_000
    many = dataclasses.replace(MODEL, released=tuple(Released(f"x{k}", k / 7, 0.1) for k in range(5000)))
    assert len(render(many).encode()) < 1_500_000


def test_writing_replaces_the_file_whole(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    assert write_report(MEAN, path) == path
    assert path.read_text(encoding="utf-8") == render(MEAN)
    assert os.listdir(tmp_path) == ["report.html"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("stage", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch, stage, error):
    def fail(*args):
        raise error

    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr(os, stage, fail)
    with pytest.raises(type(error)):
        write_report(MEAN, path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_badly_decoded_name_can_still_be_written(tmp_path):
    content = dataclasses.replace(MEAN, released=(Released("caf\udce9", 1.0),))
    assert "caf?" in write_report(content, tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="does not exist"):
        write_report(MEAN, tmp_path / "missing" / "report.html")
    with pytest.raises(InvalidInputError, match="is a folder"):
        write_report(MEAN, tmp_path)
