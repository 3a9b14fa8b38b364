"""The best passages of a question by BM25, compiled by numba: many postings of frequent terms are never read.

A question's terms are ordered by the most that each can add to a score (MaxScore, Turtle and Flood 1995). Passages are
taken `WINDOW` at a time, so that their sums stay in the processor's cache. As soon as `k` passages have more than the
lowest terms could add together, a passage that holds none of the other terms cannot be among the best: the lists of
these terms are then read only where they can lift a candidate of the window, and only as far as that is worth.

Imported only where numba is installed (the extra `index`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from interlingua.lazy import by_numba

FIRST, WINDOW = 1 << 9, 1 << 15
"""Passages whose sums are held at once, first and later: with few the bar is soon high."""
GROUP = 16
"""Sums that are compared with the bar at once."""
LOOKED_UP = 64
"""Postings that are added in the time that it takes to look one passage up."""
WORTH = 64
"""Lists are left out where they hold so many times as many postings as the others: candidates take time, too."""
TINY = np.float32(1e-38)


def _weight(values: Any, norms: Any, idf: Any, at: Any, row: Any) -> Any:
    """The contribution of a posting, float32: `values` are weights where there are no `norms`, else counts
    (`term_weights`)."""
    if len(norms):
        count = np.float64(values[at])
        return np.float32(idf * (count / (count + norms[row])))
    return np.float32(values[at])


def _reached(rows: Any, at: Any, end: Any, row: Any) -> Any:
    """The first place from `at` on, before `end`, whose passage is `row` or later: by steps that double."""
    step = 1
    high = at
    while high < end and rows[high] < row:
        at = high + 1
        high += step
        step *= 2
    high = min(high, end)
    while at < high:
        middle = (at + high) >> 1
        if rows[middle] < row:
            at = middle + 1
        else:
            high = middle
    return at


def _guessed(rows: Any, at: Any, end: Any, row: Any) -> Any:
    """As `_reached`, from where the passage would be if all were spread evenly."""
    if at >= end or rows[at] >= row:
        return at
    first, last = rows[at], rows[end - 1]
    if row > last:
        return end
    guess = at + np.int64((row - first) * ((end - 1 - at) / (last - first)))
    if rows[guess] < row:
        return _reached(rows, guess, end, row)
    step, low = 1, guess
    while rows[low] >= row:  # the first one is not
        guess = low
        low = max(low - step, at)
        step *= 2
    return _reached(rows, low, guess, row)


def _highest(values: Any, rows: Any, norms: Any, passages: Any) -> Any:
    """The most that one of these postings adds, with an idf of 1. Below 0 where they are not of the first so many
    passages, rising: what is written by them would be written elsewhere."""
    maximum, last = 0.0, -1
    for at in range(len(values)):
        if rows[at] <= last or rows[at] >= passages:
            return -1.0
        last = rows[at]
        maximum = max(maximum, np.float64(_weight(values, norms, 1.0, at, last)))
    return maximum


def _bounded(lists: Any, highest: Any, passages: Any, terms: Any) -> Any:
    """Fill in what of `highest` these terms lack. False where their postings are damaged."""
    starts, rows, values, norms = lists
    for term in terms:
        if highest[term] < 0:
            first, end = starts[term], starts[term + 1]
            if 0 <= first <= end <= len(rows):
                highest[term] = _highest(values[first:end], rows[first:end], norms, passages)
            if highest[term] < 0:
                return False
    return True


def _left_out(bounds: Any, sizes: Any, low: Any, threshold: Any) -> Any:
    """How many of the lowest terms are left out, `low` or more: those whose sum stays below `threshold`, where that is
    worth."""
    high = low
    while high < len(bounds) and bounds[high] < threshold:
        high += 1
    if high == len(bounds) or (high > low and sizes[high - 1] > WORTH * (sizes[-1] - sizes[high - 1])):
        return high
    return low


def _order(values: Any) -> Any:
    """The places of a few `values`, the lowest first."""
    order = np.arange(len(values))
    for end in range(1, len(values)):
        place, at = order[end], end
        while at > 0 and values[order[at - 1]] > values[place]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = place
    return order


def _highest_but(values: Any, k: Any) -> Any:
    """The `k`th highest of `values`, which change their places (Hoare's quickselect). NumPy's own way takes numba five
    seconds to compile, this one a tenth of a second. The pivot's place is drawn, so that no order of them is bad."""
    low, high, place, drawn = 0, len(values) - 1, len(values) - k, 1
    while low < high:
        drawn = (drawn * 1103515245 + 12345) & 0x7FFFFFFF
        pivot, left, right = values[low + (drawn >> 8) % (high - low + 1)], low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return values[place]


def _best(lists: Any, highest: Any, passages: Any, query: Any, chosen: Any, k: Any) -> Any:
    """The passages that may be among the `k` best, rising, with their scores: float32, summed in the order of `terms`.
    The passage −1 where the postings are damaged.

    `lists`, the postings of so many `passages`: where each term's start, their rows, values and norms, as for
    `_weight`. `highest` [all terms] holds the most that a posting of a term adds with an idf of 1, and is filled in
    where it is below 0. `query`: term i has the inverse document frequency `idfs[i]` and counts `times[i]` times.
    `chosen` [passages] bool: those that count, or empty for all.
    """
    starts, rows, (terms, idfs, times) = lists[0], lists[1], query
    if not _bounded(lists, highest, passages, terms):
        return np.full(1, -1), np.zeros(1, np.float32)
    count, peaks = len(terms), highest[terms] * idfs * times
    order = _order(peaks)
    bounds = np.cumsum(peaks[order]) * (1 + 1e-6)
    slack = 1 - (4 * count + 8) * 2.0**-24  # rounding, of sums in float32 and in another order
    at, ends = starts[terms], starts[terms + 1]
    sizes = np.cumsum((ends - at)[order])
    sums = np.zeros(WINDOW, np.float32)
    groups = sums.view(np.int32).reshape(-1, GROUP)
    bar = np.zeros(1, np.float32)
    standing = np.empty(WINDOW + 1, np.int32)  # the candidates of a window
    results, totals, size = np.empty(2 * (k + WINDOW), np.int64), np.empty(2 * (k + WINDOW), np.float32), 0
    threshold, low = 0.0, 0  # a passage below `threshold` is not among the best; the `low` lowest terms do not reach it
    whole = passages  # up to there all lists were added in the order of `terms`
    full = k  # so many results raise `threshold`
    start, width = 0, FIRST
    while start < passages:
        stop = start + width
        lowest = _left_out(bounds, sizes, low, threshold)
        if lowest > low:
            low, whole = lowest, min(whole, start)
        if low == count:
            break
        if not _added(sums, lists, query, order, at, ends, low, start, stop):
            start, width = stop, min(2 * width, WINDOW)
            continue
        bar[0] = max(_needed(threshold, bounds, low), TINY)
        candidates = _standing(groups[: width // GROUP], bar, chosen, start, standing)
        for place in range(low - 1, -1, -1):
            if not candidates:
                break
            term = order[place]
            begin = _reached(rows, at[term], ends[term], start)
            end = _guessed(rows, begin, ends[term], stop)
            at[term] = end
            if end - begin <= candidates * LOOKED_UP:
                _add(sums, lists, idfs[term], times[term], begin, end, start)
            else:
                _look_up(sums, lists, idfs[term], times[term], begin, end, start, standing[:candidates])
            candidates = _reaching(sums, _needed(threshold, bounds, place), standing, candidates)
        for number in range(candidates):
            results[size], totals[size] = start + standing[number], sums[standing[number]]
            size += totals[size] >= threshold
        sums[:width] = 0
        start, width = stop, min(2 * width, WINDOW)
        if size >= full:
            threshold = _highest_but(totals[:size].copy(), k) * slack
            size = _without(results, totals, size, threshold)
            full = size + max(k // 2, 16)
            if full + WINDOW > len(results):  # very many tie
                results, totals = _longer(results, full + WINDOW), _longer(totals, full + WINDOW)
    size = _without(results, totals, size, threshold)
    summed = _reached(results, 0, size, whole)
    _sum(totals[summed:size], lists, query, results[summed:size])
    return results[:size], totals[:size]


def _added(sums: Any, lists: Any, query: Any, order: Any, at: Any, ends: Any, low: Any, start: Any, stop: Any) -> Any:
    """Add the postings of all but the `low` lowest terms to the sums of the passages from `start` to `stop`: how many
    they are. `at` [terms] becomes where each goes on."""
    _, idfs, times = query
    count = 0
    for place in range(low, len(order)):
        term = order[place] if low else place
        begin = at[term]
        end = _guessed(lists[1], begin, ends[term], stop)
        at[term] = end
        count += end - begin
        _add(sums, lists, idfs[term], times[term], begin, end, start)
    return count


def _needed(threshold: Any, bounds: Any, low: Any) -> Any:
    """The least sum of the other terms that may reach `threshold` where the `low` lowest are not added yet."""
    rest = bounds[low - 1] if low else 0.0
    return np.float32((threshold - rest) * (1 - 2.0**-22))


def _longer(values: Any, count: Any) -> Any:
    """`values` with room for so many more."""
    longer = np.empty(len(values) + count, values.dtype)
    for i in range(len(values)):  # assigned as a whole, numba compiles two seconds longer
        longer[i] = values[i]
    return longer


def _add(sums: Any, lists: Any, idf: Any, times: Any, begin: Any, end: Any, start: Any) -> None:
    """Add these postings of a term to the sums of the passages from `start` on."""
    _, rows, values, norms = lists
    for at in range(begin, end):
        sums[np.uint32(rows[at] - start)] += times * _weight(values, norms, idf, at, rows[at])


def _look_up(sums: Any, lists: Any, idf: Any, times: Any, begin: Any, end: Any, start: Any, places: Any) -> None:
    """As `_add`, for the sums at these `places` only, which rise."""
    _, rows, values, norms = lists
    for place in places:
        begin = _reached(rows, begin, end, start + place)
        if begin < end and rows[begin] == start + place:
            sums[place] += times * _weight(values, norms, idf, begin, start + place)


def _reaching(sums: Any, bar: Any, places: Any, count: Any) -> Any:
    """Leave out of the first `count` places those whose sums are below the bar; how many are left."""
    size = 0
    for number in range(count):
        places[size] = places[number]
        size += sums[places[number]] >= bar
    return size


def _standing(groups: Any, bar: Any, chosen: Any, start: Any, places: Any) -> Any:
    """Write into `places` the places of the sums that reach the bar and whose passages count; how many these are.
    `groups` [groups, GROUP] int32 are the bits of the sums."""
    bits = bar.view(np.int32)[0]  # float32 above 0 are ordered as their bits are
    count = 0
    for group in range(len(groups)):
        row, first, reached = groups[group], np.int32(group * GROUP), np.int32(0)
        for inside in range(GROUP):
            reached |= np.int32(row[inside] >= bits)
        if reached:
            for inside in range(GROUP):  # without a branch, which would often be foreseen wrongly
                places[count] = first + np.int32(inside)
                count += row[inside] >= bits
    if not len(chosen):
        return count
    size = 0
    for number in range(count):
        places[size] = places[number]
        size += chosen[start + places[number]]
    return size


def _sum(scores: Any, lists: Any, query: Any, results: Any) -> None:
    """Fill in the `scores` of the passages `results`, which rise."""
    (starts, rows, values, norms), (terms, idfs, times) = lists, query
    scores[:] = 0
    for term in range(len(terms)):
        at, end = starts[terms[term]], starts[terms[term] + 1]
        for number in range(len(results)):
            at = _guessed(rows, at, end, results[number])
            if at < end and rows[at] == results[number]:
                scores[number] += times[term] * _weight(values, norms, idfs[term], at, results[number])


def _without(results: Any, totals: Any, size: Any, threshold: Any) -> Any:
    """Leave out what is below `threshold`; how many are left."""
    count = 0
    for number in range(size):
        if totals[number] >= threshold:
            results[count], totals[count] = results[number], totals[number]
            count += 1
    return count


def _compiled(function: Any) -> Any:
    return by_numba(function, nogil=True)


_weight, _reached = _compiled(_weight), _compiled(_reached)
_guessed, _add, _without = _compiled(_guessed), _compiled(_add), _compiled(_without)
_look_up, _reaching = _compiled(_look_up), _compiled(_reaching)
_standing, _sum = _compiled(_standing), _compiled(_sum)
_order, _highest_but = _compiled(_order), _compiled(_highest_but)
_added, _needed, _longer = _compiled(_added), _compiled(_needed), _compiled(_longer)
_highest, _bounded = _compiled(_highest), _compiled(_bounded)
_left_out, best = _compiled(_left_out), _compiled(_best)
