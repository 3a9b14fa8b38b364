// The server counts code points, as Python does; the browser counts UTF-16 units. "𝄞" is one there and two here.

/** Spans in order, without overlap, empty or impossible ones. */
function tidy(spans) {
  const whole = (spans ?? []).filter(([start, end]) => Number.isInteger(start) && Number.isInteger(end) && end > start);
  const merged = [];
  for (const [start, end] of whole.sort((one, other) => one[0] - other[0])) {
    const last = merged.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([Math.max(0, start), end]);
  }
  return merged;
}

/** `text` with a <mark> around each [start, end) of `spans`, which are counted in code points. */
export function highlighted(text, spans) {
  const fragment = document.createDocumentFragment();
  let point = 0;
  let unit = 0;
  const upTo = (wanted) => {
    const from = unit;
    for (; point < wanted && unit < text.length; point++) unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
    return text.slice(from, unit);
  };
  for (const [start, end] of tidy(spans)) {
    fragment.append(upTo(start));
    const mark = document.createElement("mark");
    mark.textContent = upTo(end);
    if (mark.textContent) fragment.append(mark);
  }
  fragment.append(upTo(Infinity));
  return fragment;
}
