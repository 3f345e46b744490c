"""What turns the Markdown of the repository into a site, so that one text serves both.

* Pages that live outside ``docs/`` (contributing, changelog, measured results) become pages of the site, and links to
  them are rewritten; in the repository the same links lead to the files.
* A reference page per module is generated from its docstrings, and the names in ``api.md`` link to it.
* Formulas become MathML here, so that no script is loaded to show them.
"""

import html
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# Files of the repository that are pages of the site, and where.
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    **{
        f"benchmarks/results/{path.name}": f"results/{path.name}"
        for path in sorted((ROOT / "benchmarks/results").glob("*"))
        if path.suffix in (".md", ".svg")
    },
}
# Pages that are being written elsewhere: until they exist, their links are plain text. Empty this when they do.
AWAITED: frozenset[str] = frozenset()
# What the estimators share is explained once, at the end of their page.
SHARED = {
    "userdp.estimators": (
        "userdp.estimators.base.PrivateLinearEstimator",
        "userdp.estimators.classifiers.PrivateClassifier",
    )
}
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
# Entries that several parameters share carry the first one's type and default; the signature shows the right ones.
_DEFAULT = re.compile(r"</code>, default:\s*<code>.*?</code>\s*\)", re.DOTALL)
_SHARED_TYPE = re.compile(r"\(<code>[^()]*?</code>\)(?=\s*–\s*<div[^>]*>\s*<p>See )")
_ROLE = re.compile(r":(?:class|func|mod|meth|attr|data|exc):<code>~?([\w.]+)</code>")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def is_missing(page: str) -> bool:
    """Tell whether a page is awaited and not there yet."""
    return page in AWAITED and not (ROOT / "docs" / page).exists()


def on_config(config: Any) -> Any:
    """Leave awaited pages out of the navigation, and end it with the measured results."""
    for section in config.nav:
        for title, pages in section.items():
            section[title] = [page for page in pages if not any(map(is_missing, page.values()))]
    results = (path for path in OUTSIDE if path.startswith("benchmarks/") and path.endswith(".md"))
    config.nav[-1]["Project"] += [{_title(path): OUTSIDE[path]} for path in results]
    return config


def _title(path: str) -> str:
    """Return a page's heading up to its first comma or colon."""
    return re.split("[,:]", (ROOT / path).read_text(encoding="utf-8").partition("\n")[0].lstrip("# "))[0]


def public_names() -> dict[str, list[str]]:
    """Read the sections of ``api.md``: the names under each module."""
    names: dict[str, list[str]] = {}
    for line in (ROOT / "docs/api.md").read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"## (.+)", line):
            section = names.setdefault(heading[1].strip("`"), [])
        elif row := re.match(r"\| `(userdp[\w.]*)` \|", line):
            section.append(row[1])
    return names


def reference_page(section: str) -> str:
    """Return the page on which a section of ``api.md`` is explained."""
    return f"reference/{section.lower()}.md"


def homes() -> dict[str, str]:
    """Say under which name each public name is explained: what the front door repeats lives further down."""
    sections = public_names()
    front = sections.pop("userdp")
    inner = {name.rpartition(".")[2]: name for names in reversed(sections.values()) for name in names}
    places = {name: name for names in sections.values() for name in names}
    for name in front:
        if name not in sections:  # a module has a page instead
            places[name] = inner.get(name.rpartition(".")[2], name)
    return places


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside ``docs/`` and the generated reference."""
    from mkdocs.structure.files import File

    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    places = homes()
    for section, names in public_names().items():
        entries = [f"::: {name}\n" for name in names if places.get(name) == name and "__" not in name]
        entries += [f"::: {name}\n" for name in SHARED.get(section, ())]
        files.append(
            File.generated(config, reference_page(section), content="\n".join([f"# {section}\n", *entries]))
        )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links for the site; link the names of the API page to the reference."""
    here = page.file.src_uri
    repository_path = {page: source for source, page in OUTSIDE.items()}.get(here, f"docs/{here}")

    def rewrite(match: re.Match[str]) -> str:
        target, _, anchor = match["target"].partition("#")
        if not target or "://" in target:
            return match[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path), target))
        if wanted == "README.md":
            wanted = "docs/README.md"
        place = OUTSIDE.get(wanted) or wanted.removeprefix("docs/")
        if place == wanted or is_missing(place):  # a file that the site does not show
            return match["text"]
        relative = posixpath.relpath(place, posixpath.dirname(here) or ".")
        return f"[{match['text']}]({relative}{'#' + anchor if anchor else ''})"

    if here == "api.md":
        markdown = _linked_names(markdown)
    return _LINK.sub(rewrite, markdown)


def _linked_names(markdown: str) -> str:
    """Link every row of the API page to where its name is explained."""
    places, sections = homes(), public_names()

    def link(match: re.Match[str]) -> str:
        name = match[1]
        if name in sections:
            return f"| [`{name}`](#{name.replace('.', '')}) |"
        return match[0] if "__" in name else f"| [`{name}`][{places[name]}] |"

    return re.sub(r"^\| `(userdp[\w.]*)` \|", link, markdown, flags=re.MULTILINE)


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Show formulas as MathML and references of docstrings as names."""
    if "arithmatex" in content:
        from latex2mathml.converter import convert

        content = _FORMULA.sub(
            lambda match: convert(
                html.unescape(match[2]), display="inline" if match[1] == "span" else "block"
            ),
            content,
        )
    content = _SHARED_TYPE.sub("", _DEFAULT.sub("</code>)", content))
    return _ROLE.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', content)
