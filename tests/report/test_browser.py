"""The page in a real browser: it renders, its controls work, nothing runs that should not."""

import shutil

import numpy as np
import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)
pytest.importorskip("plotly")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium on this machine: install one (Debian: apt-get install chromium)",
)
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run")  # fmt: skip
CONTRAST = """(selector) => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const element = document.querySelector(selector), style = getComputedStyle(element);
  const ink = parse(element instanceof SVGElement ? style.fill : style.color);
  let behind = element, ground = [0, 0, 0, 0];
  while (behind && (ground.length > 3 && ground[3] === 0)) {
    ground = parse(getComputedStyle(behind).backgroundColor);
    behind = behind.parentElement;
  }
  const [a, b] = [light(ink), light(ground)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as tools:
        found = tools.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield found
        found.close()


@pytest.fixture(scope="module")
def files(page_of, tmp_path_factory):
    """Page of a run as a file, written once."""
    folder = tmp_path_factory.mktemp("pages")

    def of(name):
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(page_of(name), "utf-8")
        return path

    return of


class Visit:
    """A page and all that it said and asked for."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(90_000)  # a browser beside other tests may wait its turn
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append("dialog"), dialog.dismiss()))
        self.context.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def ready(self):
        self.page.wait_for_selector("html[data-ready]")
        return self.page


@pytest.fixture
def visit(browser, files):
    opened = []

    def go(name, **options):
        path = files(name) if isinstance(name, str) else name
        opened.append(Visit(browser, path, **options))
        return opened[-1]

    yield go
    for one in opened:
        one.context.close()


@pytest.mark.parametrize(
    "name", ["expert_run", "wine_run", "feature_run", "empty_run", "hostile_run"]
)
def test_the_page_renders_on_a_narrow_screen_without_a_word_or_a_request(visit, name):
    seen = visit(name, viewport={"width": 340, "height": 700})
    here = seen.ready()
    plots = here.locator(".plot:not([hidden])")
    assert plots.count() > 0
    for i in range(plots.count()):
        assert plots.nth(i).locator("svg.main-svg").count() > 0
    assert seen.said == []
    assert {url.split(":")[0] for url in seen.asked} == {"file"}
    # Nothing is to be scrolled sideways.
    assert here.evaluate("document.documentElement.scrollWidth") <= 340
    widths = "[...document.querySelectorAll('.plot svg.main-svg')].map(s => s.clientWidth)"
    assert max(here.evaluate(widths)) <= 340


def test_hostile_names_run_nothing_and_can_be_read(visit):
    seen = visit("hostile_run")
    here = seen.ready()
    for radio in here.locator("#parts input").all():
        radio.check()
    here.hover("#plot-map .scatterlayer .point >> nth=0", force=True)
    assert here.evaluate("window.hacked") is None
    assert seen.said == []
    assert here.locator("h1").inner_text() == "<img src=x onerror=window.hacked=1>"
    assert here.locator("img").count() == 0
    labels = here.locator("#plot-weights .ytick text").all_text_contents()
    assert any(label.startswith("<img src=x onerror") for label in labels)


def test_even_a_script_put_into_the_file_does_not_run(visit, files, tmp_path):
    text = files("expert_run").read_text("utf-8")
    attack = (
        "<script>window.hacked=3</script><img src='http://127.0.0.1:9/x' onerror='window.hacked=4'>"
    )
    (tmp_path / "attacked.html").write_text(text.replace("</main>", attack + "</main>"), "utf-8")
    seen = visit(tmp_path / "attacked.html")
    here = seen.ready()
    here.wait_for_timeout(200)
    assert here.evaluate("window.hacked") is None
    assert any("Content Security Policy" in words for words in seen.said)  # the browser says why
    refused = "fetch('http://127.0.0.1:9/').then(() => 'loaded', () => 'refused')"
    assert here.evaluate(refused) == "refused"


def cells(here, table, column):
    return here.eval_on_selector_all(
        f"#{table} tbody tr", f"rows => rows.map((row) => row.cells[{column}].dataset.value)"
    )


def test_headers_sort_both_ways_by_mouse_and_by_keyboard(visit):
    here = visit("expert_run").ready()
    shares = [float(v) for v in cells(here, "parts", 1)]
    head = here.locator("#parts th").nth(1)
    head.locator("button").click()
    assert [float(v) for v in cells(here, "parts", 1)] == sorted(shares, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").press("Enter")
    assert [float(v) for v in cells(here, "parts", 1)] == sorted(shares)
    assert head.get_attribute("aria-sort") == "ascending"
    here.locator("#doubtful th button").nth(1).click()
    names = cells(here, "doubtful", 1)
    assert names == sorted(names, reverse=True)
    here.locator("#diagnostics th button").nth(2).click()
    values = [float(v) for v in cells(here, "diagnostics", 2) if v]
    assert values == sorted(values, reverse=True)


def test_arrow_keys_and_clicks_choose_a_component(visit, expert_run):
    here = visit("expert_run").ready()
    shares = expert_run.sample.values["activations"].mean(axis=0)
    usual = here.locator("#parts input:checked").get_attribute("value")
    order = np.argsort(-shares, kind="stable")  # the largest share first
    assert cells(here, "parts", 0) == [str(k + 1) for k in order]
    assert usual == str(order[0] + 1)
    here.locator("#parts input").first.focus()
    here.keyboard.press("ArrowDown")
    assert here.locator("#detail-name").inner_text().startswith(f"Expert {order[1] + 1}, in ")

    def drawn():
        return here.evaluate("document.getElementById('plot-weights').data[0].x")

    draws = expert_run.presentation.panel_draws(expert_run.frame.classes)
    of_experts, of_gate = (np.median(table, axis=0) for table in draws.values())
    weights = of_experts[order[1]]
    assert np.allclose(drawn(), weights[np.argsort(-np.abs(weights), kind="stable")], rtol=1e-3)
    here.locator("#parts tbody tr").nth(2).locator(".purpose").click()
    last = order[2]
    assert here.locator("#detail-name").inner_text().startswith(f"Expert {last + 1}, in ")
    assert here.locator("#parts input").nth(2).is_checked()
    here.locator("#panel").select_option(label="choose it")
    assert np.allclose(sorted(drawn()), sorted(of_gate[last]), rtol=1e-3)
    opacity = "document.getElementById('plot-map').data.filter(t => t.meta).map(t => t.opacity)"
    assert here.evaluate(opacity) == [1 if k == last else 0.2 for k in range(3)]
    frames = "document.getElementById('plot-angles').layout.shapes.map(s => [s.y0, s.y1])"
    assert here.evaluate(frames)[0] == [last - 0.5, last + 0.5]


def test_a_click_on_a_picture_chooses(visit):
    here = visit("expert_run").ready()
    point = here.locator("#plot-map .scatterlayer .trace").nth(1).locator(".point").first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    here.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
    here.wait_for_selector("#plot-map .hoverlayer text")
    here.mouse.down()
    here.mouse.up()
    owner = here.locator("#parts input:checked").get_attribute("value")
    assert here.locator("#detail-name").inner_text().startswith(f"Expert {owner}, in ")
    hover = "document.getElementById('plot-map').data.filter(t => t.meta).map(t => t.opacity)"
    assert sorted(here.evaluate(hover)) == [0.2, 0.2, 1]


@pytest.fixture(scope="module")
def feature_page(browser, files):
    """One page for tests that do not disturb each other."""
    seen = Visit(browser, files("feature_run"), color_scheme="light")
    yield seen.ready()
    seen.context.close()


def test_another_quantity_can_be_looked_at(feature_page, feature_run):
    here = feature_page
    here.locator("#quantity").select_option(label="scale of the noise")
    drawn = here.evaluate("document.getElementById('plot-trace').data.map(t => t.y)")
    assert np.allclose(drawn, feature_run.model.trace_.values["noise_scale"], rtol=1e-4)


def test_features_are_shown_as_images(feature_page, feature_run):
    here = feature_page
    here.locator("#parts input[value='2']").check()
    drawn = here.evaluate("document.getElementById('plot-image').data[0].z")
    expected = feature_run.model.components_[1].reshape(6, 6)
    assert np.allclose(drawn, expected, rtol=1e-2, atol=1e-3)
    loaded = "[...document.querySelectorAll('img.thumb')].map(i => [i.naturalWidth, i.alt !== ''])"
    assert here.evaluate(loaded) == [[6, True]] * feature_run.model.n_components_


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(visit, scheme):
    here = visit("expert_run", color_scheme=scheme).ready()
    ground = here.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]
    for selector in ("p.verdict", ".caution", ".note", "nav a", "td small", "figcaption",
                     ".tag.doubtful", "#plot-calibration .xtick text", "#plot-trace .ytick text",
                     "#plot-weights .ytick text", ".sort"):  # fmt: skip
        if selector in {".caution", ".tag.doubtful"} and not here.locator(selector).count():
            continue  # a fit without anything to warn of
        assert here.evaluate(CONTRAST, selector) >= 4.5, selector


def test_colours_follow_when_the_system_turns_dark(feature_page):
    here = feature_page
    ink = "getComputedStyle(document.querySelector('#plot-trace .ytick text')).fill"
    before = here.evaluate(ink)
    here.emulate_media(color_scheme="dark")
    here.wait_for_timeout(300)
    assert here.evaluate(ink) != before
    assert here.evaluate(CONTRAST, "#plot-trace .ytick text") >= 4.5


def test_paper_is_light_and_has_all_rows(visit):
    here = visit("expert_run", color_scheme="dark").ready()
    assert here.pdf(format="A4").startswith(b"%PDF")
    here.emulate_media(media="print", color_scheme="dark")
    here.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert not here.locator("nav").is_visible()
    assert here.evaluate("getComputedStyle(document.body).color") == "rgb(34, 38, 43)"
    ink = "getComputedStyle(document.querySelector('#plot-trace .ytick text')).fill"
    assert here.evaluate(ink) == "rgb(34, 38, 43)"
    cut = "[...document.querySelectorAll('.scroll')].some(s => s.scrollHeight > s.clientHeight + 2)"
    assert not here.evaluate(cut)


def test_the_keyboard_reaches_every_control(visit):
    here = visit("expert_run").ready()
    here.keyboard.press("Tab")
    assert here.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        here.keyboard.press("Tab")
        reached.add(
            here.evaluate("document.activeElement.id || document.activeElement.className ||"
                          " document.activeElement.name || document.activeElement.tagName")
        )  # fmt: skip
    assert {"sort", "part", "panel", "quantity", "scroll"} <= reached


def test_without_scripts_the_tables_can_be_read(visit):
    seen = visit("expert_run", java_script_enabled=False)
    assert "all tables can be read without" in seen.page.locator("noscript").inner_html()
    assert seen.page.locator("#parts tbody tr").count() == 3
