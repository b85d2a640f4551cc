"""Word tables behind ``t2x.prompts.constraints``: numbers, colours, styles, empty words."""

from __future__ import annotations

__all__ = [
    "COLOUR_FAMILIES",
    "COUNTING_WORDS",
    "IRREGULAR_PLURALS",
    "MULTIPLES",
    "NUMBER_WORDS",
    "SOFT_COLOURS",
    "SOFT_NUMBERS",
    "STOP_WORDS",
    "STYLE_FAMILY",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ONE_TO_TWENTY = """
one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty
"""
_TENS = "thirty forty fifty sixty seventy eighty ninety"
COUNTING_WORDS: dict[str, int] = {w: n for n, w in enumerate(_ONE_TO_TWENTY.split(), 1)} | {
    word: 10 * n for n, word in enumerate(_TENS.split(), 3)
}
NUMBER_WORDS: dict[str, int] = COUNTING_WORDS | {
    "pair": 2,
    "couple": 2,
    "duo": 2,
    "twin": 2,
    "twins": 2,
    "both": 2,
    "trio": 3,
    "threesome": 3,
    "triplets": 3,
    "quartet": 4,
    "quintet": 5,
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
}
# What a number counts where it stands before one of these, the smaller first: "two dozen" is 24.
MULTIPLES = {"pairs": 2, "couples": 2, "dozen": 12, "hundred": 100, "thousand": 1000}
# Say a number, but don't demand that one is kept.
SOFT_NUMBERS = frozenset({"both", "hundred", "thousand"})

IRREGULAR_PLURALS = {
    "buses": "bus",
    "children": "child",
    "feet": "foot",
    "geese": "goose",
    "men": "man",
    "mice": "mouse",
    "oxen": "ox",
    "teeth": "tooth",
    "women": "woman",
}

_COLOURS = {
    "red": "red crimson scarlet ruby maroon burgundy vermilion cherry",
    "orange": "orange amber tangerine apricot",
    "yellow": "yellow golden lemon mustard canary",
    "green": "green emerald jade lime olive teal mint",
    "blue": "blue azure navy cobalt sapphire indigo cyan turquoise teal",
    "purple": "purple violet lavender lilac indigo mauve plum",
    "pink": "pink magenta fuchsia rose salmon",
    "brown": "brown chocolate tan chestnut beige bronze",
    "black": "black ebony jet onyx charcoal",
    "white": "white ivory snowy alabaster",
    "grey": "grey gray silver slate charcoal ashen",
}
COLOUR_FAMILIES: dict[str, frozenset[str]] = {
    word: frozenset(family for family, names in _COLOURS.items() if word in names.split())
    for words in _COLOURS.values()
    for word in words.split()
}
# Nouns as often as colours: they satisfy a colour, but don't demand one.
SOFT_COLOURS = _words(
    """
    cherry amber lime olive mint plum rose salmon chocolate tan chestnut bronze jet slate charcoal
    ruby emerald jade sapphire golden silver lemon canary tangerine apricot snowy lavender mustard
    """
)

_STYLES = {
    "drawing": "line art|lineart|line drawing|pencil drawing|pencil sketch|sketch|charcoal drawing"
    "|ink drawing|doodle|coloring page|colouring page",
    "painting": "watercolor|watercolour|oil painting|acrylic painting|gouache|impressionist"
    "|impressionism|fresco|ukiyo-e",
    "flat": "pixel art|vector art|flat design|clip art|clipart|logo|stencil|silhouette|low poly"
    "|isometric|paper cut|papercut",
    "cartoon": "cartoon|comic book|anime|manga|chibi|children's book illustration",
    "3d": "3d render|3d rendering|claymation|plasticine|voxel",
    "photo": "photorealistic|photo-realistic|photorealism|hyperrealistic|hyper-realistic"
    "|realistic photo|dslr|polaroid|film photo",
    "mono": "black and white|black-and-white|monochrome|greyscale|grayscale|sepia",
}
STYLE_FAMILY: dict[str, str] = {
    word: family for family, words in _STYLES.items() for word in words.split("|")
}

STOP_WORDS = _words(
    """
    a an the and or of in on at to for with by from into onto over under is are was were be been
    being it its this that these those there here as who which whose what some any i you he she they
    we my your his her their our me him them us want wants would like please can could make draw
    show give create generate picture image photo photograph drawing very really just also has have
    had do does did not no without but so than then too up down out off im i'm id i'd let lets let's
    """
)
