"""The grammar of prompts: what each construct is, how they nest, and that no text takes long."""

from __future__ import annotations

import time

import pytest

from t2x.prompts.protect import protect
from t2x.prompts.syntax import Node, marks, parse


def tree(text: str) -> list[object]:
    """Kinds and texts of the nodes; a node with children is a triple."""

    def show(node: Node) -> object:
        own = (node.kind, text[node.start : node.end])
        return (*own, [show(c) for c in node.children]) if node.children else own

    return [show(node) for node in parse(text)]


ALONE = {
    "<lora:x:0.8>": "network",
    "<lora:it's (v2) [b]:0.8:0.4>": "network",
    "<LORA:a__b__c:-1>": "network",
    "<lora:水墨:1>": "network",
    "<random:a, <wildcard:b>>": "variant",
    "<fromto[0.4]:a, b>": "variant",
    "<cat-toy>": "token",
    "__a/b*__": "wildcard",
    "__~tone__": "wildcard",
    "__season(m=may)__": "wildcard",
    "embedding:a/b-c.pt": "embedding",
    "(a:1.2)": "weight",
    "(a : -.5)": "weight",
    "((a))": "weight",
    "[a]": "weight",
    "[[a]]": "weight",
    "1.2::a b::": "weight",
    "(a)": "group",
    "(10:30)": "group",
    "(a:b)": "group",
    "[a|b|]": "alternation",
    "[a:b:0.5]": "schedule",
    "[a::0.5]": "schedule",
    "[a:0.5]": "schedule",
    "{a|b}": "variant",
    "{2$$ and $$a|b}": "variant",
    "${x={a|b}}": "variant",
    "\\(": "escape",
    "\\(a\\)": "escape",
    "miku \\(a\\) \\(b\\)": "escape",
    "rem_\\[a\\]": "escape",
    "https://a.b/c_(d)?e=f,g": "url",
    "www.a.org": "url",
    "--ar 16:9": "flag",
    "--tile": "flag",
    "—ar 16:9": "flag",
    "--no a, (b), [c]": "flag",
    "--sref https://a.b/c 1234": "flag",
    "BREAK": "break",
    "AND": "break",
    "ADDCOL": "break",
    "Negative prompt: a, (b:1.2)\nc": "negative",
    "反向提示词：a": "negative",
    "negative: a": "negative",
    "Steps: 20, Sampler: Euler a, Seed: 3": "settings",
    '"a (b) [c]"': "quote",
    '"a \\"b\\" c"': "quote",
    "'don't stop'": "quote",
    "‘don’t stop’": "quote",
    "“a „b”": "quote",
    "„a“": "quote",
    "„a”": "quote",
    "”a”": "quote",
    "«a «b» c»": "quote",
    "»a«": "quote",
    "‹ a ›": "quote",
    "›a‹": "quote",
    "‚a‘": "quote",
    "「a「b」c」": "quote",
    "『a』": "quote",
    "｢a｣": "quote",
    "〝a〟": "quote",
    "＂a＂": "quote",
    "`a b`": "quote",
}


@pytest.mark.parametrize(("text", "kind"), ALONE.items())
@pytest.mark.parametrize("shape", ["{}", "x, {}"])
def test_each_construct_is_one_node(text: str, kind: str, shape: str) -> None:
    whole = shape.format(text) if not text.startswith("negative:") else text
    assert [(n.kind, whole[n.start : n.end]) for n in parse(whole)] == [(kind, text)]


TEXT = (
    "", "a plain prompt", "children's toys", "the dogs' bones and the cats' toys", "rock 'n' roll",
    "the '90s, and 'til then", 'a 5" plate, a 7" plate', '""', '"', "“”", "a < b > c <3",
    "<lora:open", "__ a __", "x__y__z", "std::vector", "a - b -- c", "a — b — c", "(a", "b)", "[a)",
    "{", "}", "\\", "a\\nb", "BREAKFAST", "BRAND", "A CAT AND A DOG", "embedding:", "http://",
    "a: b", "a | b", "Steps to the sea", "negatively", "»",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXT)
def test_what_only_looks_like_syntax_is_text(text: str) -> None:
    assert [n for n in parse(text) if n.kind != "group"] == []


def test_everything_nests() -> None:
    assert tree("(a [b|{c|d}] (e:1.1) \"f\":1.2)") == [
        ("weight", "(a [b|{c|d}] (e:1.1) \"f\":1.2)", [
            ("alternation", "[b|{c|d}]", [("variant", "{c|d}")]),
            ("weight", "(e:1.1)"),
            ("quote", '"f"'),
        ])
    ]  # fmt: skip
    assert tree("[[a|b]:(c:1.2):0.4]") == [
        ("schedule", "[[a|b]:(c:1.2):0.4]", [("alternation", "[a|b]"), ("weight", "(c:1.2)")])
    ]


def test_signs_belong_to_the_innermost_bracket() -> None:
    assert [n.kind for n in parse("[a (b:1.2)]")] == ["weight"]
    assert [n.kind for n in parse("(a [b:c:2])")] == ["group"]


def test_a_bracket_of_another_kind_turns_what_is_open_into_text() -> None:
    assert tree("(a [b) c] {d}") == [("group", "(a [b)"), ("variant", "{d}")]
    assert tree("(a (b:1.2) [c") == [("weight", "(b:1.2)")]


def test_atoms_win_over_brackets_and_over_each_other() -> None:
    # sd-dynamic-prompts#685
    assert tree("<lora:a__b__c:1> __d__") == [
        ("network", "<lora:a__b__c:1>"),
        ("wildcard", "__d__"),
    ]
    assert tree('("a) b":1.2)') == [("weight", '("a) b":1.2)', [("quote", '"a) b"')])]
    assert tree("(\\(a\\):1.2)") == [("weight", "(\\(a\\):1.2)", [("escape", "\\(a\\)")])]
    assert tree("(https://a.b)") == [("group", "(https://a.b)", [("url", "https://a.b")])]


def test_parts_of_a_prompt_and_their_weights() -> None:
    text = "a :1.2 AND b AND_PERP c :0.8\nNegative prompt: d\nSteps: 2, Sampler: e"
    assert tree(text) == [
        ("break", " :1.2 AND"), ("break", "AND_PERP"), ("break", " :0.8\n"),
        ("negative", "Negative prompt: d\n"), ("settings", "Steps: 2, Sampler: e"),
    ]  # fmt: skip
    assert tree("hot::2 dog::") == [("part", "::2"), ("part", "::")]
    assert tree("NASA AND a rocket") == [("break", "AND")]


def test_a_negative_part_ends_where_the_positive_one_is_named() -> None:
    assert tree("Negative prompt: rain\nPrompt: a tree") == [
        ("negative", "Negative prompt: rain\nPrompt: ")
    ]
    assert tree("(a\nNegative prompt: b)") == [("negative", "Negative prompt: b)")]


def test_marks_are_the_outermost_closed_ones() -> None:
    text = "a <rewrite:b <lora:c:1>\nd> e <rewrite:f> <rewrite:g"
    assert [text[slice(*m.body)] for m in marks(text)] == ["b <lora:c:1>\nd", "f"]
    assert marks("a <lora:rewrite:1>") == []


PIECES = (
    "(", "[", "{", ")", '"', "'a ", "“", "«", "»", "„", "‚a ", "`", "<a:", "<a:\n", "<rewrite:",
    "\\(", "\\", "__a", ".__a", "--a", "--no a ", "embedding:", "https://", "www.a(", "BREAK ",
    "a AND ", "1.2::a", "a::2 ", "Negative prompt: ", "Steps: 2, Sampler: ", ":", "|", "(a [b {c ",
    "((a:1)", "(a:1.2) ", '"a"', "{a}", "<a>", "<l:a>", "miku \\(v\\) ", "ITEM1 ", " ", "a", "猫",
)  # fmt: skip
SIZE = 100_000


@pytest.mark.parametrize("piece", PIECES)
def test_time_is_linear_whatever_is_repeated(piece: str) -> None:
    begin = time.process_time()
    guarded = protect((piece * SIZE)[:SIZE])
    text = guarded.restore([f"{source}, night" for source in guarded.sources])
    guarded.broken(text)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("opener", "closer"),
    [("(", ")"), ("[", "]"), ("[a", "]"), ("{", "}"), ("(", ":1.2)"), ("<a:", ">"), ("“", "”")],
)
def test_nesting_has_no_limit(opener: str, closer: str) -> None:
    depth = SIZE // len(opener + closer)
    begin = time.process_time()
    guarded = protect(opener * depth + closer * depth)
    assert guarded.restore(guarded.sources) == guarded.original
    assert time.process_time() - begin < 5


def test_thousands_of_weights_are_restored_at_once() -> None:
    guarded = protect(", ".join(f"(thing {i}:1.{i % 9})" for i in range(8000)))
    begin = time.process_time()
    text = guarded.restore([f"{guarded.sources[0]}, night"])
    assert guarded.broken(text) == guarded.unplaced(guarded.sources[0]) == []
    assert time.process_time() - begin < 2
