// How alike two rankings are.

/** Passages that both rankings have, as [place in the first, place in the second], places from 0. */
export function shared(first, second) {
  const places = new Map(second.map((id, place) => [id, place]));
  return first.flatMap((id, place) => (places.has(id) ? [[place, places.get(id)]] : []));
}

/**
 * Rank-biased overlap of two rankings of any lengths, extrapolated from what is seen (Webber, Moffat and Zobel 2010,
 * equation 32): 1 for equal rankings, 0 for rankings without a common passage. The first 10 ranks weigh 86% at p = .9.
 */
export function rankBiasedOverlap(first, second, p = 0.9) {
  const [short, long] = first.length <= second.length ? [first, second] : [second, first];
  if (short.length === 0) return long.length === 0 ? 1 : 0;
  const common = [0]; // common[d]: passages that both have in the first d
  for (let depth = 1; depth <= long.length; depth++) {
    const head = new Set(long.slice(0, depth));
    common.push(short.slice(0, depth).filter((id) => head.has(id)).length);
  }
  const [s, l] = [short.length, long.length];
  let sum = 0;
  for (let depth = 1; depth <= l; depth++) {
    const unseen = depth > s ? (common[s] * (depth - s)) / s : 0;
    sum += ((common[depth] + unseen) / depth) * p ** depth;
  }
  return ((1 - p) / p) * sum + ((common[l] - common[s]) / l + common[s] / s) * p ** l;
}
