"""Numbers, colours and places in Chinese, which has no blanks between its words.

A thing is known by the characters after a measure word or 的; two names are alike if one holds the
last character of the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from t2x.prompts.numerals import chinese_value

__all__ = ["lost_colours", "lost_counts", "lost_relations"]

_MEASURES = (
    "只个条匹头位名辆座朵棵张把本支枝杯盘碗瓶艘架台栋幢颗粒根件双对"
    "群束串片块扇盏幅朵枚尊口间家层扎打"
)
_COUNT = re.compile(
    rf"([\d]+|[零〇一二两三四五六七八九十百千]+)([{_MEASURES}])([^，。、；,.和与跟]*?)(?=[，。、；,.和与跟在正]|$"
    rf"|[\d一二两三四五六七八九十]+[{_MEASURES}])"
)
_PAIRS = (("俩", 2), ("仨", 3))
_MULTIPLES = {"对": 2, "双": 2, "打": 12}
_COLOURS = {
    "红": "red", "绯": "red", "赤": "red", "朱": "red", "蓝": "blue", "绿": "green", "翠": "green",
    "黄": "yellow", "金": "gold", "橙": "orange", "橘": "orange", "紫": "purple", "粉": "pink",
    "黑": "black", "白": "white", "灰": "grey", "银": "silver", "棕": "brown", "褐": "brown",
    "青": "cyan",
}  # fmt: skip
_COLOUR = re.compile(
    rf"([{''.join(_COLOURS)}])(红)?(?:色)?(?:的)?(?:[^，。、；,.和与的在]{{0,4}}的)?([^，。、；,.和与的在是有停放坐站飞]{{1,4}})"
)
_SLOWLY = (
    "懒洋洋|慢悠悠|静悄悄|慢吞吞|孤零零|静静|缓缓|悄悄|慢慢|安静|轻轻|高高|稳稳|乖乖|悠闲|慵懒"
    "|安详|孤独"
)
_DOING = "睡|坐|站|躺|跑|飞|正|一起|并排|依偎|蜷|趴|游|走|玩|追|嬉|奔|停|漂|散"
_PLACES = {
    "左": "left", "右": "right", "上": "on", "下": "below", "里": "in", "内": "in", "中": "in",
    "后": "behind", "前": "front", "旁": "near", "外": "out",
}  # fmt: skip
_INVERSE = {"left": "right", "right": "left", "behind": "front", "front": "behind", "on": "below",
            "below": "on"}  # fmt: skip
_PLACE = re.compile(
    rf"([^，。、；,.]+?)(?:站|坐|躺|放|停|睡|趴|摆|挂|位)?(?:在|于|从)([^，。、；,.]+?)[的之底]?([{''.join(_PLACES)}])(?:边|面|方"
    rf"|侧|头)?(?=[，。、；,.]|$|(?![的之{''.join(_PLACES)}])[^，。、；,.]{{1,6}}(?:[，。、；,.]|$))"
)
_EXISTS = re.compile(
    rf"([^，。、；,.]+?)[的之底]?([{''.join(_PLACES)}])(?:边|面|方|侧|头)?"
    rf"(?:有|是|[^，。、；,.的]{{1,3}}着)([^，。、；,.]+)"
)


def _noun(text: str) -> str:
    """The last characters of what may be a long description: 毛茸茸的猫 gives 猫."""
    text = re.sub(rf"(?:{_DOING}).*$", "", text) or text
    return text.rsplit("的", 1)[-1][-2:]


def _alike(one: str, two: str) -> bool:
    one, two = (name[:-1] if len(name) > 1 and name[-1] in "子儿" else name for name in (one, two))
    return bool(one and two) and (one[-1] == two[-1] or one in two or two in one)


def _counts(text: str) -> Iterator[tuple[int, str]]:
    for match in _COUNT.finditer(text):
        numeral, measure, rest = match.groups()
        value = chinese_value(numeral) * _MULTIPLES.get(measure, 1)
        yield value, _noun(rest)
    for sign, value in _PAIRS:
        for match in re.finditer(rf"([^，。、；,.]{{0,3}}){sign}", text):
            yield value, _noun(match.group(1))


def lost_counts(original: str, rewrite: str) -> list[str]:
    """As ``t2x.prompts.counts.lost_counts``."""
    told = list(_counts(rewrite))
    lost = []
    for value, noun in _counts(original):
        same = [n for n, other in told if _alike(noun, other) or not noun]
        if value == 1:
            bad = bool(same) and 1 not in same
        else:
            bad = (
                value not in same
                and sum(same) != value
                and (bool(same) or value not in [n for n, _ in told])
            )
        if bad:
            lost.append(f"the number {value} of {noun!r} is lost")
    return lost


def _coloured(text: str) -> Iterator[tuple[str, str]]:
    for match in _COLOUR.finditer(text):
        family = "pink" if match.group(1) == "粉" else _COLOURS[match.group(1)]
        yield family, match.group(3)
    for match in re.finditer(
        rf"([^，。、；,.和与的在是有]{{1,4}})(?:是|呈)(?:\w{{0,2}})([{''.join(_COLOURS)}])色?", text
    ):
        yield _COLOURS[match.group(2)], match.group(1)


def lost_colours(original: str, rewrite: str) -> list[str]:
    """As ``t2x.prompts.colours.lost_colours``."""
    told = list(_coloured(rewrite))
    return [
        f"the colour {family!r} of {noun!r} is lost"
        for family, noun in _coloured(original)
        if not any(family == f and _alike(_noun(noun), _noun(n)) for f, n in told)
    ]


def _relations(text: str) -> Iterator[tuple[str, str, str]]:
    for match in _PLACE.finditer(text):
        thing = re.sub(rf"(?:{_SLOWLY})?地.*$", "", match.group(1)) or match.group(1)
        yield _PLACES[match.group(3)], _noun(thing), _noun(match.group(2))
    for match in _EXISTS.finditer(text):
        yield _PLACES[match.group(2)], _noun(match.group(3)), _noun(match.group(1))


def lost_relations(original: str, rewrite: str) -> list[str]:
    """As ``t2x.prompts.places.lost_relations``."""
    told = list(_relations(rewrite))
    told += [(_INVERSE[name], b, a) for name, a, b in told if name in _INVERSE]
    told += [(name, b, a) for name, a, b in told if name == "near"]
    return [
        f"{a!r} {name} {b!r} is lost"
        for name, a, b in _relations(original)
        if not any(name == n and _alike(a, c) and _alike(b, d) for n, c, d in told)
    ]
