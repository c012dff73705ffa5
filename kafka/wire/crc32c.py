"""CRC-32C (Castagnoli), the checksum of record batches v2: the fastest implementation that is installed.

In this order: the packages ``crc32c`` and ``google-crc32c`` when they bring compiled code (0.7 us for 16 KiB), then
``crcmod``, which is always there: compiled (40 us), or, where it was installed without a C compiler, a loop in Python
(1,300 us; with the folding below 45 us). No other module uses any of the three. A package is added by one more function
in :data:`_CANDIDATES`.

The choice is made when this module is imported, so nothing that ``import kafka`` loads may import it.

Folding. Bits of a message are the coefficients of a polynomial over GF(2), and its CRC is the remainder modulo
P = 0x11EDC6F41. For a multiple of P with few terms, x^a + x^b + ... + 1, a message keeps its remainder when its first
bits are moved: a bit at position i becomes bits at i + a, i + a - b, ... (in the order of transmission, which is the
bit order of a little-endian integer, since this CRC takes the lowest bit of a byte first). That shortens the message by
up to a - b bits with a few shifts of one large integer, which CPython does at memory speed. Squaring doubles all
exponents, so one multiple serves all sizes: 6777, 484, 100, 0 (of the multiples with four terms and below degree 7600
the one that moves most bits for its degree) for long messages, 290, 136, 113, 107, 32, 0 for the rest. The tests divide
both by P.

Source: RFC 3720, appendix B.4 (test vectors); Kafka's protocol guide, "Record Batch".
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, cast

Buffer = bytes | bytearray | memoryview
Crc = Callable[..., int]

POLYNOMIAL: Final = 0x11EDC6F41

_MULTIPLES: Final = ((6777, 484, 100, 0), (290, 136, 113, 107, 32, 0))
_FOLDED_BYTES: Final = 96
"""Shorter messages take the loop less time than folding does."""
_LONGEST_BYTES: Final = 64 * 1024
"""Longer messages are folded piece by piece: the integers stay within the processor's caches."""


def _scaled() -> list[tuple[int, list[int]]]:
    """Rows ``(degree, shifts)`` in bits, the largest first: a chunk of at most ``shifts[0]`` bits is moved by each of
    the shifts."""
    rows: list[tuple[int, list[int]]] = []
    for number, exponents in enumerate(_MULTIPLES):
        below = 8 * _LONGEST_BYTES if number == 0 else _MULTIPLES[0][0]
        scale = 1
        while exponents[0] * scale < below:
            degree = exponents[0] * scale
            rows.append((degree, [degree - exponent * scale for exponent in exponents[1:]]))
            scale *= 2
    rows.sort(reverse=True)
    return rows


_ROWS: Final = _scaled()


def fold(data: bytes, register: int) -> bytes:
    """A message of at most 64 bytes that leads from a register of 0 to where ``data`` leads from ``register`` (not
    inverted). ``data`` has at least four bytes."""
    value = int.from_bytes(data, "little") ^ register
    bits = 8 * len(data)
    for degree, shifts in _ROWS:
        step = shifts[0]
        while bits >= degree + step // 2:
            chunk = min(step, bits - degree)
            head = value & ((1 << chunk) - 1)
            value >>= chunk
            bits -= chunk
            for shift in shifts:
                value ^= head << (shift - chunk)
    size = (bits + 7) >> 3
    return (value << (8 * size - bits)).to_bytes(size, "little")


def folding_crc(loop: Crc) -> Crc:
    """CRC-32C by folding, with ``loop(data, value)`` for the last bytes."""

    def crc32c_folded(data: Buffer, value: int = 0) -> int:
        for start in range(0, len(data), _LONGEST_BYTES):
            piece = bytes(data[start : start + _LONGEST_BYTES])
            if len(piece) >= _FOLDED_BYTES:
                piece, value = fold(piece, value ^ 0xFFFFFFFF), 0xFFFFFFFF  # an inverted register of 0
            value = loop(piece, value)
        return value

    return crc32c_folded


def _crc32c_package() -> Crc:
    return cast(Crc, import_module("crc32c").crc32c)


def _google_package() -> Crc:
    package: Any = import_module("google_crc32c")
    if package.implementation != "c":
        raise ImportError("google_crc32c without its compiled part is slower than folding")
    extend: Callable[[int, bytes], int] = package.extend

    def crc32c_google(data: Buffer, value: int = 0) -> int:
        return extend(value, data if isinstance(data, bytes) else bytes(data))

    return crc32c_google


def _crcmod_package() -> Crc:
    package: Any = import_module("crcmod")
    loop: Crc = package.mkCrcFun(POLYNOMIAL, initCrc=0, rev=True, xorOut=0xFFFFFFFF)
    try:
        import_module("crcmod._crcfunext")
    except ImportError:
        return folding_crc(loop)
    return loop


_CANDIDATES: Final[tuple[Callable[[], Crc], ...]] = (_crc32c_package, _google_package, _crcmod_package)


def choose() -> Crc:
    """The first of the candidates that can be had here. Raises :class:`ImportError` when even ``crcmod`` is missing."""
    for candidate in _CANDIDATES[:-1]:
        try:
            return candidate()
        except ImportError:
            continue
    return _CANDIDATES[-1]()


crc32c: Final = choose()
"""``crc32c(data, value=0)``: the CRC-32C of ``data``, or of the bytes that gave ``value`` followed by ``data``."""
