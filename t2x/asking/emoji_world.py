"""What can be asked about a prompt of the emoji world: kinds, colours, counts, places, and whether
there is more.

Intents are scenes of the training prior (``t2x.world.captions.training_scene``) that agree with the
prompt and the answers. Of the prior only the shape of scenes is taken, how many groups and objects,
how often coloured, how often placed; kinds and colours are drawn anew, all alike, so that a pair
which training never shows can be asked for like any other.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from t2x.asking.kinds import ROOT, node_of, split
from t2x.asking.reading import ANYTHING, Reading, Thing, read_prompt
from t2x.asking.records import MOST_OPTIONS, Feature, Intent, Known, Option
from t2x.world.captions import NUMBER_WORDS, dense_prompt, plural, training_scene
from t2x.world.scene import CLASSES, COLORS, INVERSE, MAX_OBJECTS, RELATIONS, Group, Scene

__all__ = ["FAMILIES", "EmojiWorld", "scene_values"]

FAMILIES = ("kind", "colour", "place", "count", "more")
_ALIKE = "alike"  # the question that says which reading is meant
_POOL = 2000  # scenes of the prior
_MOST_INTENTS = 256
_FEW_INTENTS = 64
_MORE = {"0": "nothing else", "1": "one more kind of thing", "2": "two more kinds of things"}
_WHERE = {"left of": "to the left", "right of": "to the right", "above": "above", "below": "below"}
_ORDINALS = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class EmojiWorld:
    """The subject of one prompt; ``seed`` settles what is drawn where nothing is known yet.

    A prompt that names nothing of the world is taken for "a thing".
    """

    prompt: str
    seed: int = 0

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """Ways to understand the prompt."""
        return read_prompt(self.prompt) or (Reading((Thing(counts=frozenset((1,))),)),)

    @property
    def order(self) -> Sequence[str]:
        """Families by the entropy of their values in the prior, the most uncertain first."""
        return (_ALIKE, *_order())

    # ---- intents ---------------------------------------------------------------------------------

    def intents(self, known: Known) -> list[Intent]:
        """Scenes as intents, ``_MOST_INTENTS`` at most, the same for the same answers."""
        rng = random.Random(f"intents {self.seed} {self.prompt}")
        readings = [_Allowed(reading, known) for reading in self._meant(known)]
        found = _filled(readings, _shapes(), rng, _MOST_INTENTS)
        if len(found) < _FEW_INTENTS:
            found += _filled(readings, _recombined(), rng, _FEW_INTENTS - len(found))
        return found

    def _meant(self, known: Known) -> tuple[Reading, ...]:
        if len(self.readings) == 1 or _ALIKE in known.closed:
            return self.readings[:1]
        chosen = known.value(_ALIKE)
        return self.readings if chosen is None else (self.readings[chosen == "different"],)

    # ---- features --------------------------------------------------------------------------------

    def features(self, known: Known, intents: Sequence[Intent]) -> list[Feature]:
        """What is open. Whether several are of one kind comes alone, since the other questions hang
        on it."""
        readings = self._meant(known)
        if len(readings) > 1:
            (thing,) = readings[0].things
            many = node_of(thing.kinds).plural
            options = (
                Option(f"{many} of one kind", frozenset(("same",))),
                Option(f"different {many}", frozenset(("different",))),
            )
            return [Feature(_ALIKE, _ALIKE, f"Which {many}?", options)]
        things = _things(readings[0], known)
        found: list[Feature | None] = []
        for at, thing in enumerate(things):
            called, plenty = self._name(things, at), min(thing.counts) > 1
            found.append(_kind(at, thing, called, _masses(intents, f"kind {at}")))
            if thing.color is None:
                found.append(_colour(at, called, plenty, _masses(intents, f"color {at}")))
            found.append(_count(at, thing, _masses(intents, f"count {at}")))
        if len(things) == 2 and readings[0].relation is None:
            found.append(self._place(things, _masses(intents, "place")))
        if "more" not in known.allowed:
            found.append(_more(_masses(intents, "more")))
        return [f for f in found if f is not None and f.key not in known.closed]

    def _name(self, things: Sequence[Thing], at: int) -> str:
        """How a question calls a thing: by its kind, with a number if another is called so."""
        names = [node_of(thing.kinds).name for thing in things]
        if names[at] == ROOT.name and len(things) > 1:
            names = [f"other {name}" if name == ROOT.name else name for name in names]
        if names.count(names[at]) == 1:
            return names[at]
        return f"{_ORDINALS[names[:at].count(names[at])]} {names[at]}"

    def _place(self, things: Sequence[Thing], masses: Counter[str]) -> Feature | None:
        names = [self._name(things, at) for at in (0, 1)]
        options = [Option(_WHERE[r], frozenset((r,))) for r in RELATIONS if masses[r]]
        be = "are" if min(things[0].counts) > 1 else "is"
        first = plural(names[0]) if be == "are" else names[0]
        text = f"Where {be} the {first}, seen from the {names[1]}?"
        return _feature("place", "place", text, options)

    # ---- texts -----------------------------------------------------------------------------------

    def text(self, known: Known) -> str:
        """What is known as a caption in the style that the generator draws best; what is not known
        is what most people leave unsaid (own colours, nothing else), or a guess that stays."""
        return dense_prompt(self.scene(known), zlib.crc32(self.prompt.encode()) + self.seed)

    def scene(self, known: Known) -> Scene:
        """The scene that the caption tells."""
        reading = self._meant(known)[0]
        things = _things(reading, known)
        groups: list[Group] = []
        for at, thing in enumerate(things):
            used = {group.cls for group in groups}
            used |= {next(iter(t.kinds)) for t in things if t is not thing and len(t.kinds) == 1}
            left = MAX_OBJECTS - sum(g.count for g in groups) - (len(things) - at - 1)
            count = min(min(thing.counts), max(left, 1))
            groups.append(
                Group(
                    self._guess(at, thing.kinds - used or frozenset(CLASSES) - used),
                    thing.color,
                    count,
                )
            )
        relation = reading.relation or known.value("place") if len(groups) == 2 else None
        return Scene(tuple(groups), relation)

    def _guess(self, at: int, kinds: frozenset[str]) -> str:
        """The same one of some classes whatever else is answered."""
        rng = random.Random(f"guess {self.seed} {at} {self.prompt}")
        return next(c for c in rng.sample(CLASSES, len(CLASSES)) if c in kinds)


def scene_values(scene: Scene, stated: int) -> dict[str, str | None]:
    """What a scene answers: its groups are things in order, of which the prompt names the first
    ``stated``. None where the scene leaves a feature open."""
    values: dict[str, str | None] = {"more": str(len(scene.groups) - stated)}
    for at, group in enumerate(scene.groups):
        values |= {f"kind {at}": group.cls, f"color {at}": group.color}
        values[f"count {at}"] = str(group.count)
    return {**values, "place": scene.relation} if len(scene.groups) == 2 else values


# ---- intents ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _shapes() -> tuple[Scene, ...]:
    """Scenes of the training prior."""
    rng = random.Random("the prior of asking")
    return tuple(training_scene(rng) for _ in range(_POOL))


@lru_cache(maxsize=1)
def _recombined() -> tuple[Scene, ...]:
    """Scenes whose parts are from different scenes of the prior: what a sample of it has too few of
    (three red buses below a cat) is possible all the same."""
    rng = random.Random("the prior of asking, recombined")
    groups = [group for scene in _shapes() for group in scene.groups]
    relations = [scene.relation for scene in _shapes() if len(scene.groups) == 2]
    found = []
    for shape in _shapes():
        parts = rng.sample(groups, len(shape.groups))
        kinds = rng.sample(CLASSES, len(parts))
        drawn = tuple(Group(k, g.color, g.count) for k, g in zip(kinds, parts, strict=True))
        if sum(group.count for group in drawn) <= MAX_OBJECTS:
            found.append(Scene(drawn, rng.choice(relations) if len(drawn) == 2 else None))
    return tuple(found)


def _filled(
    readings: Sequence[_Allowed], shapes: Iterable[Scene], rng: random.Random, most: int
) -> list[Intent]:
    """Intents from the shapes of scenes that agree, about ``most`` at most."""
    found: list[Intent] = []
    for shape in shapes:
        for name, allowed in zip(("same", "different"), readings, strict=False):
            if (values := allowed.fill(shape, rng)) is not None:
                found.append(Intent({**values, _ALIKE: name} if len(readings) > 1 else values))
        if len(found) >= most:
            break
    return found


@lru_cache(maxsize=1)
def _order() -> tuple[str, ...]:
    """Families by the entropy of their values over the prior, kinds and colours all alike."""
    import math

    def entropy(values: Iterable[str | None]) -> float:
        counts = Counter(values).values()
        total = sum(counts)
        return -sum(n / total * math.log(n / total) for n in counts)

    groups = [group for scene in _shapes() for group in scene.groups]
    plain = sum(group.color is None for group in groups) / len(groups)
    own = -sum(p * math.log(p) for p in (plain, 1 - plain))
    uncertain = {
        "kind": math.log(len(CLASSES)),
        "colour": own + (1 - plain) * math.log(len(COLORS)),
        "place": entropy(s.relation for s in _shapes() if len(s.groups) == 2),
        "count": entropy(str(group.count) for group in groups),
        "more": entropy(str(len(scene.groups)) for scene in _shapes()),
    }
    return tuple(sorted(FAMILIES, key=lambda name: -uncertain[name]))


class _Allowed:
    """What a reading and the answers allow, and how a scene of the prior is filled to agree."""

    def __init__(self, reading: Reading, known: Known) -> None:
        self.reading, self.known = reading, known
        self.stated = len(reading.things)
        things = [*reading.things, *[ANYTHING] * MAX_OBJECTS][:MAX_OBJECTS]
        self._kinds = [
            [k for k in CLASSES if k in thing.kinds and self._may(f"kind {at}", k)]
            for at, thing in enumerate(things)
        ]
        self._counts = [
            {c for c in thing.counts if self._may(f"count {at}", str(c))}
            for at, thing in enumerate(things)
        ]
        self._colors = [
            [thing.color] if thing.color else [c for c in COLORS if self._may(f"color {at}", c)]
            for at, thing in enumerate(things)
        ]
        keys = [f"color {at}" for at in range(MAX_OBJECTS)]
        self._colored = [
            bool(thing.color) or key in known.allowed
            for key, thing in zip(keys, things, strict=True)
        ]
        self._plain = [key in known.closed for key in keys]

    def fill(self, shape: Scene, rng: random.Random) -> dict[str, str | None] | None:
        """Values of a scene of that shape with kinds and colours drawn anew; None if none of that
        shape agrees."""
        n = len(shape.groups)
        if n < self.stated or not self._may("more", str(n - self.stated)):
            return None
        if n != 2 and (self.reading.relation is not None or "place" in self.known.allowed):
            return None
        order = list(range(n))
        if n > 1:
            rng.shuffle(order)
        values: dict[str, str | None] = {"more": str(n - self.stated)}
        used: set[str] = set()
        groups = [shape.groups[i] for i in order]
        if not all(self._suits(at, group) for at, group in enumerate(groups)):
            return None
        for at, group in enumerate(groups):
            kinds = [k for k in self._kinds[at] if k not in used]
            if not kinds:
                return None
            kind = rng.choice(kinds)
            used.add(kind)
            values[f"kind {at}"], values[f"count {at}"] = kind, str(group.count)
            values[f"color {at}"] = rng.choice(self._colors[at]) if group.color else None
        if n == 2:
            relation = shape.relation
            values["place"] = INVERSE[relation] if relation and order[0] == 1 else relation
            if not self._placed(values["place"]):
                return None
        return values

    def _suits(self, at: int, group: Group) -> bool:
        if group.count not in self._counts[at]:
            return False
        return not self._plain[at] if group.color else not self._colored[at]

    def _placed(self, relation: str | None) -> bool:
        if self.reading.relation is not None:
            return relation == self.reading.relation
        if "place" in self.known.closed:
            return relation is None
        return self._may("place", relation)

    def _may(self, key: str, value: str | None) -> bool:
        allowed = self.known.allowed.get(key)
        return allowed is None or value in allowed


# ---- features -----------------------------------------------------------------------------------


def _things(reading: Reading, known: Known) -> list[Thing]:
    """The things of a reading and those that were added, narrowed by the answers."""
    added = int(known.value("more") or 0)
    return [_narrowed(at, t, known) for at, t in enumerate((*reading.things, *[ANYTHING] * added))]


def _narrowed(at: int, thing: Thing, known: Known) -> Thing:
    kinds = known.allowed.get(f"kind {at}", thing.kinds)
    counts = known.allowed.get(f"count {at}")
    colors = known.allowed.get(f"color {at}", frozenset())
    return Thing(
        kinds & thing.kinds,
        thing.counts if counts is None else frozenset(map(int, counts)),
        thing.color or next((c for c in COLORS if c in colors), None) if len(colors) < 2 else None,
    )


def _masses(intents: Sequence[Intent], key: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for intent in intents:
        if (value := intent.values.get(key)) is not None:
            found[value] += 1
    return found


def _feature(
    key: str, family: str, text: str, options: Sequence[Option], rest: Iterable[str] = ()
) -> Feature | None:
    if len(options) < 2:
        return None
    return Feature(key, family, text, tuple(options), frozenset(rest))


def _kind(at: int, thing: Thing, name: str, masses: Counter[str]) -> Feature | None:
    possible = thing.kinds & frozenset(masses)
    if len(possible) < 2:
        return None
    many = min(thing.counts) > 1
    options = []
    for label, kinds in split(possible):
        shown = node_of(kinds).plural if many else label
        options.append(Option(shown, kinds))
    text = f"Which {node_of(thing.kinds).plural}?" if many else f"What is the {name}?"
    return _feature(f"kind {at}", "kind", text, options)


def _colour(at: int, name: str, many: bool, masses: Counter[str]) -> Feature | None:
    ranked = [color for color, _ in masses.most_common()]
    shown, rest = ranked[:MOST_OPTIONS], ranked[MOST_OPTIONS:]
    if len(rest) == 1:
        shown, rest = ranked[: MOST_OPTIONS - 1], ranked[MOST_OPTIONS - 1 :]
    options = [Option(color, frozenset((color,))) for color in shown]
    text = f"What colour are the {plural(name)}?" if many else f"What colour is the {name}?"
    return _feature(f"color {at}", "colour", text, options, rest)


def _count(at: int, thing: Thing, masses: Counter[str]) -> Feature | None:
    if len(thing.counts) < 2:
        return None
    counts = [c for c in map(str, range(1, MAX_OBJECTS + 1)) if masses[c]]
    options = [Option(NUMBER_WORDS[int(c)], frozenset((c,))) for c in counts]
    return _feature(f"count {at}", "count", f"How many {node_of(thing.kinds).plural}?", options)


def _more(masses: Counter[str]) -> Feature | None:
    options = [Option(label, frozenset((n,))) for n, label in _MORE.items() if masses[n]]
    return _feature("more", "more", "Is there anything else in the picture?", options)
