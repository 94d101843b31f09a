"""Several visitors of one server in real browsers: who may control a run, links, cookies, names, files."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.ui.test_browser import ARTIFACTS, Server, Visit, browser  # noqa: F401  (a fixture)

pytestmark = pytest.mark.browser

SETTINGS = '{"problem.kind": "quadratics", "rounds": 20000, "eval_every": 100, "probe_every": 0, "compare_with": null}'
SHORT = SETTINGS.replace("20000", "40").replace("100,", "1,")
NAME = "<img src=x onerror=alert(1)> www.evil.com :smile: [l](http://x.y) $a$"


# How opaque the pixel in the corner of a picture is.
CORNER = """async (source) => {
    const image = Object.assign(new Image(), { src: source });
    await image.decode();
    const drawing = Object.assign(document.createElement("canvas"), { width: 20, height: 20 }).getContext("2d");
    drawing.drawImage(image, 0, 0);
    return drawing.getImageData(3, 3, 1, 1).data[3];
}"""


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as strangers find it."""
    server = Server(
        tmp_path_factory.mktemp("public"),
        FEDVIZ_HOSTED="1",
        FEDVIZ_EXECUTOR="thread",
        STREAMLIT_SERVER_ADDRESS="localhost",
    )
    server.start()
    yield server
    server.kill()


def button(page: Page, name: str):
    return page.get_by_test_id("stMainBlockContainer").get_by_role("button", name=name, exact=True)


def test_the_owner_stops_a_run_and_a_viewer_cannot(public: Server, browser: Browser) -> None:  # noqa: F811
    owner = Visit(browser, f"{public.url}?config={quote(SETTINGS)}")
    owner.page.get_by_role("radio", name="10/s").click()  # so that it goes on for as long as this takes
    owner.press("Run")
    owner.state("running")
    link = f"{public.url}?run={owner.run_id}"
    viewer = Visit(browser, link, width=390, height=844)  # on a phone
    viewer.state("running")
    last = viewer.last_round()
    viewer.grows_beyond(last)
    for name in ("Pause", "Step", "Stop"):
        expect(button(viewer.page, name)).to_be_disabled()
    assert viewer.page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") == 390
    # The cookie makes a reload and another tab the owner again.
    assert "fedviz_visitor" not in owner.page.evaluate("document.cookie")
    owner.page.reload()
    owner.settle()
    expect(button(owner.page, "Stop")).to_be_enabled()
    tab = owner.context.new_page()
    tab.goto(link)
    expect(button(tab, "Stop")).to_be_enabled(timeout=20_000)
    tab.close()
    owner.press("Stop")
    viewer.state("stopped")
    # A restart of the server as well.
    public.kill()
    public.start()
    # The first page that is asked for after a start is found, whatever Streamlit makes of the files in pages/ until app.py has run.
    for address in ("all-runs", "runs"):
        owner.page.goto(f"{public.url}{address}")
        expect(owner.page.get_by_role("heading", name="Runs", exact=True)).to_be_visible(timeout=20_000)
        assert owner.page.get_by_role("dialog").count() == 0
    for visit in (owner, viewer):
        visit.page.goto(link)
        visit.settle()
        visit.complaints.clear()  # of the lost connection
    expect(button(owner.page, "Resume")).to_be_enabled()
    expect(button(viewer.page, "Resume")).to_be_disabled()
    owner.press("Resume")
    expect(owner.page.locator(".stMarkdownBadge").filter(has_text="stopped")).to_have_count(0, timeout=30_000)
    # Their page finds out by itself.
    expect(viewer.page.locator(".stMarkdownBadge").filter(has_text="stopped")).to_have_count(0, timeout=30_000)
    owner.press("Stop")  # else it holds the place that the next one's run needs
    owner.state("stopped")
    owner.close()
    viewer.close()


def test_names_are_inert_and_a_run_goes_out_as_a_file_and_comes_back(public: Server, browser: Browser) -> None:  # noqa: F811
    visit = Visit(browser, f"{public.url}?config={quote(SHORT)}")
    page = visit.page
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    visit.press("Run")
    visit.state("finished")
    page.get_by_text("Linear", exact=True).last.click()  # how it is drawn stands in the address
    page.wait_for_url(re.compile("draw_scale=Linear"))
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    visit.settle()
    page.get_by_role("button", name="Change or export").first.click()
    page.get_by_label("Name", exact=True).fill(NAME)
    page.keyboard.press("Enter")
    shown = page.get_by_role("link", name="evil").first
    expect(shown).to_be_visible()
    assert shown.inner_text().replace("\u2060", "") == NAME
    assert page.locator('[data-testid="stMain"] :is(a[href*=evil], a[href*="x.y"], img)').count() == 0
    with page.expect_download() as download:
        page.get_by_role("button", name="Export as JSON").click()
    path = ARTIFACTS / "exported.json"
    download.value.save_as(path)
    page.keyboard.press("Escape")
    rows = page.locator('[class*="st-key-head-"]')
    before = rows.count()
    page.get_by_role("button", name="Import").click()
    page.locator('input[type="file"]').set_input_files(path)
    expect(rows).to_have_count(before + 1, timeout=20_000)
    visit.settle()
    for width, scheme in ((1440, "light"), (390, "dark")):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.screenshot(path=ARTIFACTS / f"runs-{width}-{scheme}.png")
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") == width
    assert page.get_by_test_id("stException").count() == 0


def test_a_chart_is_saved_as_a_picture(public: Server, browser: Browser) -> None:  # noqa: F811
    visit = Visit(browser, public.url)
    visit.drawn("loss")
    for name, start in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with visit.page.expect_download() as download:
            visit.page.locator(".st-key-card-loss").get_by_role("button", name=name).click()
        path = ARTIFACTS / f"chart.{name.lower()}"
        download.value.save_as(path)
        assert path.read_bytes().startswith(start)
        assert path.stat().st_size > 10_000
        picture = f"data:image/{'svg+xml' if name == 'SVG' else 'png'};base64,{b64encode(path.read_bytes()).decode()}"
        assert visit.page.evaluate(CORNER, picture) == 255, name  # on a slide of any colour
    visit.close()
