"""CRC-32C: every implementation that can be had gives the same, and the right one is chosen."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.wire import crc32c as module
from kafka.wire.crc32c import POLYNOMIAL, choose, crc32c, folding_crc

VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]
"""RFC 3720, appendix B.4, and the usual check value."""


def bitwise(data: bytes, value: int = 0) -> int:
    register = value ^ 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if these modules were not installed."""
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture(params=["crc32c", "google_crc32c", "crcmod", "crcmod without a compiler"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each implementation, chosen as if those before it were not there."""
    name: str = request.param
    order = ["crc32c", "google_crc32c"]
    if name in order:
        pytest.importorskip(name, reason=f"the optional package {name} is not installed")
        without(monkeypatch, *order[: order.index(name)])
        return choose()
    without(monkeypatch, *order)
    if name == "crcmod without a compiler":
        for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "crcmod"]:
            monkeypatch.delitem(sys.modules, loaded)
        without(monkeypatch, "crcmod._crcfunext")
        chosen = choose()
        assert sys.modules["crcmod.crcmod"]._usingExtension is False
        assert "folded" in repr(chosen)
        return chosen
    return choose()


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_every_implementation_gives_the_values_of_the_rfc(implementation: Any, data: bytes, expected: int) -> None:
    assert implementation(data) == expected


def test_every_implementation_goes_on_from_a_value_and_takes_any_buffer(implementation: Any) -> None:
    data = bytes(range(256)) * 3
    expected = bitwise(data)
    for cut in (0, 1, 300, len(data)):
        assert implementation(data[cut:], implementation(data[:cut])) == expected
    assert implementation(bytearray(data)) == implementation(memoryview(b"x" + data)[1:]) == expected


def test_the_module_function_is_one_of_them() -> None:
    assert crc32c(b"56789", crc32c(b"1234")) == 0xE3069283


@given(st.binary(max_size=2000), st.integers(0, 2**32 - 1))
def test_folding_gives_what_the_definition_gives(data: bytes, value: int) -> None:
    assert folding_crc(bitwise)(data, value) == bitwise(data, value)


@pytest.mark.parametrize("size", [95, 96, 97, 1023, 1024, 16_384, 65_535, 65_536, 65_537, 200_001])
def test_folding_agrees_with_the_chosen_implementation_at_every_size(size: int) -> None:
    data = bytes((index * index >> 3) & 0xFF for index in range(size))
    assert folding_crc(bitwise)(data, 0xDEADBEEF) == crc32c(data, 0xDEADBEEF)


def test_folding_leaves_little_to_the_loop() -> None:
    taken: list[int] = []

    def loop(data: bytes, value: int) -> int:
        taken.append(len(data))
        return bitwise(data, value)

    for size in range(96, 3000, 7):
        folding_crc(loop)(bytes(size))
    assert max(taken) <= 64


@pytest.mark.parametrize("exponents", module._MULTIPLES)
def test_the_multiples_are_multiples_of_the_polynomial(exponents: tuple[int, ...]) -> None:
    rest = sum(1 << exponent for exponent in exponents)
    for bit in range(exponents[0], 31, -1):
        if rest >> bit & 1:
            rest ^= POLYNOMIAL << (bit - 32)
    assert rest == 0


def installed(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> None:
    """As if there were a module with these attributes."""
    module = ModuleType(name)
    module.__dict__.update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


def test_the_fastest_package_that_is_installed_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[type] = []

    def extend(value: int, data: bytes) -> int:
        taken.append(type(data))
        return bitwise(data, value)

    installed(monkeypatch, "crc32c", crc32c=bitwise)
    installed(monkeypatch, "google_crc32c", implementation="c", extend=extend)
    assert choose() is bitwise
    without(monkeypatch, "crc32c")
    google = choose()
    assert google(b"123456789") == google(bytearray(b"56789"), google(memoryview(b"1234"))) == 0xE3069283
    assert taken == [bytes, bytes, bytes]
    data = b"123456789"
    installed(monkeypatch, "google_crc32c", implementation="c", extend=lambda value, given: given is data)
    assert choose()(data)  # bytes are not copied
    without(monkeypatch, "google_crc32c")
    taken.clear()
    assert choose()(data) == 0xE3069283
    assert not taken


def test_long_messages_are_folded_by_few_terms_and_the_rest_by_the_shorter_multiple() -> None:
    """6777 doubled as long as 64 KiB have as many bits, then 290 doubled up to there, the largest first: by the wrong
    one the bytes are as right, and take longer."""
    four_terms = [433_728, 216_864, 108_432, 54_216, 27_108, 13_554, 6_777]
    six_terms = [4_640, 2_320, 1_160, 580, 290]
    assert [(degree, len(shifts)) for degree, shifts in module._ROWS] == [
        *((degree, 3) for degree in four_terms), *((degree, 5) for degree in six_terms)
    ]  # fmt: skip


def test_a_google_package_without_compiled_code_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = ModuleType("google_crc32c")
    slow.implementation = "python"  # type: ignore[attr-defined]
    without(monkeypatch, "crc32c", "crcmod._crcfunext")
    monkeypatch.setitem(sys.modules, "google_crc32c", slow)
    assert "folded" in repr(choose())


def test_without_any_package_the_error_names_the_one_that_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "crc32c", "google_crc32c", "crcmod")
    with pytest.raises(ImportError, match="crcmod"):
        choose()
