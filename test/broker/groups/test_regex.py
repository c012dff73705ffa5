from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka.broker.groups import regex
from kafka.broker.groups.regex import MAX_WORK, WorkLimit, check_regex, matches, resolve
from kafka.errors import InvalidRegularExpressionError
from test.support.cpu import CpuTime
from test.support.optional import needs_re2

pytestmark = needs_re2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "missing closing ]"),
        ("[a", "missing closing ]"),
        ("(", "missing closing )"),
        ("a)", "regexp/syntax: internal error"),
        ("*", "missing argument to repetition operator"),
        ("a++", "invalid nested repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("x{2,1}", "invalid repeat count"),
        ("[z-a]", "invalid character class range"),
        ("a(?=b)", "invalid or unsupported Perl syntax"),
        ("(?#c)", "invalid or unsupported Perl syntax"),
        ("(?x)a", "invalid or unsupported Perl syntax"),
        ("(?<=a)", "invalid named capture"),
        ("(?<n>a)(?<n>b)", "duplicate capture group name"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\8", "invalid escape sequence"),
        (r"\C", "invalid escape sequence"),
        (r"\Z", "invalid escape sequence"),
        (r"\k", "invalid escape sequence"),
        (r"[a-\d]", "invalid escape sequence"),
        (r"[\b]", "invalid escape sequence"),
        (r"[\Q]\E]", "invalid escape sequence"),
        ("(?i)*", "missing argument to repetition operator"),
        ("(?i-)a", "invalid or unsupported Perl syntax"),
        ("(?P<a-b>x)", "invalid named capture"),
        ("a{2}{3}", "invalid nested repetition operator"),
        ("(a{100}){101}", "expression too large"),
        ("(" * 101 + ")" * 101, "expression nests too deeply"),
    ],
)
def test_what_re2j_refuses_is_refused_in_its_words(text: str, why: str) -> None:
    with pytest.raises(InvalidRegularExpressionError) as caught:
        check_regex(text)
    assert caught.value.args[0] == f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}."


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("", ()),
        ("a", ("a",)),
        ("a.*", ("a", "a.b", "ab")),
        (r"a\..", ("a.b",)),
        ("(?<n>a)b", ("ab",)),
        ("(?P<n>a)b", ("ab",)),
        (r"\Qa.b\E", ("a.b",)),
        (r"\Qa.b", ("a.b",)),
        ("(?i)AB", ("ab",)),
        ("A(?i)B|aB", ("ab",)),
        ("A|(?i)AB", ("A", "ab")),
        ("(?i:A)b", ("ab",)),
        ("[[:alpha:]]+", ("A", "a", "ab")),
        (r"[[:alpha:]\.]+", ("A", "a", "a.b", "ab")),
        (r"\p{Lu}", ("A",)),
        (r"\pL+", ("A", "a", "ab")),
        (r"[^\p{Lu}]{2}", ("ab", "é1")),
        (r"ab\z", ("ab",)),
        (r"\w+", ("A", "a", "ab")),
        ("[]a]", ("a",)),
        ("[a-]", ("a",)),
        ("a{1}b{0,2}", ("a", "ab")),
        ("a{", ()),
        ("(?U)a*?", ("a",)),
        (r"\PL|\P{Lu}", ("a",)),
        (r"[^\PL]", ("A", "a")),
        (r"\x41|\x{61}", ("A", "a")),
        (r"[\x41]\142?|\141b", ("A", "ab")),
        ("[[:^alpha:]].*", ("é1",)),
        ("^*a$*", ("a",)),
        ("()*a(?:){3}", ("a",)),
        ("A||(?-i)a", ("A", "a")),
        (r"\b\w\b.\b\w\b", ("a.b",)),
        (r"a\Bb\b", ("ab",)),
        (r"a\bb|b^a", ()),
        ("a{0,}[a-z]{1,}", ("a", "ab")),
        ("(" * 100 + "a|b*" + "){1}" * 100, ("a",)),
    ],
)
def test_whole_names_match(text: str, topics: tuple[str, ...]) -> None:
    assert resolve([text], ["A", "a", "a.b", "ab", "é1"]) == {text: set(topics)}


_PART = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "^", "$", r"\b", r"\B"])
_EXPRESSION = st.recursive(
    _PART,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(_EXPRESSION, st.lists(st.text("ab-", min_size=1, max_size=6), min_size=1, max_size=6))
def test_what_matches_is_what_matches_elsewhere(text: str, names: list[str]) -> None:
    assert resolve([text], names) == {text: {name for name in names if re.fullmatch(text, name)}}


@pytest.mark.parametrize(
    "text",
    ["(a*)*b", "(a|a)*b", "(a|aa)+$b", "(.*)*(.*)*(.*)*b", "((a?){30}){30}b", "(.*a.{12}){8}b", "(\\w+\\.?)+!"],
)
def test_no_expression_holds_the_broker_up(text: str) -> None:
    names = ["a" * 249, *(("a." * 120) + str(number) for number in range(100))]
    with CpuTime() as cpu:
        found = resolve([text, "a+"], names)
    assert cpu.seconds < 5.0
    assert found[text] in (frozenset(), None)
    assert found["a+"] in ({"a" * 249}, None)


def test_what_there_is_no_time_for_is_reported() -> None:
    text = ".*a.{200}c"
    names = ["ab" * 124] * (MAX_WORK // regex._program(text).programsize // 249 + 1)
    with CpuTime() as cpu:
        assert resolve([text, "a+"], names) == {text: None, "a+": None}
    assert cpu.seconds < 5.0
    assert resolve(["a"], ["a"]) == {"a": {"a"}}


def test_what_there_is_just_time_for_takes_little() -> None:
    rng = random.Random(1)
    text = "(.*a.{12}){8}b"
    count = MAX_WORK // regex._program(text).programsize // 250
    names = ["".join(rng.choices("ab", k=249)) for _ in range(count)]
    with CpuTime() as cpu:
        assert resolve([text], names)[text] is not None
    assert cpu.seconds < 5.0


def test_the_longest_expression_has_10_000_characters_and_10_000_instructions() -> None:
    """Ours: RE2/J has no bound but its stack."""
    check_regex("(?:)" * 2_500)
    with pytest.raises(InvalidRegularExpressionError, match="longer than 10000 characters"):
        check_regex("(?:)" * 2_500 + "a")
    check_regex("a" * 9_996)
    with pytest.raises(InvalidRegularExpressionError, match="expression too large"):
        check_regex("a" * 9_997)


def test_work_may_be_done_to_the_last_step() -> None:
    limit = WorkLimit(3)
    assert limit.spend(2)
    assert limit.spend(1)
    assert not limit.spend(1)


def test_one_name_that_costs_more_than_is_left_does_not_match() -> None:
    cost = regex._program("a+").programsize * 3
    limit = WorkLimit(cost)
    assert matches("a+", "aa", limit)
    assert not matches("a+", "aa", limit)


def test_characters_above_ascii_are_distinguished_from_its_last_one() -> None:
    names = ["\x7f", "\x80"]
    assert resolve(["[^a]", r"\w", "[[:ascii:]]", "\x7f", "\x80"], names) == {
        "[^a]": set(names), r"\w": set(), "[[:ascii:]]": {"\x7f"}, "\x7f": {"\x7f"}, "\x80": {"\x80"},
    }  # fmt: skip


ASCII = [chr(code) for code in range(128)]
DIGITS, UPPER, LOWER = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        (r"\d", DIGITS),
        (r"\w", DIGITS + UPPER + LOWER + "_"),
        (r"\s", "\t\n\f\r "),
        ("[[:alnum:]]", DIGITS + UPPER + LOWER),
        ("[[:alpha:]]", UPPER + LOWER),
        ("[[:ascii:]]", "".join(ASCII)),
        ("[[:blank:]]", "\t "),
        ("[[:cntrl:]]", "".join(ASCII[:32]) + "\x7f"),
        ("[[:digit:]]", DIGITS),
        ("[[:graph:]]", DIGITS + UPPER + LOWER + PUNCTUATION),
        ("[[:lower:]]", LOWER),
        ("[[:print:]]", DIGITS + UPPER + LOWER + PUNCTUATION + " "),
        ("[[:punct:]]", PUNCTUATION),
        ("[[:space:]]", "\t\n\v\f\r "),
        ("[[:upper:]]", UPPER),
        ("[[:word:]]", DIGITS + UPPER + LOWER + "_"),
        ("[[:xdigit:]]", DIGITS + "ABCDEFabcdef"),
        (r"\p{Any}", "".join(ASCII)),
        (r"\p{L}", UPPER + LOWER),
        (r"\p{Lu}", UPPER),
        (r"\p{Ll}", LOWER),
        (r"\p{Latin}", UPPER + LOWER),
        (r"\p{N}", DIGITS),
        (r"\p{Nd}", DIGITS),
        (r"\p{P}", "!\"#%&'()*,-./:;?@[\\]_{}"),
        (r"\p{Pc}", "_"),
        (r"\p{Pd}", "-"),
        (r"\p{S}", "$+<=>^`|~"),
        (r"\p{Z}", " "),
        (r"\p{Zs}", " "),
    ],
)
def test_a_class_has_its_characters(text: str, characters: str) -> None:
    """RE2/J: CharGroup (Perl and POSIX classes), UnicodeTables by general category."""
    assert resolve([text], ASCII) == {text: set(characters)}
    other = text.upper() if text in (r"\d", r"\w", r"\s") else text.replace(r"\p", r"\P").replace("[[:", "[[:^")
    assert resolve([other], ASCII) == {other: set(ASCII) - set(characters)}


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        (r"\a\f\n\r\t\v", ["\a\f\n\r\t\v"]),
        (r"\Aa\z", ["a"]),
        (r"a\Bb", ["ab"]),
        (r"a\bb", []),
        (r"\b*a\z+", ["a"]),
        (".", ["a", "é"]),
        ("(?s).", ["a", "é", "\n"]),
        ("(?s).(?-s).", ["ab"]),
        ("é", ["é"]),
        ("[é]", ["é"]),
        ("[^b]", ["a", "é", "\n"]),
        ("[^é]", ["a", "\n"]),
        ("[a-é]", ["a", "é"]),
        ("[a-]b", ["ab"]),
        ("[é-ü]", ["é"]),
        ("(?i)[A]", ["a"]),
        ("(?i)[^A]", ["é", "\n"]),
        (r"\pL", ["a", "é"]),
        (r"\p{Nd}", []),
        (r"\p{^L}", ["\n"]),
        (r"\P{^L}", ["a", "é"]),
        (r"(?i)\p{Lu}", ["a", "é"]),
        (r"\Qab\E", ["ab"]),
        (r"\Qab", ["ab"]),
        (r"\Qa\Eb", ["ab"]),
        (r"\Qab\E?", ["a", "ab"]),
        (r"\141\142", ["ab"]),
        (r"\x61\x{62}", ["ab"]),
        (r"\xe9", ["é"]),
        (r"\x{10FFFF}", []),
        (r"[\n]", ["\n"]),
        ("a|ab", ["a", "ab"]),
        ("(a)(b)", ["ab"]),
        ("a{1}?b?", ["a", "ab"]),
        ("a{0,1}b{1}", ["ab"]),
        ("a{1,}b+?", ["ab"]),
        ("(?i)A(?-i)b|AB", ["ab"]),
        ("(?i)A(?-i)B", []),
        ("(?:(?i)A)B|é", ["é"]),
        ("(?i:A)b", ["ab"]),
        ("(?im-s:A)b", ["ab"]),
    ],
)
def test_what_an_expression_matches(text: str, matching: list[str]) -> None:
    """RE2/J's Parser."""
    assert resolve([text], ["a", "ab", "é", "\n", "\a\f\n\r\t\v"]) == {text: set(matching)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\\", "trailing backslash at end of expression"),
        (r"\p{Xx}", "invalid character class range"),
        ("[[:other:]]", "invalid character class range"),
        (r"\x{110000}", "invalid escape sequence"),
        (r"\é", "invalid escape sequence"),
        ("[a\\", "invalid escape sequence"),
        ("[", "missing closing ]"),
        ("[]", "missing closing ]"),
        ("[b-a]", "invalid character class range"),
        ("|*", "missing argument to repetition operator"),
        ("(*)", "missing argument to repetition operator"),
        (r"\Q\E*", "missing argument to repetition operator"),
        ("a?{2}", "invalid nested repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("a{0,1001}", "invalid repeat count"),
        ("a{1001,}", "invalid repeat count"),
        ("((a)", "missing closing )"),
        ("(a))", "regexp/syntax: internal error"),
        ("(?)a", "invalid or unsupported Perl syntax"),
        ("(?<n", "invalid named capture"),
    ],
)
def test_more_that_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRegularExpressionError) as caught:
        check_regex(text)
    assert caught.value.args[0].endswith(f": {why}.")


@pytest.mark.parametrize("text", ["a{1000}", "a{0,1000}", "a{2,2}", "[a-a]", r"a\.b", r"(?P<x>a)(?<y>b)"])
def test_the_bounds_are_allowed(text: str) -> None:
    check_regex(text)


@pytest.mark.parametrize("text", ["a{2,1}?", "a{1001}?", "a{2,1}", "a{1001}"])
def test_a_count_that_cannot_be_is_refused_lazy_or_not(text: str) -> None:
    with pytest.raises(InvalidRegularExpressionError, match="invalid repeat count"):
        check_regex(text)


@pytest.mark.parametrize("text", ["[" * 10_000, "[^" * 5_000, "[[:" * 3_333])
def test_brackets_that_nothing_closes_cost_no_more_than_others(text: str) -> None:
    """They are refused before their tokens are looked for, which would take seconds."""
    with CpuTime() as spent, pytest.raises(InvalidRegularExpressionError):
        check_regex(text)
    assert spent.seconds < 0.5
