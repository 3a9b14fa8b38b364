// What the page computes, without a browser: `node --test`, with as much of a document as the modules ask for.
import assert from "node:assert/strict";
import { test } from "node:test";

class Element {
  constructor(name) {
    Object.assign(this, { name, children: [], attributes: {}, listeners: {} });
  }
  replaceChildren(...children) { this.children = children; }
  append(...children) { this.children.push(...children.filter((child) => child !== "")); }
  setAttribute(name, value) { this.attributes[name] = value; }
  getAttribute(name) { return this.attributes[name] ?? null; }
  addEventListener(name, run) { this.listeners[name] = run; }
  set dir(value) { this.attributes.dir = value; }
  get textContent() { return this.children.map((child) => child.textContent ?? child).join(""); }
  set textContent(text) { this.children = text ? [text] : []; }
  all(name) {
    const below = this.children.flatMap((child) => (child instanceof Element ? [child, ...child.all("")] : []));
    return below.filter((one) => !name || one.name === name || one.className === name);
  }
}
const events = [];
globalThis.document = { createElement: (name) => new Element(name), createDocumentFragment: () => new Element("") };
globalThis.window = { dispatchEvent: (event) => events.push(event.type) };
globalThis.HashChangeEvent = class { constructor(type) { this.type = type; } };
globalThis.location = { hash: "" };
const kept = new Map();
globalThis.sessionStorage = { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value) };

const { ask, format, go, read } = await import("./address.js");
const { ServiceError, documentOf, info, search, useToken } = await import("./api.js");
const { facetKeys, worthShowing } = await import("./facets.js");
const { choice, contents, indexChips } = await import("./indexes.js");
const { badge, card } = await import("./card.js");
const { highlighted } = await import("./highlight.js");
const { MESSAGES, chosenLanguage, say } = await import("./messages.js");
const { direction, englishName, isolated, nativeName } = await import("./languages.js");
const { rankBiasedOverlap, shared } = await import("./overlap.js");

const PLAIN = { view: "search", q: "", a: "", b: "", mode: "", indexes: [], langs: [], same: false, rerank: false, documents: false, where: {}, k: 10 };

test("an address says what is asked, and nothing more than differs from the usual", () => {
  assert.deepEqual(read(""), PLAIN);
  assert.equal(format(PLAIN), "#");
  for (const [state, hash] of [
    [{ q: "Mlinzi wa mnara" }, "#q=Mlinzi+wa+mnara"],
    [{ q: "a&b=c#d é 灯台", langs: ["fi", "ar"], k: 30 }, null],
    [{ q: "a", documents: true, where: { topic: ["storm", "a,b=c"], "k&y": [""] } }, null],
    [{ q: "a", indexes: ["faq", "hand.book"] }, "#q=a&indexes=faq%2Chand.book"],
    [{ view: "compare", a: "one", b: "uno", mode: "dense", same: true, rerank: true }, null],
  ]) {
    const made = format({ ...PLAIN, ...state });
    assert.deepEqual(read(made), { ...PLAIN, ...state });
    if (hash) assert.equal(made, hash);
  }
});

test("an address nobody made is read as far as it makes sense", () => {
  assert.deepEqual(read("#q=+the+&k=-3&view=moon&langs=xx,,&rerank=7&%E0%A4%A&same"), { ...PLAIN, q: "the", langs: ["xx"], k: 1 });
  for (const where of ["{", "5", "null", '"a"', '["a"]', '{"a": "b"}', '{"a": []}', '{"a": [1]}']) assert.deepEqual(read(`#where=${encodeURIComponent(where)}`).where, {}, where);
  assert.deepEqual(["9999", "x", "", "7.9", "1e3"].map((k) => read(`#k=${k}`).k), [100, 10, 10, 7, 1]);
});

test("a change goes into the address; a new question begins with the first results", () => {
  location.hash = "#q=a&k=30&langs=fi";
  go({ langs: [] });
  assert.equal(location.hash, "#q=a&k=30");
  ask({ q: "b" });
  assert.equal(location.hash, "#q=b");
  assert.deepEqual(events, []);
  go({}); // the same again: nothing in the address changes, and the page is to be drawn all the same
  assert.deepEqual(events, ["hashchange"]);
});

test("highlights count code points, in order, merged, and never change the text", () => {
  const text = "🎼 𝄞 clé: e\u0301 👩‍👩‍👧 灯台 book 🌊";
  const at = (word) => {
    const start = [...text.slice(0, text.indexOf(word))].length;
    return [start, start + [...word].length];
  };
  const length = [...text].length;
  for (const [spans, marked] of [
    [["𝄞", "e\u0301", "灯台", "book", "🌊"].map(at).reverse(), ["𝄞", "e\u0301", "灯台", "book", "🌊"]],
    [[[5, 5], [9, 3], [-4, 1], [length, length + 3], [length - 1, 10_000]], ["🎼", "🌊"]],
    [[[0, 3], [2, 7]], [[...text].slice(0, 7).join("")]],
    [[[0.5, 2], ["0", 3], [null, 4]], []],
    [[], []], [null, []], [undefined, []],
  ]) {
    const made = highlighted(text, spans);
    assert.equal(made.textContent, text);
    assert.deepEqual(made.all("mark").map((mark) => mark.textContent), marked);
  }
});

test("languages have their own names and directions; what is no language stays as it is", () => {
  assert.deepEqual(["fi", "ar", "sw", "", "xx-not-a-tag-at-all"].map(nativeName), ["Suomi", "العربية", "Kiswahili", "No language", "xx-not-a-tag-at-all"]);
  assert.deepEqual(["fi", "", "q!"].map(englishName), ["Finnish", "", "q!"]);
  assert.deepEqual(["ar", "he", "ur", "dv", "ks-Deva", "az-Arab", "en", "ja"].map(direction), ["rtl", "rtl", "rtl", "rtl", "ltr", "rtl", "ltr", "ltr"]);
  assert.deepEqual(["", undefined, "q!", "x\" dir=\"rtl"].map(direction), ["auto", "auto", "auto", "auto"]);
  assert.equal(isolated("a"), "\u2068a\u2069");
});

test("the page says the same in every language, with the same names in it and its own plurals", () => {
  assert.deepEqual(Object.keys(MESSAGES).sort(), ["ar", "bn", "de", "en", "es", "fi", "fr", "hi", "id", "ja", "ko", "pl", "pt", "ru", "sw", "te", "th", "tr", "vi", "zh"]);
  const forms = (message) => (typeof message === "string" ? [message] : Object.values(message));
  const names = (text) => [...text.matchAll(/\{\w+\}/g)].map(([name]) => name).sort();
  for (const [lang, messages] of Object.entries(MESSAGES)) {
    assert.deepEqual(Object.keys(messages).sort(), Object.keys(MESSAGES.en).sort(), lang);
    for (const [key, message] of Object.entries(messages)) {
      for (const form of forms(message)) {
        assert.ok(form.trim(), `${lang} ${key}`);
        assert.deepEqual(names(form), names(forms(MESSAGES.en[key])[0]), `${lang} ${key}`);
      }
      if (typeof message !== "string") assert.ok(message.other, `${lang} ${key}`);
    }
  }
  assert.deepEqual([["fi-FI", "en"], ["cs", "AR-eg", "en"], ["cs"], ["zh-Hans-CN"], [], [null, "sw"], ["constructor"]].map(chosenLanguage), ["fi", "ar", "en", "zh", "en", "sw", "en"]);
  assert.deepEqual([1, 3, 5, 1200].map((n) => say("passages", { n }, "ru")), ["1 фрагмент", "3 фрагмента", "5 фрагментов", "1\u00a0200 фрагментов"]);
  assert.deepEqual([1, 3, 5, 22].map((n) => say("languages", { n }, "pl")), ["1 język", "3 języki", "5 języków", "22 języki"]);
  assert.equal(say("read", { lang: "{n} $& x" }, "en"), "question read as {n} $& x");
});

test("a card is text in the direction of its language, and only a web address is a link", () => {
  const attack = "<img src=x onerror='window.pwned=1'>";
  const hit = { id: attack, rank: 1, score: 0.12345, parts: { dense: 2, [attack]: null }, lang: "ar", title: attack, text: attack, metadata: { source: "javascript:alert(1)", chunk: "2", kind: attack }, highlights: [[0, 4]] };
  const made = card(hit);
  const [article] = made.all("article");
  assert.deepEqual([article.attributes.dir, article.attributes.lang, article.attributes["data-id"]], ["rtl", "ar", attack]);
  assert.deepEqual(made.all("h2").map((one) => one.textContent), [attack]);
  assert.deepEqual(made.all("text").map((one) => one.textContent), [attack]);
  assert.deepEqual(made.all("a"), []);
  assert.equal(made.all("source")[0].textContent, `javascript:alert(1)part 2kind: ${attack}`);
  assert.ok(made.all("source")[0].children.every((part) => part.attributes.dir === "auto"));
  assert.equal(made.all("parts")[0].textContent, `dense 2.00 · ${attack} –`);
  const button = made.all("button").at(-1);
  assert.equal(button.textContent, "0.123");
  for (const turned of ["true", "false"]) {
    button.listeners.click({ currentTarget: button });
    assert.equal(button.attributes["aria-expanded"], turned);
  }
  const places = ["https://example.org/a?b", "HTTP://example.org", "ftp://example.org", "https://", "//example.org", "data:text/html,a"];
  assert.deepEqual(places.map((source) => card({ ...hit, metadata: { source } }).all("a").map((one) => one.attributes.href)), [["https://example.org/a?b"], ["HTTP://example.org"], [], [], [], []]);
  const [named] = card({ ...hit, metadata: { source: "a book", url: "https://example.org" } }).all("a");
  assert.deepEqual([named.textContent, named.attributes.href, named.attributes.rel], ["a book", "https://example.org", "noopener noreferrer"]);
  assert.deepEqual(card({ ...hit, title: "", lang: "", metadata: null, parts: {} }).all("article").map((one) => [one.attributes.dir, one.attributes.lang]), [["auto", undefined]]);
  assert.deepEqual([badge("ar").attributes.dir, badge("").attributes.dir, badge("").textContent], ["rtl", "ltr", "No language"]);
});

/** The sum of Webber et al. written out: beyond what is seen, agreement goes on as last seen. */
function summed(first, second, p = 0.9) {
  const [short, long] = [first, second].sort((one, other) => one.length - other.length);
  const common = (n, m) => short.slice(0, n).filter((id) => long.slice(0, m).includes(id)).length;
  let [total, agreement] = [0, 0];
  for (let depth = 1; depth < 1000; depth++) {
    if (depth <= long.length) {
      agreement = (common(depth, depth) + Math.max(0, depth - short.length) * common(short.length, short.length) / short.length) / depth;
    }
    total += (1 - p) * p ** (depth - 1) * agreement;
  }
  return total;
}

test("two rankings: what they share, and their rank-biased overlap", () => {
  assert.deepEqual(shared(["a", "b", "c"], ["c", "x", "a"]), [[0, 2], [2, 0]]);
  assert.deepEqual(shared([], ["a"]), []);
  assert.deepEqual([["abc", "abc"], ["abc", "xyz"], ["", ""], ["abc", ""]].map(([one, other]) => Number(rankBiasedOverlap([...one], [...other]).toFixed(12))), [1, 0, 1, 0]);
  for (const pair of ["abcdefghij jihgfedcba", "ab abcdefg", "xyabc ac", "a bcdea", "abcdef fabced"]) {
    const [first, second] = pair.split(" ").map((one) => [...one]);
    assert.ok(Math.abs(rankBiasedOverlap(first, second) - summed(first, second)) < 1e-9, pair);
    assert.equal(rankBiasedOverlap(first, second), rankBiasedOverlap(second, first));
  }
});

/** `fetch` that gives these answers, one after the other; what was asked of it. */
function answering(...answers) {
  const asked = [];
  globalThis.fetch = async (path, options) => {
    asked.push({ path, ...options, body: options.body && JSON.parse(options.body) });
    const answer = answers[Math.min(asked.length, answers.length) - 1];
    if (answer instanceof Error) throw answer;
    return answer.clone();
  };
  return asked;
}
const json = (body, status = 200, headers = {}) => new Response(JSON.stringify(body), { status, headers });
const busy = (wait) => json({ error: { message: "128 requests wait." } }, 503, wait === undefined ? {} : { "Retry-After": wait });
const never = new AbortController().signal;

test("a document is asked for by source and id, in its index", async () => {
  const asked = answering(json({ passages: [] }));
  for (const hit of [{ id: "a b/c.md#4", source: "a b/c.md" }, { id: "7", source: "fi.jsonl" }, { id: "x?y", source: "" }, { id: "7", index: "faq" }]) await documentOf(hit, 2);
  const places = ["documents/a%20b%2Fc.md%234", "documents/fi.jsonl%3A7", "documents/x%3Fy", "indexes/faq/documents/7"];
  assert.deepEqual(asked.map((one) => one.path), places.map((place) => `./${place}?around=2`));
});

test("a question is sent as the address says", async () => {
  const asked = answering(json({ hits: [] }));
  await search("a", PLAIN, never);
  await search("b", { ...PLAIN, mode: "dense", langs: ["fi"], same: true, rerank: true, k: 20 }, never);
  await search("c", { ...PLAIN, documents: true, where: { any: ["x", "y"], topic: ["z"] } }, never, () => {}, ["topic"]);
  await search("d", { ...PLAIN, indexes: ["faq"] }, never);
  for (const one of asked) assert.deepEqual([one.path, one.method, one.cache], ["./search", "POST", "no-store"]);
  assert.deepEqual(asked.map((one) => one.body), [
    { query: "a", k: 10, highlight: true, distinct: true, langs: null, lang_of_results: "any" },
    { query: "b", k: 20, highlight: true, distinct: true, langs: ["fi"], lang_of_results: "same", mode: "dense", rerank: true },
    { query: "c", k: 10, highlight: true, distinct: true, langs: null, lang_of_results: "any", group_by: "document", where: { all: [{ any: ["x", "y"] }, { topic: ["z"] }] }, facets: ["topic"] },
    { query: "d", k: 10, highlight: true, distinct: true, langs: null, lang_of_results: "any", indexes: ["faq"] },
  ]);
});

test("another choice of indexes takes languages and metadata away that are in none of them", () => {
  const faq = { name: "faq", passages: 3, languages: { en: 2, fi: 1 }, fields: ["kind"] };
  const news = { name: "news", passages: 1, languages: { en: 1 }, fields: ["topic", "kind"] };
  const about = { languages: { en: 3, fi: 1 }, fields: ["kind", "topic"], indexes: [faq, news] };
  assert.deepEqual(contents(about), { languages: about.languages, fields: about.fields });
  assert.deepEqual(contents(about, ["gone"]), contents(about));
  assert.deepEqual(contents(about, ["faq"]), { languages: faq.languages, fields: ["kind"] });
  assert.deepEqual(contents(about, ["news", "faq"]), contents(about));
  const state = { langs: ["fi", "en"], where: { topic: ["a"], kind: ["b"] } };
  assert.deepEqual(choice(state, about, ["news"]), { indexes: ["news"], langs: ["en"], where: state.where });
  assert.deepEqual(choice(state, about, ["faq"]), { indexes: ["faq"], langs: ["fi", "en"], where: { kind: ["b"] } });
  assert.equal(indexChips({ languages: {} }), null);
  assert.equal(indexChips({ languages: {}, indexes: [faq] }), null);
});

test("values are shown where they divide the passages, and those chosen always", () => {
  assert.deepEqual(facetKeys({ where: { source: ["a"] } }, ["chunk", "source", "topic", "url", "year"]), ["source", "topic", "year"]);
  assert.deepEqual(facetKeys({ where: { gone: ["a"] } }, []), []);
  assert.deepEqual(worthShowing({ storm: 3, sea: 1 }, []), [["storm", 3], ["sea", 1]]);
  assert.deepEqual(worthShowing({ storm: 3 }, []), []);
  assert.deepEqual(worthShowing({ a: 1, b: 1 }, ["b", "c"]), [["c", 0], ["b", 1]]);
  assert.deepEqual(worthShowing({ a: 2, b: 1 }, ["constructor"]), [["constructor", 0], ["a", 2], ["b", 1]]);
  const all = Object.fromEntries(Array.from({ length: 50 }, (_, place) => [`v${place}`, 60 - place]));
  assert.deepEqual(worthShowing(all, ["rare"])[0], ["rare", null]); // more than are counted
  const many = Object.fromEntries(Array.from({ length: 20 }, (_, place) => [`v${place}`, 20 - place]));
  assert.deepEqual(worthShowing(many, ["v15"]).map(([value]) => value), ["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v15"]);
});

test("a busy server is asked again three times, when it says so", async () => {
  const waited = [];
  let asked = answering(busy("0"), busy("0"), json({ hits: ["found"] }));
  assert.deepEqual(await search("a", PLAIN, never, (seconds) => waited.push(seconds)), { hits: ["found"] });
  assert.deepEqual([asked.length, waited], [3, [0, 0]]);
  asked = answering(busy("0"));
  await assert.rejects(search("a", PLAIN, never), { kind: "busy", message: "128 requests wait." });
  assert.equal(asked.length, 4);
  for (const [wait, seconds] of [["7", 7], ["9999", 30], ["-1", 2], ["soon", 2], [undefined, 2]]) {
    answering(busy(wait));
    await assert.rejects(info(), { kind: "busy", seconds });
  }
});

test("a question overtaken is given up, also while it waits", async () => {
  const overtaken = new AbortController();
  const asked = answering(busy("30"));
  await assert.rejects(search("a", PLAIN, overtaken.signal, () => setImmediate(() => overtaken.abort())), { name: "AbortError" });
  assert.equal(asked.length, 1);
  answering(new DOMException("", "AbortError"));
  await assert.rejects(info(), { name: "AbortError" });
});

test("every refusal and failure has its kind and words", async () => {
  const error = (status, body) => [status, typeof body === "string" ? new Response(body, { status }) : json(body, status)];
  for (const [[, answer], kind, words] of [
    [error(422, { error: { message: "k: too large" } }), "refused", /^k: too large$/],
    [error(404, "<h1>no</h1>"), "refused", /404/],
    [error(500, "<h1>proxy</h1>"), "broken", /does not understand \(500\)|understand \(500\)/],
    [error(200, "<h1>portal</h1>"), "broken", /understand \(200\)/],
    [error(200, "null"), "broken", /understand/],
    [error(401, {}), "locked", /asks for a token/],
  ]) {
    answering(answer);
    await assert.rejects(info(), (raised) => raised instanceof ServiceError && raised.kind === kind && words.test(raised.message));
  }
  answering(new TypeError("Failed to fetch"));
  await assert.rejects(info(), { kind: "network" });
});

test("the token of a reader is sent with every question", async () => {
  useToken("secret");
  const asked = answering(json({}), json({}, 401));
  await info();
  assert.equal(asked[0].headers.Authorization, "Bearer secret");
  await assert.rejects(search("a", PLAIN, never), { kind: "locked", message: /does not know this token/ });
  assert.deepEqual(asked[1].headers, { "Content-Type": "application/json", Authorization: "Bearer secret" });
});
