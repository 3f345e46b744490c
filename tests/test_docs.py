"""The documentation is checked like code: links, anchors, code blocks, commands and the list of public names.

Doctests inside Markdown are run by pytest itself (``testpaths`` and ``--doctest-glob`` in ``pyproject.toml``).
"""

import importlib
import importlib.util
import pkgutil
import re
import shlex
import textwrap
from pathlib import Path

import pytest

import userdp

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/results/*.md")
    for path in ROOT.glob(pattern)
)

FENCE = re.compile(r"^([ ]*```+)[ ]*(\w*)[^\n]*\n(.*?)^\1[ ]*$", re.DOTALL | re.MULTILINE)
INLINE_CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+?)[ #]*$", re.MULTILINE)


def load_site_hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site_hooks = load_site_hooks()


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page):
    """Return a page without its code."""
    return INLINE_CODE.sub("", FENCE.sub("", read(page)))


def anchors(page):
    """Return the anchors of a page's headings, as repository hosts and the site make them."""
    found = []
    for heading in HEADING.findall(FENCE.sub("", read(page))):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return found


def blocks(page, *languages):
    """Return the code blocks of a page in one of the languages, with their line numbers."""
    text = read(page)
    return [
        (text.count("\n", 0, match.start()) + 1, match[3])
        for match in FENCE.finditer(text)
        if match[2] in languages
    ]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    broken = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        relative = Path(file).resolve().relative_to(ROOT).as_posix()
        if site_hooks.is_missing(relative.removeprefix("docs/")):
            continue
        if not file.exists() or (anchor and anchor not in anchors(relative)):
            broken.append(target)
    assert not broken, f"{page} links to what is not there: {broken}"


def test_a_broken_link_would_be_found():
    assert "ids-that-are-not-people" in anchors("docs/sharp-edges.md")
    assert "calibrationpaper-is-not-certified" in anchors("docs/sharp-edges.md")
    assert LINK.findall("[a](x.md#y) and ![b](c.svg)") == ["x.md#y", "c.svg"]


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_or_at_least_compile(page):
    """A block with prompts is a doctest, which pytest runs; any other must be valid Python."""
    for line, source in blocks(page, "python", "pycon", "py"):
        if ">>>" in source:
            assert page == "README.md" or page.startswith("docs/"), f"{page}:{line}: no test runs this block"
        else:
            compile(textwrap.dedent(source), f"{page}:{line}", "exec")


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_closed(page):
    assert "```" not in FENCE.sub("", read(page)), f"{page} has a code block that is never closed"


def shell_commands(page):
    """Return every userdp command of a page: in shell blocks and in running text."""
    lines = [
        line.strip().removeprefix("$ ")
        for _, source in blocks(page, "", "bash", "console", "sh", "shell")
        for line in source.replace("\\\n", " ").splitlines()
    ]
    inline = [" ".join(code.split()) for code in INLINE_CODE.findall(FENCE.sub("", read(page)))]
    return [text for text in lines + inline if text.startswith("userdp ")]


def unknown_parts(command, words):
    """Return the first subcommand or the options of a command line that do not exist."""
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        if words[0] not in command.commands:
            return [words[0]]
        command, words = command.commands[words[0]], words[1:]
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {
        "--help"
    }
    return [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]


@pytest.mark.parametrize("page", [page for page in PAGES if shell_commands(page)])
def test_commands_exist(page):
    cli = pytest.importorskip("userdp.cli")
    typer = pytest.importorskip("typer")
    command = typer.main.get_command(cli.app)
    for text in shell_commands(page):
        words = shlex.split(text.split("|")[0], comments=True)[1:]
        assert not (unknown := unknown_parts(command, words)), f"{page}: {text!r} has unknown {unknown}"


SECTIONS = site_hooks.public_names()


@pytest.mark.parametrize("section", SECTIONS)
def test_the_api_page_lists_exactly_the_public_names(section):
    listed = SECTIONS[section]
    assert len(listed) == len(set(listed))
    if section.startswith("userdp"):
        assert set(listed) == {f"{section}.{name}" for name in importlib.import_module(section).__all__}
    for name in listed:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)


def test_every_public_package_is_on_the_api_page():
    packages = {f"userdp.{module.name}" for module in pkgutil.iter_modules(userdp.__path__) if module.ispkg}
    packages -= {"userdp.cli", "userdp.kernels"}  # interfaces for people and for XLA, not for programs
    assert packages <= set(SECTIONS), "list its names in docs/api.md, and its page in mkdocs.yml"


def test_the_navigation_lists_every_page():
    nav = read("mkdocs.yml").partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)\b", nav)
    docs = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    reference = {site_hooks.reference_page(section) for section in SECTIONS}
    outside = {page for source, page in site_hooks.OUTSIDE.items() if "/" not in source}
    assert len(listed) == len(set(listed))
    assert {page for page in listed if not site_hooks.is_missing(page)} == docs | reference | outside
