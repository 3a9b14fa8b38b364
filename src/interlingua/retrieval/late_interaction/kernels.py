"""MaxSim on the CPU, compiled by numba: no product is ever written to memory, only scores are.

Imported only where numba is installed (the extra `index`). A token's product with 32 query tokens is kept in registers,
which LLVM does not arrive at from plain loops over int8; `_raise` therefore spells out the vectors. It names no
instruction set: LLVM translates them to what the processor has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import config, types  # type: ignore[import-untyped]
from numba.core import cgutils  # type: ignore[import-untyped]
from numba.extending import intrinsic  # type: ignore[import-untyped]

from interlingua.lazy import by_numba

WIDTH = 16  # lanes of a vector
LANES = 2 * WIDTH  # query tokens that are multiplied together
TOKENS = 8 if binding.get_host_cpu_features().get("avx512f") else 2  # with LANES: what fits into the registers
READ = 8  # tokens read at a time, a multiple of TOKENS
MOST_THREADS: int = config.NUMBA_NUM_THREADS

_FLOAT, _INT, _SHORT, _INDEX = ir.FloatType(), ir.IntType(32), ir.IntType(16), ir.IntType(64)


@intrinsic  # type: ignore[untyped-decorator]
def _widened(_: Any, value: Any) -> Any:
    """A stored component as it is multiplied: float32 as it is, the bits of a finite float16 (uint16) as float32,
    int8 as int16."""
    if value == types.float32:
        return value(value), lambda context, builder, signature, args: args[0]
    if value == types.int8:
        return types.int16(value), lambda context, builder, signature, args: builder.sext(args[0], _SHORT)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Exponent and mantissa in their new places are 2^112 too small, subnormal numbers too. (LLVM's own conversion
        # calls a library that is not there on a processor without F16C.)
        bits = builder.zext(args[0], _INT)
        size = builder.shl(builder.and_(bits, _INT(0x7FFF)), _INT(13))
        sign = builder.shl(builder.and_(bits, _INT(0x8000)), _INT(16))
        return builder.fmul(builder.bitcast(builder.or_(size, sign), _FLOAT), _FLOAT(2.0**112))

    return types.float32(value), generate


@intrinsic  # type: ignore[untyped-decorator]
def _raise(_: Any, best: Any, queries: Any, block: Any, held: Any, scales: Any, start: Any, count: Any) -> Any:
    """Raise `best` [blocks · LANES] to the products of the tokens `held` [count, dim] from `start` on, TOKENS of them,
    with one block of `queries`, each multiplied by its token's scale `scales` [count].

    `queries` is [blocks, dim, LANES] float32 with float32 tokens, or [blocks, dim / 2, 2 · LANES] int16, two components
    of a query token side by side, with int16 tokens.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = {
            name: context.make_array(kind)(context, builder, value)
            for name, kind, value in zip(
                ("best", "queries", "block", "held", "scales"), signature.args, args, strict=False
            )
            if name != "block"
        }
        whole = queries.dtype == types.int16
        lane, query_type = (_INT, ir.VectorType(_SHORT, 2 * WIDTH)) if whole else (_FLOAT, ir.VectorType(_FLOAT, WIDTH))
        sum_type, best_type = ir.VectorType(lane, WIDTH), ir.VectorType(_FLOAT, WIDTH)

        def vector(name: str, kind: Any, *place: Any) -> Any:
            """The address of a vector: place = (which pair, which half)."""
            pair, half = place
            base = builder.bitcast(arrays[name].data, kind.as_pointer())
            return builder.gep(base, [builder.add(builder.mul(pair, _INDEX(2)), _INDEX(half))])

        def spread(value: Any, kind: Any) -> Any:
            element = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
            return builder.shuffle_vector(element, element, ir.Constant(ir.VectorType(_INT, WIDTH), None))

        _, steps, _ = cgutils.unpack_tuple(builder, arrays["queries"].shape, 3)
        first = builder.mul(args[2], steps)
        last = builder.sub(args[6], _INDEX(1))
        numbers = [builder.add(args[5], _INDEX(number)) for number in range(TOKENS)]
        # past the end the last token comes again, which changes no maximum
        numbers = [builder.select(builder.icmp_signed("<", number, last), number, last) for number in numbers]
        words = builder.bitcast(arrays["held"].data, lane.as_pointer())  # one float32, or two int16
        tokens = [builder.gep(words, [builder.mul(number, steps)]) for number in numbers]
        sums = [[cgutils.alloca_once_value(builder, ir.Constant(sum_type, None)) for _ in range(2)] for _ in tokens]
        with cgutils.for_range(builder, steps) as loop:
            halves = [
                builder.load(vector("queries", query_type, builder.add(first, loop.index), half), align=2)
                for half in range(2)
            ]
            for token, pair in zip(tokens, sums, strict=True):
                value = spread(builder.load(builder.gep(token, [loop.index]), align=2), sum_type)
                for half, place in zip(halves, pair, strict=True):
                    builder.store((_pairs if whole else _fused)(builder, builder.load(place), value, half), place)
        for half in range(2):
            address = vector("best", best_type, args[2], half)
            highest = builder.load(address, align=4)
            for number, pair in zip(numbers, sums, strict=True):
                scale = spread(builder.load(builder.gep(arrays["scales"].data, [number])), best_type)
                total = builder.load(pair[half])
                product = builder.fmul(builder.sitofp(total, best_type) if whole else total, scale)
                highest = builder.select(builder.fcmp_ordered(">", product, highest), product, highest)
            builder.store(highest, address, align=4)
        return context.get_dummy_value()

    return types.void(best, queries, block, held, scales, start, count), generate


def _fused(builder: Any, total: Any, token: Any, query: Any) -> Any:
    """total + token · query, rounded once where the processor can."""
    return builder.fadd(total, builder.fmul(token, query, flags=["contract"]), flags=["contract"])


def _pairs(builder: Any, total: Any, token: Any, query: Any) -> Any:
    """total + the sums of two neighbouring products: `pmaddwd` on x86."""
    wide = ir.VectorType(_INT, 2 * WIDTH)
    products = builder.mul(builder.sext(builder.bitcast(token, query.type), wide), builder.sext(query, wide))
    even, odd = (
        builder.shuffle_vector(
            products, products, ir.Constant(ir.VectorType(_INT, WIDTH), [_INT(2 * i + start) for i in range(WIDTH)])
        )
        for start in range(2)
    )
    return builder.add(total, builder.add(even, odd))


def _scores(
    queries: Any, weights: Any, ends: Any, tokens: Any, scales: Any, starts: Any, stops: Any, scores: Any
) -> None:
    """`scores` [passages, queries] float32 of the passages at `tokens[starts[i] : stops[i]]`; −inf for one without
    tokens. The loops are the same whatever else is scored: so are a passage's scores, to the last bit.

    `queries` holds the tokens of all queries in blocks of LANES as `_raise` takes them, `ends` where each query
    ends among them, `weights` and `scales` what products are multiplied by (of a query token, of a passage's token).
    """
    blocks, steps, width = queries.shape
    buffer = np.zeros((READ, steps * width // LANES), queries.dtype)
    buffer_scales = np.empty(READ, np.float32)
    best = np.empty(blocks * LANES, np.float32)
    for passage in range(len(starts)):
        if starts[passage] == stops[passage]:
            scores[passage] = -np.inf
            continue
        best[:] = -np.inf
        for first in range(starts[passage], stops[passage], READ):
            # in order, which the processor foresees, and once for all queries
            count = min(READ, stops[passage] - first)
            for token in range(count):
                buffer_scales[token] = scales[first + token]
                for d in range(tokens.shape[1]):
                    buffer[token, d] = _widened(tokens[first + token, d])
            for block in range(blocks):
                for start in range(0, count, TOKENS):
                    _raise(best, queries, block, buffer, buffer_scales, start, count)
        begin = 0
        for query in range(len(ends)):
            total = np.float32(0)
            for lane in range(begin, ends[query]):
                total += best[lane] * weights[lane]
            scores[passage, query] = total
            begin = ends[query]


scores = by_numba(_scores, nogil=True)
