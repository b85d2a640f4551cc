"""Whatever a prompt holds, what is protected comes back: properties over random prompts.

Examples are fixed (``derandomize``), so that a failure is everybody's failure.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t2x.prompts.protect import Region, protect, syntax
from t2x.prompts.restore import occurrences
from t2x.prompts.syntax import Node, marks, parse

FIXED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
WORDS = (
    "a cat", "red", "two dogs", "night", "of", "photo", "猫", "кот", "łódź", "don't", 'a 5" plate',
    "ITEM1", "TEXT2", "x", "7", "Cat",
)  # fmt: skip
WHOLE = (
    "<lora:x:0.8>", "<lora:a__b__c:1>", "<hypernet:f g:.3>", "<cat-toy>", "<random:a,b>",
    "__animals/p*__", "__x__", "embedding:bad.pt", '"OPEN 24/7"', "'no way'", "“hi”", "„tak”",
    "«oui»", "「開店」", "『一』", "‹y›", "(red car:1.2)", "((m))", "[dull]", "[a|b]", "[a:b:0.5]",
    "[a::.4]", "{a|b}", "{2$$a|b}", "miku \\(v\\)", "\\(", "\\]", "--ar 16:9", "--no dogs, (x)",
    "--v 6", "https://a.b/c_(d).png", "www.x.org", " BREAK ", " AND ", " :1.2 AND ", " :0.7",
    "1.2::w::", "hot::2 ", "\nNegative prompt: bad, (x:1.3)", "\nSteps: 20, Sampler: Euler",
    "<rewrite:a cat>",
)  # fmt: skip
LOOSE = (
    *"()[]{}<>|:\\\"'`“”„‚‘’«»「」_-,. \n\t$", "__", "--", "<a:", "<rewrite:",
    ":1.2)", "embedding:", "http://",
    "BREAK", "AND", "::", "\\\\", "\0", "\u200d",
)  # fmt: skip
ENDINGS = ("", " ", ", ")
PIECES = [
    piece + ending
    for piece, endings in (
        *((piece, ENDINGS) for piece in (*WORDS, *WHOLE)),
        *((sign, ("", " ")) for sign in LOOSE),
    )
    for ending in endings
]  # fmt: skip
# Openers and closers are pieces of their own, so that everything nests in everything.
PROMPTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
FRAMES = (
    "({}:1.2)", "({})", "[{}]", "[{}|b]", "[{}:b:0.5]", "{{{}|c}}", '"{}"', "“{}”", "<rewrite:{}>",
    "((({})))", "<random:{},b>", "{} BREAK x", "{}, night", "1.2::{}::",
)  # fmt: skip
NESTED = st.recursive(
    PROMPTS,
    lambda inner: st.tuples(st.sampled_from(FRAMES), inner).map(lambda p: p[0].format(p[1])),
    max_leaves=4,
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


def check_round_trip(prompt: str) -> None:
    guarded = protect(prompt)
    assert guarded.restore(guarded.sources) == prompt
    if not marks(prompt):
        assert guarded.unmarked == prompt
    assert guarded.broken(prompt) == []


@given(PROMPTS)
@settings(FIXED, max_examples=10_000)
def test_an_unchanged_answer_gives_every_byte_back(prompt: str) -> None:
    check_round_trip(prompt)


@given(ANY_TEXT)
@settings(FIXED, max_examples=1000)
def test_so_it_does_for_any_text(text: str) -> None:
    check_round_trip(text)


@given(NESTED)
@settings(FIXED, max_examples=500)
def test_and_for_what_is_nested(prompt: str) -> None:
    check_round_trip(prompt)


def spans_in_place(nodes: tuple[Node, ...], start: int, end: int) -> None:
    for node in nodes:
        assert start <= node.start < node.end <= end
        spans_in_place(node.children, node.start, node.end)
        start = node.end


@given(st.one_of(NESTED, ANY_TEXT))
@settings(FIXED, max_examples=1000)
def test_nodes_are_in_order_and_inside_their_parents(text: str) -> None:
    spans_in_place(parse(text), 0, len(text))
    assert isinstance(syntax(text), dict)


def rewritten(region: Region, places: list[int]) -> str:
    """The source with words before, behind and at some of its blanks; stand-ins are kept whole."""
    inside = {i for s in region.spans for i in range(s.at, s.at + len(s.stand_in))}
    blanks = [i for i, char in enumerate(region.source) if char == " " and i not in inside]
    text = region.source
    for at in sorted({blanks[place % len(blanks)] for place in places if blanks}, reverse=True):
        text = f"{text[:at]} quietly{text[at:]}"
    return f"a calm view: {text}, soft light"


@given(PROMPTS, st.lists(st.integers(0, 99), max_size=3))
@settings(FIXED, max_examples=1500)
def test_a_rewriting_that_keeps_stand_ins_keeps_every_span_once(
    prompt: str, places: list[int]
) -> None:
    guarded = protect(prompt)
    text = guarded.restore([rewritten(r, places) for r in guarded.regions])
    assert guarded.broken(text) == []
    if guarded.regions:
        wanted = Counter(span.text for span in guarded.spans)
        found = occurrences(wanted, text)
        assert all(found[name] >= times for name, times in wanted.items())
    for kept in (p for p in guarded.pieces if isinstance(p, str)):
        assert kept in text


def items(region: Region) -> list[tuple[str, str]]:
    return [(s.text, s.stand_in) for s in region.spans if s.form == "item"]


@given(PROMPTS, st.booleans())
@settings(FIXED, max_examples=1500)
def test_a_lost_or_doubled_stand_in_is_named(prompt: str, doubled: bool) -> None:
    guarded = protect(prompt)
    for i, region in enumerate(guarded.regions):
        for text, name in items(region)[:2]:
            if prompt.count(text) > sum(s.text == text for s in guarded.spans):
                continue  # the same bytes stand elsewhere as well
            answers = list(guarded.sources)
            answers[i] = (
                f"{region.source} by {name}" if doubled else region.source.replace(name, "", 1)
            )
            if text.replace("\\", "") in answers[i]:
                continue  # an answer's own bracket comes out as the lost one, escaped
            assert text in guarded.broken(guarded.restore([f"view of {a}" for a in answers]))
