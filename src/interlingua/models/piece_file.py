"""SentencePiece's model file, made of pieces that come from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from struct import pack

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Kinds of pieces, as SentencePiece numbers them."""
UNIGRAM = 1
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The pieces of kind `BYTE`."""


def model_file(pieces: Iterable[tuple[str, float, int]], unknown: int, bytes_: bool) -> bytes:
    """The bytes of a Unigram model of `pieces`: each its text, log probability and kind.

    The one at `unknown` stands for characters that have none; with `bytes_`, those of their UTF-8 do, which must all be
    pieces. Text is cut as it is, with "▁" for blanks. A protocol buffer of pieces (1), trainer (2) and normaliser (3).
    """
    parts = [_bytes(1, _bytes(1, piece.encode()) + b"\x15" + pack("<f", score) + _number(3, kind))
             for piece, score, kind in pieces]
    parts.append(_bytes(2, _number(3, UNIGRAM) + _number(35, bytes_) + _number(40, unknown)))
    parts.append(_bytes(3, _number(3, False) + _number(4, False) + _number(5, True)))
    return b"".join(parts)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


@cache
def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first, the highest bit set on all but the last."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes(found + bytes([value]))
