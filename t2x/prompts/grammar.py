"""What a reader of noun phrases has to know of a language: small tables, no model.

English is in this module, German and Spanish are in ``t2x.prompts.grammars``. Chinese has no
blanks between its words, so that ``t2x.prompts.chinese`` reads it by other means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from t2x.prompts.forms import noun_of
from t2x.prompts.words import COLOUR_FAMILIES, NUMBER_WORDS, words

__all__ = ["ENGLISH", "Grammar", "is_english_adjective"]


@dataclass(frozen=True, eq=False)
class Grammar:
    """Words of one language by what they do in a phrase.

    ``ranges`` are vague numbers with the least and the most that they may mean; ``relations`` maps
    patterns of places to their names, tried in order (``t2x.prompts.relations``); ``head`` says
    where the noun of a phrase stands: the last word, the first one, or the one with a capital.
    """

    name: str
    determiners: frozenset[str]
    ones: frozenset[str]
    others: frozenset[str]  # "another": one more than was told
    boundaries: frozenset[str]
    conjunctions: frozenset[str]
    pronouns: frozenset[str]
    possessives: frozenset[str]
    verbs: frozenset[str]
    numbers: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]]
    colours: Mapping[str, frozenset[str]]
    shades: frozenset[str]  # "deep", "bright", "hue": they leave a colour a colour
    of: frozenset[str]
    relations: tuple[tuple[re.Pattern[str], str], ...]
    head: Literal["last", "first", "capital"] = "last"


def _any(alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w<@-])(?:{alternatives})(?![\w-])")


_SIDE = r"(?:hand )?(?: ?(?:side|edge|half|part))?"
_WAY = r"(?:just |directly |immediately |slightly |right |standing |sitting )?"
_IN_THE = r"(?:in|at|on|to|towards?|along) (?:the )?(?:far |very |upper |lower |extreme )?"
_RELATIONS = (
    ("topped (?:with|by)|crowned (?:with|by)|covered (?:with|by|in)|strewn with", "<on"),
    ("(?:holds|supports|bears|holding|supporting|bearing)(?= (?:an?|the|one|two|\\d))", "hold"),
    ("containing|contains|filled with|full of|housing|houses|enclosing|encloses|encasing"
     "|home to", "<in"),
    ("surrounded (?:by|with)|encircled by|ringed by|enclosed by", "<around"),
    ("flanked (?:by|on (?:both|either) sides? by)|bordered by|sandwiched by", "between"),
    ("(?:on|to|at) (?:either|both|each) sides?(?! of)", "@sides"),
    ("(?:veil|screen|hide|obscure|mask|conceal|shroud|eclipse)s?(?= (?:an?|the) )"
     "(?<!its hide)(?<!the hide)", "front soft"),
    ("cent(?:re|er)ed (?:on|in)", "in"),
    ("(?:on|at) (?:either|both) sides? of|flanking|flanks?(?= (?:an?|the) )"
     "|(?:to|on|at) (?:the )?left and (?:(?:to|on) )?(?:the )?right(?: sides?)? of", "<between"),
    (rf"{_WAY}(?:to|on|at|towards?) (?:the )?(?:far |immediate )?left{_SIDE} of|left of", "left"),
    (rf"{_WAY}(?:to|on|at|towards?) (?:the )?(?:far |immediate )?right{_SIDE} of"
     rf"|right of", "right"),
    ("(?:to|on|at) (?:its|his|her|their) (?:own )?left(?: side)?", "left it"),
    ("(?:to|on|at) (?:its|his|her|their) (?:own )?right(?: side)?", "right it"),
    (rf"{_IN_THE}left{_SIDE}(?! (?:wing|foot|leg|eye|arm|paw|ear|wall|bank))"
     rf"|(?<=\. )left:|^left:|leftmost", "@left"),
    (rf"{_IN_THE}right{_SIDE}(?! (?:wing|foot|leg|eye|arm|paw|ear|wall|bank))"
     rf"|(?<=\. )right:|^right:|rightmost", "@right"),
    ("tops|crowns|caps|topping|crowning|capping|mounted on|on (?:the )?top of"
     "|on the surface of|perched atop|atop|on top|astride", "on"),
    (rf"{_IN_THE}(?:back ?ground|distance|rear|back)(?! of)", "@behind"),
    (rf"{_IN_THE}(?:fore ?ground|front)(?! of)", "@front"),
    ("against (?:the|a) backdrop of|with (?:the|a) backdrop of", "front"),
    (r"(?<=[a-z] )left(?=[,.;]|$)", "@left"),
    (r"(?<=[a-z] )right(?=[,.;]|$)", "@right"),
    ("overhead(?! of)|up above", "above it"),
    ("underfoot", "below it"),
    ("face to face|eye to eye|nose to nose|toe to toe", "facing each"),
    ("(?:directly |right |just )?(?:in front of|ahead of|before(?= (?:it|them|him|her"
     "|a|an|the)\\b))", "front"),
    ("(?:at|in) (?:its|their) (?:very )?(?:centre|center|heart|middle)|in (?:its"
     "|their) midst", "in it"),
    ("at (?:its|their) (?:foot|feet|base|bottom)", "below it"),
    ("(?:at|by) (?:its|their|his|her) side", "near it"),
    ("on (?:its|their|his|her) (?:top|back|surface)", "on it"),
    ("wearing|wears|dressed in|clad in|in (?:his|her) (?=\\w+ ?(?:hat|cap|coat|dress"
     "|suit))", "<on soft"),
    ("(?:directly |right |just )?(?:in back of|(?:at|to|towards?) the (?:back|rear) of"
     "|in the shadow of|behind)", "behind"),
    ("(?:in|through) the (?:gap|space|middle|narrow gap) between|in between"
     "|sandwiched between|wedged between|between|betwixt", "between"),
    ("(?:in|into|at|to|from) the (?:very )?(?:middle|centre|center|midst|heart|depths"
     "|inside|interior) of", "in"),
    ("next to|beside|besides|alongside(?: of)?|adjacent to|close to|near(?: to)?|at the side of"
     "|by the side of|side by side with|neighbou?ring|together with|right by|just off"
     "|hard by", "near"),
    ("side by side|next to (?:each other|one another)|beside (?:each other"
     "|one another)|nearby|shoulder to shoulder", "near each"),
    ("underneath|beneath|below|under|at the (?:foot|base|bottom) of", "below"),
    ("(?:high |directly |right |just )?above|overhead of|higher than", "above"),
    ("over(?! the years)", "over"),
    ("inside(?: of)?|within|into", "in"),
    ("outside(?: of)?|out of", "out"),
    ("around|encircling|surrounding|orbiting|circling", "around"),
    ("against", "near"),
    ("opposite(?: to| of)?|across from|facing", "facing"),
    ("upon|onto|on", "on"),
    ("in", "in"),
    ("by", "by"),
)  # fmt: skip

_ADJECTIVES = words(
    """
    first second third fourth last former latter brilliant elegant distant vibrant radiant fragrant
    resplendent vacant big small large little tiny huge giant
    tall short long wide narrow thin thick fat slim old young
    new ancient modern vintage antique rustic wild calm quiet soft hard warm cold hot cool wet dry
    clean dirty bright dark light pale deep vivid rich dull plain simple elegant fancy cute
    beautiful pretty ugly lovely gorgeous majestic magnificent strange odd weird single lone lonely
    solitary sole open closed full half broken whole round square flat sharp smooth rough furry
    striped spotted wooden golden woolen woollen stone metal metallic glass plastic leather brick
    paper marble steel iron bronze ceramic porcelain velvet silk cotton knitted crystal concrete
    chrome fresh ripe raw sweet crisp cozy cosy busy crowded lush dense bare proud brave wise
    happy sad angry sleepy tired playful curious gentle fierce noble royal sleek sturdy delicate
    intricate detailed ornate polished worn weathered faded blooming burning glowing floating
    flying standing sitting sleeping running traditional medieval victorian futuristic urban rural
    close far apart northern southern late early main central left right upper lower distant nearby
    matching
    same identical different various separate similar other several few many more most real fake
    brightly softly fully freshly neatly beautifully newly gently red-hot slender graceful
    mighty steaming sparkling towering winding misty foggy sunny rainy snowy stormy windy cloudy
    fluffy shiny glossy dusty rusty muddy mossy leafy grassy rocky sandy icy chilly shaggy scruffy
    """
)
_NOUNS_LIKE_ADJECTIVES = words(
    """
    city baby puppy lady body sky berry cherry party fairy library pony bunny kitty teddy country
    family butterfly daisy lily story storey army diary dairy jelly candy cherry daddy mummy balcony
    bakery gallery battery factory nursery pottery jewelry jewellery pastry strawberry blueberry
    raspberry blackberry cemetery chimney donkey monkey turkey valley jersey alley honey money key
    boy toy day way tray bay clay play spray highway railway runway doorway monastery deputy ferry
    fly belly ivy poppy peony ruby trophy galaxy penny copy memory husky guppy jockey hockey whiskey
    animal crystal metal medal pedal petal journal hospital festival canal signal mural cereal coral
    cathedral capital terminal carnival general portal admiral native olive detective wave cave dove
    glove stove curve sleeve music picnic fabric mosaic mechanic clinic traffic garlic tunic plastic
    elephant giant restaurant plant merchant servant infant assistant pendant ant pant table cable
    vegetable bus cactus circus octopus hippopotamus walrus campus fish dish radish bed seed shed
    weed reed sled building painting ring king wing ceiling string wedding spring swing duckling
    clothing evening morning being drawing earring railing sibling pudding dumpling lightning
    lighting casing dressing sapling gosling ping darling herring viking
    """
)
_ADJECTIVE_ENDING = re.compile(
    r"(?:[bcdfghklmnprstvwz]y|ful|ous|ish|al|ive|ic|able|ible|less|ed|ing|[^aeiou]est)$"
)


@lru_cache(maxsize=4096)
def is_english_adjective(word: str) -> bool:
    """Whether a lower-case ``word`` rather describes a thing than names one."""
    if (
        word.endswith("fish")
        or word in _NOUNS_LIKE_ADJECTIVES
        or noun_of(word) in _NOUNS_LIKE_ADJECTIVES
    ):
        return False
    if word in _ADJECTIVES:
        return True
    if "-" in word:
        return bool(re.search(r"(?:ed|ing|like|sized|shaped|old|style|high|long|up|free)$", word))
    return len(word) > 3 and _ADJECTIVE_ENDING.search(word) is not None


ENGLISH = Grammar(
    name="en",
    determiners=words("a an the this that these those each every some any my your our no"),
    ones=words("a an one single lone solitary sole 1"),
    others=words("another additional extra further"),
    boundaries=words(
        """
        of with without for from at to as than via per through across along during toward towards
        among amongst amid amidst beyond off up down into onto like while when where which
        who whom that's whose there here is are was were be been being am it's has have had do does
        did can could will would shall should may might must not never only just also too very so
        then but if because although though yet both either neither nor plus versus vs except about
        after before until since please show draw make create give generate paint want see
        featuring depicting showing against
        past asleep awake aglow ablaze afloat adrift aloft ajar alight afire aflame alive alone
        agape askew
        """
    ),
    conjunctions=words("and or & ,"),
    pronouns=words("it them him one they he she itself themselves which"),
    possessives=words("its his her their whose"),
    verbs=words(
        """
        stands sits lies rests hangs floats runs walks rides drives holds wears looks sleeps jumps
        swims plays watches shines glows rises hovers leans faces overlooks contains fills flows
        grows falls stretches reaches leads soars glides drifts crosses carries eats drinks reads
        waits dances smiles laughs perches stand sit lie rest hang float run walk sleep swim hover
        lean soar glide drift cross dance perch grow stood sat lay hung ran rose flew held read
        appears appear emerges emerge crouches crouch kneels kneel curls chases chase jump wait
        towers loom looms gather gathers circle burn burns bloom blooms hold carry wear ride
        stacked left seen made set built lit strung hung bound drawn worn torn broken frozen
        hidden woven spun flung caught kept shown spread stuck swept thrown tied wound bent buried
        surround surrounds pulls pull pushes push flank flanks shine glow sprawls dangles dangle
        home crowd crowds clings nestles gleam gleams glitter glitters flicker flickers shimmer
        shimmers sparkle
        sparkles glisten glistens flutter flutters sway sways swirl swirls drip drips gallops roars
        barks climbs climb wades bows kicks bites leaps glows
        """
    ),
    numbers=NUMBER_WORDS,
    ranges={"several": (3, 12), "few": (2, 6), "many": (5, 10**9), "numerous": (5, 10**9),
            "countless": (20, 10**9), "hundreds": (100, 10**9), "thousands": (1000, 10**9),
            "dozens": (24, 10**9)},
    colours=COLOUR_FAMILIES,
    shades=words(
        """
        bright dark light pale deep vivid soft rich brilliant dusty muted warm cool hot pastel
        faded glossy matte shiny colour color hue hues shade shades tone tones tint coloured colored
        bold pure solid vibrant all entirely mostly fully completely tinted intense and
        """
    ),
    of=frozenset(("of",)),
    relations=tuple((_any(pattern), name) for pattern, name in _RELATIONS),
)  # fmt: skip
