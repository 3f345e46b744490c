"""Put the page together and write it, whole or not at all."""

import base64
import functools
import hashlib
import os
import secrets
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from userdp.errors import InvalidInputError
from userdp.report import charts, words
from userdp.report.attacker import Attacker
from userdp.report.content import ReportContent


def render(content: ReportContent) -> str:
    """Return the report as one HTML document that needs nothing else: no network, no font, no library.

    The same content gives the same text. Everything that comes from ``content`` is escaped, and a content
    security policy allows the page's own style and script, by their hashes, and nothing else.
    """
    attacker = Attacker.against(content.statement)
    environment = _environment()
    style, script = (_asset(environment, name) for name in ("style.css", "script.js"))
    return environment.get_template("page.html").render(
        content=content,
        statement=content.statement,
        style=style,
        script=script,
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        banners=words.banners(content),
        promise=words.promise(content.statement),
        questions=words.who_is_protected(content.statement),
        figures=words.figures(content.statement, attacker),
        assumptions=words.assumptions(content.statement),
        not_covered=words.not_covered(content.statement),
        values=charts.strip_chart(content),
        budget=charts.budget_bars(content.statement),
        attack=charts.attack_chart(attacker),
        errors=charts.error_chart(content.error_curves, content.error_label)
        if content.error_curves
        else None,
    )


def write_report(content: ReportContent, path: str | os.PathLike[str]) -> Path:
    """Write the report to ``path``, replacing what is there, and return the path.

    The file appears by rename: a reader, a crash or Ctrl-C finds the old file or the new one, never a part.

    Raises
    ------
    InvalidInputError
        Where the folder does not exist or ``path`` is itself a folder; nothing is written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InvalidInputError(f"the folder {str(path.parent)!r} does not exist; create it first")
    if path.is_dir():
        raise InvalidInputError(f"{str(path)!r} is a folder; give the name of a file, such as report.html")
    html = render(content)
    part = path.parent / f".report-{secrets.token_hex(8)}.part"
    try:
        # Half a surrogate pair can come out of a badly decoded column name and has no place in UTF-8.
        with part.open("x", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(html)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("userdp.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _asset(environment: Environment, name: str) -> Markup:
    """Return one of the package's own files, to stand in the page as it is."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def _hash(text: str) -> str:
    """Name an inline element by its content, as a content security policy does."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
