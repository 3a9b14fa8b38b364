"""The page in a real browser: Chromium without a window, the real application over an index that ranks by letters."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

pytest.importorskip("playwright", reason="needs playwright, which drives the browser: .venv/bin/pip install playwright")
pytest.importorskip("fastapi", reason="needs the server: .venv/bin/pip install -e '.[serve]'")

import uvicorn
from playwright.sync_api import Browser, Page, Request, Route, expect, sync_playwright

from interlingua.data.records import Passage
from interlingua.index import Hit
from interlingua.index.metadata import Question
from interlingua.serving.app import create_app
from interlingua.serving.service import ServeSettings

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="the page needs a browser: apt-get install chromium"),
]
expect.set_options(timeout=15_000)

PASSAGES = (
    Passage(
        "light.en",
        "The lighthouse keeper wrote every storm into a small blue book. " * 14,
        "Lighthouse",
        "en",
        {"source": "https://example.org/light", "chunk": "2"},
    ),
    Passage("light.fi", "Majakanvartija kirjoitti jokaisen myrskyn pieneen siniseen kirjaan.", "Majakka", "fi"),
    Passage("light.sw", "Mlinzi wa mnara aliandika kila dhoruba katika kitabu kidogo cha bluu.", "Mnara", "sw"),
    Passage("light.ar", "يكتب حارس المنارة كل عاصفة في دفتر صغير أزرق.", "Lighthouse (منارة)", "ar"),
    Passage("light.ja", "灯台守はすべての嵐を小さな青い本に書き留めた。", "灯台", "ja"),
    Passage("bridge.en", "Two rivers meet below the old town, and a bridge crosses both.", "Bridge", "en"),
    Passage("stars.en", "Who wrote the first book about the stars of the southern sky?", "", "en"),
    Passage("town.fi", "Kaksi jokea kohtaa vanhan kaupungin alapuolella.", "Kaupunki", "fi"),
    Passage("unknown", "A storm without a language.", "Storm", ""),
)
ATTACK = "<img src=x onerror='window.pwned=1'><script>window.pwned=1</script>"


class LetterIndex:
    """What the application asks of an index. A passage scores by the letter triples that it shares with the question;
    "dense" turns the order around, so that modes differ."""

    encoder = SimpleNamespace(similarity="cosine", encode_query=lambda texts, **options: [])
    token_states = None
    path = "/the/place/of/letters"
    metadata = SimpleNamespace(fingerprint={})

    def __init__(self, passages: Sequence[Passage] = PASSAGES) -> None:
        self.passages = passages

    @property
    def languages(self) -> dict[str, int]:
        langs = [passage.lang for passage in self.passages]
        return {lang: langs.count(lang) for lang in sorted(set(langs))}

    fields = ("source", "chunk")

    def __len__(self) -> int:
        return len(self.passages)

    def refresh(self) -> Any:
        return self

    def info(self) -> Any:
        return SimpleNamespace(model="letters")

    def search_many(
        self,
        texts: Sequence[str | Question],
        k: int = 10,
        langs: Sequence[str] | None = None,
        *,
        mode: str = "hybrid",
        **options: Any,
    ) -> list[list[Any]]:
        return [self._search(one if isinstance(one, str) else one.text, k, langs, mode) for one in texts]

    def _search(self, text: str, k: int, langs: Sequence[str] | None, mode: str) -> list[Any]:
        asked = triples(text)
        scored = [
            (len(asked & triples(f"{one.title} {one.text}")) / max(1, len(asked)), one)
            for one in self.passages
            if langs is None or one.lang in langs
        ]
        found = sorted((pair for pair in scored if pair[0]), key=lambda pair: (-pair[0], pair[1].id))
        return [
            Hit(passage, score, {"dense": score / 2, "lexical": 10 * score})
            for score, passage in (found[::-1] if mode == "dense" else found)[:k]
        ]


def triples(text: str) -> set[str]:
    return {text.casefold()[place : place + 3] for place in range(len(text) - 2)}


@contextmanager
def serving(settings: ServeSettings | None = None, indexes: Any = None) -> Iterator[str]:
    """The address of the application, served until the block ends."""
    config = uvicorn.Config(create_app(indexes or LetterIndex(), settings), port=0, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive(), "the application did not start"
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving() as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    """Open the page at a hash. In every test: nothing is asked of another host, nothing is thrown, and no content
    security policy is broken."""
    asked: list[str] = []
    wrong: list[str] = []
    contexts = []

    def visit(
        hash: str = "", *, at: str = address, routes: dict[str, Callable[[Route], None]] | None = None, **options: Any
    ) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1000, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text)
                if message.type in ("error", "warning") and "Failed to load resource" not in message.text
                else None
            ),
        )
        for pattern, answer in (routes or {}).items():
            page.route(f"**/{pattern}", answer)
        page.goto(f"{at}/{hash}")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert {urlsplit(url).hostname for url in asked} == {"127.0.0.1"}
    assert wrong == []


def hit(rank: int, text: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"p{rank}",
        "rank": rank,
        "score": 1 / rank,
        "parts": {},
        "lang": "en",
        "title": f"Title {rank}",
        "text": text,
        "metadata": {},
        "highlights": [],
        **fields,
    }


def answering(*hits: dict[str, Any]) -> Callable[[Route], None]:
    return lambda route: route.fulfill(
        json={"query": "", "lang": "en", "mode": "hybrid", "took_ms": 1, "hits": hits, "notices": []}
    )


def body(request: Request) -> dict[str, Any]:
    return dict(request.post_data_json or {})


def ids(page: Page, results: str = "#results") -> list[str]:
    return list(page.locator(f"{results} article").evaluate_all("all => all.map(one => one.dataset.id)"))


def ask(page: Page, question: str) -> None:
    page.get_by_label("Question", exact=True).fill(question)
    page.keyboard.press("Enter")


def test_start(visit: Visit) -> None:
    page = visit()
    expect(page.get_by_label("Question", exact=True)).to_be_focused()
    expect(page.locator("#welcome")).to_contain_text("9 passages in 5 languages")
    chips = page.locator(".chip[data-lang]")
    assert chips.evaluate_all("all => all.map(one => one.dataset.lang)") == ["en", "fi", "ar", "ja", "sw"]
    assert chips.nth(1).inner_text().split() == ["Suomi", "2"]
    expect(page.locator("#rerank")).to_have_count(0)


def test_search(visit: Visit) -> None:
    page = visit()
    ask(page, "Mlinzi wa mnara")
    card = page.locator("#results article").first
    expect(card.locator(".rank")).to_have_text("1")
    expect(card.get_by_role("heading")).to_have_text("Mnara")
    expect(card.locator(".badge")).to_have_text("Kiswahili")
    expect(card).to_have_attribute("lang", "sw")
    expect(card.locator(".text")).to_have_text(PASSAGES[2].text)
    expect(page.get_by_role("status")).to_contain_text("question read as")
    expect(page).to_have_title("Mlinzi wa mnara – interlingua")
    assert urlsplit(page.url).fragment == "q=Mlinzi+wa+mnara"
    parts = card.locator(".parts")
    expect(parts).to_be_hidden()
    card.get_by_role("button", name=re.compile("^Score")).hover()
    expect(parts).to_be_visible()
    assert re.fullmatch(r"dense [\d.]+ · lexical [\d.]+", parts.inner_text())


def test_language_chips_and_back(visit: Visit) -> None:
    page = visit("#q=the+lighthouse+kirjaan")
    expect(page.locator("#results article")).to_have_count(7)
    everything = ids(page)
    page.locator("[data-lang=fi]").click()
    expect(page.locator("[data-lang=fi]")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#results article")).to_have_count(1)
    page.locator("[data-lang=ar]").click()
    expect(page.locator("#results article")).to_have_count(2)
    assert {"light.fi", "light.ar"} == set(ids(page))
    assert urlsplit(page.url).fragment.endswith("langs=fi%2Car")
    page.go_back()
    expect(page.locator("#results article")).to_have_count(1)
    page.locator("#any-language").click()
    expect(page.locator("#results article")).to_have_count(7)
    assert ids(page) == everything


def test_results_in_the_language_of_the_question(visit: Visit) -> None:
    page = visit(f"#q={quote('majakanvartija kirjoitti kirjaan in the lighthouse')}&langs=en&lang=fi")
    expect(page.locator("#results article").first).to_be_visible()
    assert set(page.locator("#results article").evaluate_all("all => all.map(one => one.lang)")) == {"en"}
    ask(page, "Majakanvartija kirjoitti jokaisen myrskyn the book")
    page.locator("#same-language").click()
    expect(page.locator("[data-lang=en]")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#results article").first).to_have_attribute("lang", "fi")
    assert set(page.locator("#results article").evaluate_all("all => all.map(one => one.lang)")) == {"fi"}
    page.locator("[data-lang=en]").click()
    expect(page.locator("#same-language")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#results article").first).to_have_attribute("lang", "en")


def test_mode_switch(visit: Visit) -> None:
    page = visit("#q=the+lighthouse")
    expect(page.locator("#results article").first).to_have_attribute("data-id", "light.en")
    everything = ids(page)
    page.get_by_label("Dense").check()
    expect(page.locator("#results article").last).to_have_attribute("data-id", "light.en")
    assert ids(page) == everything[::-1]
    assert "mode=dense" in page.url
    page.go_back()
    expect(page.get_by_label("Hybrid")).to_be_checked()
    expect(page.locator("#results article").first).to_have_attribute("data-id", "light.en")


def test_rerank_where_the_server_can(visit: Visit) -> None:
    asked: list[dict[str, Any]] = []

    def answer(route: Route) -> None:
        asked.append(body(route.request))
        answering(hit(1, "text"))(route)

    about = {"passages": 1, "languages": {"en": 1}, "modes": ["hybrid", "dense"], "rerank": True, "model": "m"}
    page = visit("#q=a", routes={"search": answer, "info": lambda route: route.fulfill(json=about)})
    expect(page.locator("#results article")).to_have_count(1)  # what was asked first has been answered
    with page.expect_response("**/search"):
        page.get_by_label("Rerank").check()
    assert [one.get("rerank", False) for one in asked] == [False, True]
    assert "rerank=1" in page.url


def test_right_to_left(visit: Visit) -> None:
    page = visit(f"#q={quote('حارس المنارة the lighthouse')}")
    arabic, english = page.locator("#results article[lang=ar]"), page.locator("#results article[lang=en]").first
    direction = "one => getComputedStyle(one).direction"
    expect(arabic).to_have_count(1)
    for part in (arabic, arabic.locator("h2"), arabic.locator(".text")):  # though its title begins in Latin letters
        assert part.evaluate(direction) == "rtl"
    assert english.evaluate(direction) == "ltr"
    edge = "one => one.getBoundingClientRect().x"
    assert arabic.locator(".rank").evaluate(edge) > arabic.locator(".badge").evaluate(edge)
    assert english.locator(".rank").evaluate(edge) < english.locator(".badge").evaluate(edge)
    assert page.get_by_label("Question", exact=True).evaluate(direction) == "rtl"
    ask(page, "lighthouse")
    assert page.get_by_label("Question", exact=True).evaluate(direction) == "ltr"


def test_highlights_count_code_points(visit: Visit) -> None:
    text = "🎼 𝄞 clé: e\u0301 👩‍👩‍👧 灯台 book 🌊"
    words = ("𝄞", "e\u0301", "灯台", "book", "🌊")
    spans = [[text.index(word), text.index(word) + len(word)] for word in words]
    wrong = [[5, 5], [9, 3], [-4, 1], [len(text), len(text) + 3], [len(text) - 1, 10_000]]  # empty, turned, outside
    hits = [hit(rank, text, highlights=marked) for rank, marked in enumerate((spans[::-1], wrong, [[0, 3], [2, 7]]), 1)]
    page = visit("#q=a", routes={"search": answering(*hits)})
    marks = [page.locator("article").nth(place).locator("mark") for place in range(3)]
    expect(marks[0]).to_have_count(len(words))
    assert [mark.all_text_contents() for mark in marks] == [list(words), [text[0], text[-1]], [text[:7]]]
    assert page.locator(".text").all_text_contents() == [text] * 3


def test_hostile_text_stays_text(visit: Visit) -> None:
    hostile = hit(
        1,
        ATTACK,
        id=ATTACK,
        title=ATTACK,
        lang=f'en" onmouseover="{ATTACK}',
        highlights=[[0, 9]],
        metadata={"source": "javascript:window.pwned=1", ATTACK: ATTACK},
        parts={ATTACK: 1.0},
    )
    linked = hit(2, "text", metadata={"source": "https://example.org/a?b", "chunk": "2"}, score=None)
    page = visit(f"#q={quote(ATTACK)}", routes={"search": answering(hostile, linked)})
    card = page.locator("article").first
    expect(card.get_by_role("heading")).to_have_text(ATTACK)
    assert card.locator(".text").text_content() == ATTACK
    expect(page.get_by_label("Question", exact=True)).to_have_value(ATTACK)
    expect(card.locator("img, script, a")).to_have_count(0)
    expect(page.locator("article a")).to_have_attribute("href", "https://example.org/a?b")
    expect(page.locator("article").nth(1).locator(".foot-of-card")).to_contain_text("part 2")
    page.locator("#to-compare").click()
    expect(page.get_by_label("Question in one language")).to_have_value(ATTACK)
    assert page.evaluate("window.pwned") is None


def test_network_down_then_up(visit: Visit) -> None:
    page = visit()
    expect(page.locator(".chip").first).to_be_visible()
    page.route("**/search", lambda route: route.abort("connectionrefused"))
    ask(page, "the bridge")
    expect(page.get_by_role("alert")).to_contain_text("No answer")
    page.unroute("**/search")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#results article").first).to_be_visible()
    expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.parametrize(
    ("hash", "answer", "title", "text", "button"),
    [
        ("#q=a&mode=loud", None, "Not possible", "mode", "Search without filters"),
        ("#q=a", {"status": 500, "body": "<h1>proxy</h1>"}, "Something is wrong", "500", "Try again"),
        ("#q=a", {"status": 200, "body": "<h1>portal</h1>"}, "Something is wrong", "does not understand", "Try again"),
    ],
)
def test_errors(visit: Visit, hash: str, answer: dict[str, Any] | None, title: str, text: str, button: str) -> None:
    page = visit(hash, routes={"search": lambda route: route.fulfill(**answer)} if answer else None)
    expect(page.get_by_role("alert")).to_contain_text(title)
    expect(page.get_by_role("alert")).to_contain_text(text)
    page.unroute("**/search")
    page.get_by_role("button", name=button).click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing found")  # no passage has three letters of "a"


def test_busy_server_is_asked_again(visit: Visit) -> None:
    asked: list[int] = []

    def answer(route: Route) -> None:
        asked.append(1)
        if len(asked) == 7:
            return answering(hit(1, "text"))(route)
        body = json.dumps({"error": {"code": "busy", "message": "128 requests wait."}})
        return route.fulfill(status=503, headers={"Retry-After": "0"}, content_type="application/json", body=body)

    page = visit("#q=a", routes={"search": answer})
    expect(page.get_by_role("alert")).to_contain_text("128 requests wait.")
    assert len(asked) == 4
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#results article")).to_have_count(1)
    assert len(asked) == 7


def test_nothing_found(visit: Visit) -> None:
    page = visit("#q=bridge+crosses&langs=ja")
    expect(page.get_by_role("alert")).to_contain_text("Nothing found")
    page.get_by_role("button", name="Search every language").click()
    expect(page.locator("#results article").first).to_have_attribute("data-id", "bridge.en")


def test_a_question_overtaken_is_given_up(visit: Visit) -> None:
    held: list[Route] = []
    failed: list[str] = []

    def answer(route: Route) -> None:
        if body(route.request)["query"] == "slow":
            held.append(route)
        else:
            answering(hit(1, "fast answer"))(route)

    page = visit(routes={"search": answer})
    page.on("requestfailed", lambda request: failed.append(body(request)["query"]))
    with page.expect_request("**/search"):
        ask(page, "slow")
    expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
    ask(page, "fast")
    expect(page.locator(".text")).to_have_text("fast answer")
    expect(page.locator("#results")).not_to_have_attribute("aria-busy", "true")
    assert (len(held), failed) == (1, ["slow"])
    expect(page.get_by_role("alert")).to_be_empty()


def test_keyboard(visit: Visit) -> None:
    page = visit("#q=the+lighthouse")
    box, cards = page.get_by_label("Question", exact=True), page.locator("#results article")
    expect(cards.first).to_be_visible()
    page.locator("#to-search").focus()
    page.keyboard.press("/")
    expect(box).to_be_focused()
    expect(box).to_have_value("the lighthouse")  # the slash is not typed
    page.keyboard.press("ArrowDown")
    expect(cards.nth(0)).to_be_focused()
    for key, place in (("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0)):
        page.keyboard.press(key)
        expect(cards.nth(place)).to_be_focused()
    text = cards.first.locator(".text")
    cut = text.evaluate("one => one.clientHeight < one.scrollHeight")
    page.keyboard.press("Enter")
    expect(cards.first.get_by_role("button", name="Less")).to_be_visible()
    assert (cut, text.evaluate("one => one.clientHeight < one.scrollHeight")) == (True, False)
    page.keyboard.press("ArrowUp")
    expect(box).to_be_focused()
    page.keyboard.type("jk/")
    expect(box).to_have_value("jk/")
    page.keyboard.press("Escape")
    expect(box).to_have_value("")
    expect(cards).to_have_count(0)
    expect(page.locator("#welcome")).to_be_visible()


def test_compare(visit: Visit) -> None:
    page = visit("#view=compare")
    page.get_by_label("Question in one language").fill("the lighthouse keeper kirjaan")
    page.keyboard.press("Enter")
    second = page.get_by_label("The same question in another language")
    expect(second).to_be_focused()
    second.fill("Majakanvartija kirjoitti the book")
    page.keyboard.press("Enter")
    for side in ("a", "b"):
        expect(page.locator(f"#results-{side} article").first).to_be_visible()
    first, other = ids(page, "#results-a"), ids(page, "#results-b")
    both, depth = set(first) & set(other), max(len(first), len(other))
    assert both
    assert first != other
    expect(page.locator("#shared-count")).to_have_text(f"{len(both)} of {depth}")
    expect(page.locator("#shared-percent")).to_have_text(f"{round(100 * len(both) / depth)}%")
    expect(page.locator("#rbo")).to_have_text(f"{rank_biased_overlap(first, other):.2f}")
    expect(page.locator("#links path")).to_have_count(len(both))
    for id in sorted(both):
        mark = page.locator(f"#results-a [data-id='{id}'] .also")
        expect(mark).to_have_text(f"also at {other.index(id) + 1}")
    mark.click()
    expect(page.locator(f"#results-b [data-id='{id}']")).to_be_focused()
    page.mouse.move(0, 0)  # the focus scrolls: another card may lie under the pointer, and is lit, too
    expect(page.locator("#results-a .lit .also")).to_have_text(mark.inner_text())
    expect(page.locator("#links path.lit")).to_have_count(1)
    page.get_by_label("Question in one language").focus()
    expect(page.locator("#links path.lit")).to_have_count(0)
    page.locator("#results-a article").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#results-b article").first).to_be_focused()
    page.go_back()
    expect(page.locator("#comparison")).to_be_hidden()


def rank_biased_overlap(first: list[str], second: list[str], p: float = 0.9) -> float:
    """The infinite sum of Webber et al., where agreement goes on as last seen."""
    short, long = sorted((first, second), key=len)
    if not short:
        return float(not long)
    total = agreement = 0.0
    for depth in range(1, 1000):
        if depth <= len(long):
            seen = len(set(short[:depth]) & set(long[:depth]))
            unseen = max(0, depth - len(short)) * len(set(short) & set(long[: len(short)])) / len(short)
            agreement = (seen + unseen) / depth
        total += (1 - p) * p ** (depth - 1) * agreement
    return total


def test_rank_biased_overlap(visit: Visit) -> None:
    cases = ["abc abc", "abc xyz", "abcdefghij jihgfedcba", "ab abcdefg", "xyabc ac", "a bcdea", "abcde "]
    pairs = [[list(first), list(second)] for first, second in (case.split(" ") for case in cases)]
    found = visit().evaluate(
        """async pairs => {
        const { rankBiasedOverlap } = await import("./overlap.js");
        return pairs.map(pair => rankBiasedOverlap(...pair));
    }""",
        pairs,
    )
    assert found == pytest.approx([rank_biased_overlap(first, second) for first, second in pairs])
    assert found[:2] == pytest.approx([1, 0])


@pytest.mark.parametrize("hash", ["", "#q=the+lighthouse+{word}", "#view=compare&a=the+{word}&b=the", "#q=z&mode=loud"])
def test_phone_width(visit: Visit, hash: str) -> None:
    long = hit(1, "w" * 3000, title="t" * 300, metadata={"source": "s" * 300}, parts={"dense": 1.0})
    page = visit(hash.format(word="w" * 300), viewport={"width": 320, "height": 640}, is_mobile=True, has_touch=True)
    expect(page.locator(".chip").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    page.route("**/search", answering(long))
    page.get_by_role("searchbox").first.press("Enter")
    if hash:
        expect(page.locator(".text").first).to_have_text("w" * 3000)
    assert page.evaluate("document.documentElement.scrollWidth") == 320


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(visit: Visit, scheme: Any) -> None:
    page = visit("#view=compare&a=the+lighthouse&b=the+book&langs=en", color_scheme=scheme)
    expect(page.locator(".also").first).to_be_visible()
    brightness = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert brightness < 0.05 if scheme == "dark" else brightness > 0.9
    for selector in (
        "body",
        "nav a",
        "h2",
        ".text",
        "mark",
        ".badge",
        ".chip",
        ".chip[aria-pressed=true]",
        ".count",
        ".modes span",
        ".modes :checked + span",
        ".also",
        ".asked",
        ".overlap p",
        ".summary",
        ".foot",
        "#compare-form button",
        "#compare-form input",
    ):
        ink, paper = page.locator(selector).first.evaluate("""one => {
            let back = one;
            while (getComputedStyle(back).backgroundColor === "rgba(0, 0, 0, 0)") back = back.parentElement;
            return [getComputedStyle(one).color, getComputedStyle(back).backgroundColor];
        }""")
        dark, bright = sorted((luminance(ink), luminance(paper)))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, (selector, ink, paper)


def luminance(color: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("motion", "moves"), [("no-preference", True), ("reduce", False)])
def test_reduced_motion(visit: Visit, motion: Any, moves: bool) -> None:
    card = visit("#q=the+lighthouse", reduced_motion=motion).locator(".card").first
    expect(card).to_be_visible()
    assert (card.evaluate("one => getComputedStyle(one).animationName") != "none") == moves


def test_more_results(visit: Visit) -> None:
    page = visit("#q=the+lighthouse&k=2")
    page.get_by_role("button", name="More results").click()
    expect(page.locator("#results article").nth(2)).to_be_focused()
    expect(page.locator("#results article")).to_have_count(5)
    expect(page.locator("#more-results")).to_be_hidden()


def test_token_for_reading(visit: Visit) -> None:
    with serving(ServeSettings(token="write", read_token="read")) as address:
        page = visit("#q=the+lighthouse", at=address)
        no_header = "“wrong”"  # what is pasted may hold anything
        for token, said in ((no_header, "does not know this token"), ("wrong", "know this token"), ("read", "")):
            page.get_by_label("Token").fill(token)
            page.keyboard.press("Enter")
            expect(page.get_by_role("alert")).to_contain_text(said)
        expect(page.locator("#results article").first).to_be_visible()
        expect(page.locator("[data-lang=fi]")).to_be_visible()


def test_one_result_a_document_and_more_from_it(visit: Visit) -> None:
    asked: list[dict[str, Any]] = []

    def answer(route: Route) -> None:
        asked.append(body(route.request))
        first = hit(1, "first", source="a.md", group="a.md", more=2)
        every = [hit(rank, text, source="a.md") for rank, text in enumerate(("first", "second", "third"), 1)]
        row = hit(4, "other", source="faq.csv", group="7", more=3)  # a row: its further passages are in its document
        hits = [first, row] if "group_by" in asked[-1] else every
        answering(*hits)(route)

    about = {"passages": 9, "languages": {"en": 9}, "modes": ["hybrid"], "rerank": False, "model": "m"}
    routes = {"search": answer, "info": lambda route: route.fulfill(json={**about, "fields": ["source"]})}
    page = visit("#q=a", routes=routes)
    expect(page.locator("#results article")).to_have_count(3)
    page.get_by_label("One per document").check()
    button = page.get_by_role("button", name="2 more from this document")
    button.click()
    expect(page.locator("#results > li").first.locator(".further .text")).to_have_text(["second", "third"])
    assert "documents=1" in page.url
    assert [one.get("group_by") for one in asked] == [None, "document", None]
    assert (asked[2]["where"], asked[2]["k"]) == ({"all": [{"source": ["a.md"]}]}, 3)
    cards = page.locator("#results article")
    page.keyboard.press("Escape")
    for place in range(4):  # through the further ones, and on
        page.keyboard.press("ArrowDown" if not place else "j")
        expect(cards.nth(place)).to_be_focused()
    page.get_by_role("button", name="Less from this document").click()
    expect(page.locator(".further")).to_be_hidden()
    cards.first.focus()
    page.keyboard.press("j")
    expect(cards.nth(3)).to_be_focused()
    page.keyboard.press("k")
    expect(cards.first).to_be_focused()
    assert len(asked) == 3


def test_the_text_around_a_passage(visit: Visit) -> None:
    asked: list[str] = []
    parts = [f"part {number} {ATTACK}" for number in range(1, 8)]

    def document(route: Route) -> None:
        asked.append(route.request.url.partition("/documents/")[2])
        around = int(asked[-1].rpartition("=")[2])
        near = [
            {"id": f"a/b.md#{number}", "lang": "ar" if number == 3 else "en", "part": part}
            for number, part in enumerate(parts, 1)
            if abs(number - 4) <= around
        ]
        route.fulfill(json={"name": "a/b.md", "source": "docs", "position": min(around, 3), "passages": near})

    long = "the keeper wrote every storm into a book. " * 60
    one = hit(1, long, id="a/b.md#4", source="docs", metadata={"source": "docs", "chunk": "4"}, highlights=[[4, 10]])
    twin = hit(2, "alone", id="b", source="", same=["docs:c", "d"], repeated=7)
    page = visit("#q=a", routes={"search": answering(one, twin), "documents/**": document})
    card = page.locator("#results article").first
    expect(page.locator("#results article").nth(1).get_by_role("button", name="Text around it")).to_have_count(0)
    expect(page.locator("#results article").nth(1).locator(".same")).to_have_text("also in docs:c, d, …")
    around = card.locator(".around p")
    expect(card.get_by_role("button", name="Whole text")).to_be_visible()
    button = card.get_by_role("button", name="Text around it")
    button.focus()
    page.keyboard.press("Enter")
    expect(around).to_have_text([parts[1], parts[2], parts[4], parts[5]])
    expect(around.nth(1)).to_have_attribute("dir", "rtl")
    expect(card.locator("mark")).to_have_text("keeper")
    text = card.locator(".text")
    assert text.evaluate("one => one.scrollHeight <= one.clientHeight + 2")
    less = card.get_by_role("button", name="Less")
    expect(less).to_be_focused()
    expect(less).to_have_attribute("aria-expanded", "true")
    card.get_by_role("button", name="Whole text").click()
    expect(around).to_have_count(6)
    expect(card.get_by_role("button", name="Whole text")).to_have_count(0)
    less.click()
    expect(around).to_have_count(0)
    assert asked == ["docs%3Aa%2Fb.md%234?around=2", "docs%3Aa%2Fb.md%234?around=500"]
    assert page.evaluate("window.pwned") is None


def test_the_text_around_a_passage_of_one_of_several_indexes(visit: Visit) -> None:
    asked: list[str] = []

    def refused(route: Route) -> None:
        asked.append(urlsplit(route.request.url).path)
        route.fulfill(status=404, json={"error": {"code": "not_found", "message": "no passage has this id."}})

    one = hit(1, "text", id="a.md#4", index="faq", source="a.md", metadata={"source": "a.md", "chunk": "4"})
    page = visit("#q=a", routes={"search": answering(one), "documents/**": refused})
    page.get_by_role("button", name="Text around it").click()
    expect(page.get_by_role("alert")).to_contain_text("no passage has this id.")
    expect(page.get_by_role("button", name="Text around it")).to_be_enabled()
    assert asked == ["/indexes/faq/documents/a.md%234"]


def test_the_text_around_a_passage_after_a_failure(visit: Visit) -> None:
    near = [{"id": "a.md#3", "lang": "en", "part": "before"}, {"id": "a.md#4", "lang": "en", "part": "text"}]
    answers = iter([lambda route: route.abort("connectionrefused"), None])

    def document(route: Route) -> None:
        fails = next(answers)
        if fails:
            fails(route)
        else:
            route.fulfill(json={"name": "a.md", "source": "a.md", "position": 1, "passages": near})

    one = hit(1, "text", id="a.md#4", source="a.md", metadata={"source": "a.md", "chunk": "4"})
    page = visit("#q=a", routes={"search": answering(one), "documents/**": document})
    page.get_by_role("button", name="Text around it").click()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#results .around p")).to_have_text(["before"])
    expect(page.get_by_role("alert")).to_be_empty()


def test_a_question_that_is_typed_and_not_sent_stays(visit: Visit) -> None:
    page = visit("#q=the+lighthouse")
    box = page.get_by_label("Question", exact=True)
    expect(page.locator("#results article").first).to_be_visible()
    box.fill("another question")
    page.locator(".chip[data-lang=fi]").click()
    expect(page.locator(".chip[data-lang=fi]")).to_have_attribute("aria-pressed", "true")
    expect(box).to_have_value("another question")
    page.keyboard.press("Escape")
    expect(box).to_be_focused()
    page.evaluate("location.hash = 'q=a+third'")
    expect(box).to_have_value("a third")


def test_the_most_frequent_values_come_first(visit: Visit) -> None:
    script = "async ([counts, chosen]) => (await import('/facets.js')).worthShowing(counts, chosen)"
    counts = {str(year): year - 2000 for year in range(2001, 2025)}  # as keys, numbers are in their own order
    shown = visit().evaluate(script, [counts, ["2003"]])
    assert shown == [[str(year), year - 2000] for year in (*range(2024, 2016, -1), 2003)]


def test_chips_of_metadata(visit: Visit) -> None:
    asked: list[dict[str, Any]] = []
    facets = {"topic": {"storm": 3, ATTACK: 1}, "number": {"1": 1, "2": 1}}

    def answer(route: Route) -> None:
        asked.append(body(route.request))
        found = {"query": "", "lang": "en", "mode": "hybrid", "took_ms": 1, "hits": [hit(1, "t")], "notices": []}
        route.fulfill(json={**found, "facets": facets})

    about = {"passages": 9, "languages": {"en": 9}, "modes": ["hybrid"], "rerank": False, "model": "m"}
    routes = {
        "search": answer,
        "info": lambda route: route.fulfill(json={**about, "fields": ["chunk", "number", "source", "topic"]}),
    }
    page = visit("#q=a", routes=routes)
    chips = page.locator("#facets .chip")
    expect(chips).to_have_count(2)
    assert asked[0]["facets"] == ["number", "topic"]
    for place in (0, 1):
        chips.nth(place).click()
        expect(chips.nth(place)).to_have_attribute("aria-pressed", "true")
    assert asked[2]["where"] == {"all": [{"topic": ["storm", ATTACK]}]}
    chips.nth(0).click()
    expect(chips.nth(0)).to_have_attribute("aria-pressed", "false")
    page.go_back()
    expect(chips.nth(0)).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("window.pwned") is None
    page.locator("#to-compare").click()
    expect(chips).to_have_count(0)


def test_the_reader_chooses_among_indexes(visit: Visit) -> None:
    light = [one for one in PASSAGES if one.id.startswith("light")]
    others = LetterIndex([one for one in PASSAGES if one not in light])
    others.fields = ()  # type: ignore[misc,assignment]
    with serving(indexes={"lights": LetterIndex(light), "others": others}) as several:
        page = visit("#q=the+storm", at=several)
        chips = page.locator(".indexes .chip")
        expect(chips).to_have_text(["All collections", "lights5", "others4"])
        assert chips.evaluate_all("all => all.map(one => one.getAttribute('aria-pressed'))") == [
            "true",
            "false",
            "false",
        ]
        stranger = page.locator("#results article", has_text="without a language")
        expect(stranger.locator(".source")).to_contain_text("others")
        assert {"light.en", "unknown"} <= set(ids(page))
        with page.expect_request("**/search") as asked:
            chips.nth(2).click()
        assert body(asked.value)["indexes"] == ["others"]
        expect(page.locator("#results article[data-id='light.en']")).to_have_count(0)
        assert "indexes=others" in page.url
        swahili = page.locator("[data-lang=sw]")
        expect(swahili).to_be_hidden()  # in no passage of this index
        expect(page.locator("[data-lang=fi] .count")).to_have_text("1")
        chips.nth(1).click()
        expect(swahili).to_be_visible()
        swahili.click()
        assert "langs=sw" in page.url
        chips.nth(1).click()  # away again, and the language with it
        expect(swahili).to_be_hidden()
        assert "langs" not in page.url
        chips.nth(0).click()
        expect(page.locator("#results article[data-id='light.en']")).to_have_count(1)
        assert "indexes" not in page.url
        page = visit("#q=the+storm&indexes=gone", at=several)
        page.get_by_role("button", name="Search without filters").click()
        expect(page.locator("#results article").first).to_be_visible()
    page = visit("#q=the+storm")
    expect(page.locator("#results article").first).to_be_visible()
    expect(page.locator(".indexes")).to_have_count(0)


def test_the_page_speaks_the_language_of_its_reader(visit: Visit) -> None:
    page = visit("#q=the+lighthouse", locale="ar-EG")
    assert page.evaluate("[document.documentElement.lang, document.documentElement.dir]") == ["ar", "rtl"]
    expect(page.get_by_role("button", name="بحث", exact=True)).to_be_visible()
    expect(page.locator("#summary")).to_contain_text("عدد المقاطع")
    button = page.locator("#search-form button").bounding_box()
    box = page.locator("#question").bounding_box()
    assert button is not None
    assert box is not None
    assert button["x"] < box["x"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#page-language").select_option("fi")
    expect(page.get_by_role("button", name="Hae", exact=True)).to_be_visible()
    assert page.evaluate("[document.documentElement.lang, document.documentElement.dir]") == ["fi", "ltr"]
    expect(page.locator("#results article").first).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Hae", exact=True)).to_be_visible()
    page = visit(locale="cs-CZ")
    expect(page.get_by_role("button", name="Search", exact=True)).to_be_visible()


def test_an_address_nobody_made(visit: Visit) -> None:
    page = visit("#q=the+lighthouse&k=-3&view=moon&langs=xx&rerank=7&%E0%A4%A&same")
    chip = page.locator("[data-lang=xx]")
    expect(chip).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("alert")).to_contain_text("Nothing found")
    chip.click()
    expect(page.locator("#results article")).to_have_count(5)
