"""The page in a real browser: a headless Chromium with no extension, no profile and no network."""

import shutil

import pytest

from tests.report.examples import HOSTILE, MEAN, MODEL
from userdp.report import write_report

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path (apt-get install chromium)")

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CONTENTS = {"mean": MEAN, "model": MODEL, "hostile": HOSTILE}
DESKTOP = {"viewport": {"width": 1200, "height": 900}}
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}

# Every piece of visible text against the nearest painted background: the lowest contrast, and where.
LOWEST_CONTRAST = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).map((c) => c / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      const alpha = channels(colour)[3];
      if (alpha === undefined || alpha === 1) return colour;
      if (alpha > 0) throw new Error("half transparent ground");
    }
    throw new Error("no ground");
  };
  document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
  let lowest = [99, "", 0];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("script")) continue;
    const style = getComputedStyle(element);
    const colour = element instanceof SVGElement ? style.fill : style.color;
    const found = ratio(colour, ground(element));
    lowest[2] += 1;
    if (found < lowest[0]) lowest = [found, walker.currentNode.data.trim(), lowest[2]];
  }
  for (const mark of document.querySelectorAll("g[class^=line], .legend svg, [class^=fill], .dot")) {
    const style = getComputedStyle(mark);
    const colour = mark.tagName === "g" || mark.tagName === "svg" ? style.color : style.fill;
    if (ratio(colour, ground(mark)) < 3) return [0, "a mark: " + mark.outerHTML.slice(0, 80), 0];
  }
  return lowest;
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name, content in CONTENTS.items():
        write_report(content, folder / f"{name}.html")
    return folder


@pytest.fixture
def visit(browser, folder):
    """Open a report; at the end nothing may have been logged, thrown, asked or requested."""
    contexts, wrong = [], []

    def open_page(name, **options):
        context = browser.new_context(**(options or DESKTOP))
        contexts.append(context)
        page = context.new_page()
        address = (folder / f"{name}.html").as_uri()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: request.url == address or wrong.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("name", CONTENTS)
def test_it_renders_without_a_complaint(visit, name):
    page = visit(name)
    assert page.locator("h1").inner_text() == CONTENTS[name].title
    assert page.locator("section").count() == (5 if CONTENTS[name].error_curves else 4)
    assert page.locator(".strip[data-mark]").count() == min(len(CONTENTS[name].released), 24)
    assert page.evaluate("document.styleSheets.length") == 1
    assert page.title().endswith("(privacy report)")


def test_hostile_names_are_shown_and_do_nothing(visit):
    page = visit("hostile")
    first = page.locator(".strip[data-mark] .name").first
    assert first.inner_text().replace("\n", "") == HOSTILE.released[0].name
    assert page.locator("img, section script, section h1").count() == 0
    assert page.locator(".banner").is_visible()
    assert page.locator(".banner").bounding_box()["y"] == 0


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("#released .strip >> nth=1", "arr_delay⁩: 5.92, noise interval 5.56 to 6.28"),
        ("#budget rect[data-mark] >> nth=1", "mean⁩: mu = 0.217, 94%"),
        ("#promise circle.here", "5% false alarms: at most 8.1% detected"),
        ("#users circle.here", "epsilon = 1, 4,037 users: noise (standard deviation) 0.183 (this release)"),
    ],
)
def test_pointing_at_a_mark_shows_its_value(visit, mark, words):
    page = visit("mean")
    tip = page.locator("#tip")
    assert not tip.is_visible()
    page.locator(mark).hover()
    assert words in tip.inner_text()
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    page.mouse.move(2, 2)
    page.locator(mark).hover()
    assert tip.is_visible()
    page.mouse.move(2, 2)
    assert not tip.is_visible()


def test_a_line_answers_wherever_the_pointer_is(visit):
    page = visit("mean")
    page.locator("#users .plot > svg").hover(position={"x": 5, "y": 5})
    assert "epsilon = 0.5, 1,000 users" in page.locator("#tip").inner_text()


def test_the_tab_key_stops_once_at_every_picture(visit):
    page = visit("mean")
    groups = page.locator("[data-marks]").count()
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        label = page.evaluate("document.activeElement.closest('[data-marks]')?.getAttribute('aria-label')")
        if label:
            stops.append(label)
            assert page.locator("#tip").is_visible()
        if page.evaluate("document.activeElement === document.body"):
            break
    assert len(stops) == len(set(stops)) == groups


def test_arrow_keys_walk_through_a_picture(visit):
    page = visit("mean")
    tip = page.locator("#tip")

    def said(key):
        page.keyboard.press(key)
        assert tip.inner_text() == page.evaluate("document.activeElement.getAttribute('aria-label')")
        return tip.inner_text()

    page.locator("#users [data-mark][tabindex='0']").focus()
    assert "epsilon = 0.5, 2,000 users" in said("ArrowRight")
    assert "epsilon = 1, 2,000 users" in said("ArrowDown")
    assert "epsilon = 0.5, 2,000 users" in said("ArrowUp")
    assert "epsilon = 2, 128,000 users" in said("End")
    assert "epsilon = 0.5, 1,000 users" in said("Home")
    assert page.locator("#users [data-mark][tabindex='0']").count() == 1
    page.locator("#released [data-mark]").first.focus()
    assert "arr_delay" in said("ArrowDown")


def test_the_legend_hides_lines_by_keyboard(visit):
    page = visit("mean")
    button = page.get_by_role("button", name="epsilon = 0.5")
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    assert not page.locator("#users [data-line='0']").is_visible()
    # The hidden line's mark was the tab stop; the next line takes over.
    page.locator("#users [data-line='1'] [data-mark][tabindex='0']").focus()
    page.keyboard.press("Home")
    assert "epsilon = 1, 1,000 users" in page.locator("#tip").inner_text()
    button.click()
    assert page.locator("#users [data-line='0']").is_visible()


def test_a_tap_shows_a_value(visit):
    page = visit("mean", **PHONE)
    page.locator("#released .strip >> nth=2").tap()
    assert "hour" in page.locator("#tip").inner_text()


@pytest.mark.parametrize("name", CONTENTS)
def test_a_phone_never_scrolls_sideways(visit, name):
    page = visit(name, **PHONE)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    for mark in page.locator("[tabindex='0'][data-mark]").all():
        mark.focus()
        box = page.locator("#tip").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["mean", "hostile"])
def test_text_stands_out_from_its_ground(visit, name, scheme):
    page = visit(name, **DESKTOP, color_scheme=scheme)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 27)"
    assert dark == (scheme == "dark")
    lowest, text, checked = page.evaluate(LOWEST_CONTRAST)
    assert lowest >= 4.5, text
    assert checked > 50
    page.locator("[data-mark]").first.focus()
    assert page.locator("#tip").is_visible()
    assert page.evaluate(LOWEST_CONTRAST)[0] >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_shows_everything_in_black_on_white(visit, scheme):
    page = visit("mean", **DESKTOP, color_scheme=scheme)
    page.emulate_media(media="print", color_scheme=scheme)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert not page.locator("summary").first.is_visible()
    assert page.evaluate(LOWEST_CONTRAST)[0] >= 4.5
    page.emulate_media(media="screen")
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = false; })")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.get_by_role("cell", name="11.49 to 12.21").is_visible()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert not page.get_by_role("cell", name="11.49 to 12.21").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_a_screen_reader_finds_landmarks_and_named_pictures(visit):
    page = visit("mean")
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("region", name="What is promised").count() == 1
    for name in ("Released numbers with their noise intervals", "Epsilon = 1"):
        assert page.get_by_role("group", name=name).count() == 1
    unnamed = page.locator("[data-mark]:not([aria-label]), [role=img]:not([aria-label])")
    assert unnamed.count() == 0
    assert page.locator("figure").count() <= page.locator("details table").count()
