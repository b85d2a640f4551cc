"""English word tables of the checks: numbers, colours, styles, empty words.

Which words name one thing, and what says that something is absent: ``t2x.prompts.synonyms``.
"""

from __future__ import annotations

__all__ = [
    "COLOUR_FAMILIES",
    "COLOUR_THINGS",
    "COUNTING_WORDS",
    "IRREGULAR_PLURALS",
    "MULTIPLES",
    "NUMBER_WORDS",
    "SOFT_COLOURS",
    "SOFT_NUMBERS",
    "STOP_WORDS",
    "STYLE_FAMILY",
    "TELLING_COLOURS",
    "words",
]


def words(text: str) -> frozenset[str]:
    """Split a table of words."""
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
    "twosome": 2,
    "foursome": 4,
    "quadruplets": 4,
    "sextet": 6,
    "septet": 7,
    "octet": 8,
    "zero": 0,
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
    "people": "person",
    "knives": "knife",
    "wives": "wife",
    "lives": "life",
    "leaves": "leaf",
    "wolves": "wolf",
    "shelves": "shelf",
    "loaves": "loaf",
    "calves": "calf",
    "elves": "elf",
    "halves": "half",
    "scarves": "scarf",
    "thieves": "thief",
    "dice": "die",
    "cacti": "cactus",
    "fungi": "fungus",
    "octopi": "octopus",
    "fishermen": "fisherman",
    "firemen": "fireman",
    "policemen": "policeman",
    "snowmen": "snowman",
    "businessmen": "businessman",
    "grandchildren": "grandchild",
}

# Each family with the names that may stand for it; a name in two families may stand for either.
_COLOURS = {
    "red": """
        red ruddy rufous rubicund vermillioned blood-red tomato-red cherry-red brick-red
        wine-red fire-engine-red reddish redhead vermeil cinnabar poppy crimson scarlet ruby
        maroon burgundy vermilion vermillion cherry carmine cardinal garnet rust auburn
        russet brick claret oxblood titian raspberry cranberry carnelian reddened
    """,
    "orange": """
        orange marigold persimmon carrot burnt-orange salmon-orange flame orangish amber
        tangerine apricot coral peach ginger pumpkin rust copper vermilion terracotta
        marmalade mandarin
    """,
    "yellow": """
        yellow lemony straw-coloured sunny-yellow jonquil citrine topaz xanthic maize corn
        butter golden-yellow towheaded buttercup primrose daffodil amber-yellow platinum
        straw ocher yellowish golden gold lemon mustard canary blonde blond saffron ochre
        amber sunflower honey flaxen yolk custard wheaten
    """,
    "green": """
        green greenery-green fern kelly bottle-green forest-green sea-green lime-green
        pea-green jade-green mossy viridescent malachite-green shamrock spruce pine-green
        seafoam verdigris celadon peridot greenish emerald jade lime olive teal mint sage
        turquoise chartreuse moss malachite viridian aquamarine verdant pistachio khaki
        absinthe myrtle loden avocado
    """,
    "blue": """
        blue sky-blue steel-blue powder-blue ice-blue midnight-blue prussian baby-blue
        electric-blue bluebell wedgwood lapis cornflower royal-blue teal-blue bluish azure
        navy cobalt sapphire indigo cyan turquoise teal cerulean aqua aquamarine ultramarine
        periwinkle denim
    """,
    "purple": """
        purple violaceous wine grape heather mulberry royal-purple orchid wisteria thistle
        heliotrope purplish violet lavender lilac indigo mauve plum magenta amethyst
        aubergine eggplant periwinkle burgundy
    """,
    "pink": """
        pink rose-pink bubblegum-pink hot-pink shell-pink carnation flamingo cerise
        rose-coloured peachy candyfloss pinkish magenta fuchsia rose salmon coral blush
        peach rosy
    """,
    "brown": """
        brown nut-brown mocha chocolatey tawny fawn bay ginger-brown hazelnut cocoa tobacco
        brunet earthen sepia-brown copper-brown brownish chocolate tan chestnut beige bronze
        russet umber sepia mahogany hazel caramel coffee khaki auburn taupe cinnamon copper
        brunette sienna walnut terracotta cognac camel toffee rosewood bistre
    """,
    "black": """
        black jet-black coal-black raven-black ink-black soot-black sooty black-as-coal ebon
        night-black swarthy pitch-black coal blackish ebony jet onyx charcoal raven obsidian
        inky sable blackened
    """,
    "white": """
        white off-white bone-white chalk-white lily-white hoary bleached whitewashed
        snowy-white albino cream-white blanched eggshell porcelain snow-white milk-white
        chalky whitish ivory snowy alabaster cream pearl milky pearly bone chalk
    """,
    "grey": """
        grey steel-grey silver-grey ash-grey smoky leaden iron-grey stone-grey dove-grey
        pewter-grey slate-grey salt-and-pepper gray greyish grayish silver slate charcoal
        ashen pewter gunmetal ash graphite silvery taupe
    """,
    "beige": "beige sandy oatmeal buff fawn cream tan sand khaki ecru ivory camel biscuit taupe",
    "gold": "gold golden-hued aureate burnished-gold golden gilded gilt",
    "silver": "silver silver-plated silvered argent chrome silvery",
    "turquoise": "turquoise teal aqua aquamarine cyan",
}
COLOUR_FAMILIES: dict[str, frozenset[str]] = {
    word: frozenset(family for family, names in _COLOURS.items() if word in names.split())
    for words in _COLOURS.values()
    for word in words.split()
}
# Nouns as often as colours: they satisfy a colour, but don't demand one.
SOFT_COLOURS = words(
    """
    cherry amber lime olive mint plum rose salmon chocolate tan chestnut bronze jet slate charcoal
    ruby emerald jade sapphire golden silver lemon canary tangerine apricot snowy lavender mustard
    grape wine orchid thistle heather mulberry carnation flamingo fern spruce shamrock corn maize
    butter topaz citrine flame carrot marigold smoky leaden sandy buff bay fawn tawny cocoa mocha
    tobacco hazelnut eggshell porcelain earthen chrome kelly bluebell prussian wisteria sooty mossy
    peachy ruddy buttercup primrose daffodil platinum straw lapis cornflower coal poppy redhead
    gold coral peach ginger pumpkin rust copper cardinal garnet brick sage moss aqua denim honey
    sunflower saffron pearl cream bone chalk ash raven obsidian onyx ivory ebony sable hazel caramel
    coffee cinnamon walnut mahogany sand blush amethyst aubergine eggplant pistachio pewter graphite
    terracotta gilded gilt silvery milky rosy verdant inky sepia turquoise claret sienna malachite
    raspberry cranberry carnelian marmalade mandarin yolk custard absinthe myrtle loden avocado
    cognac camel toffee rosewood biscuit blackened reddened flamingo
    """
)
# Of these the ones that ask for the colour all the same when they stand before a noun.
TELLING_COLOURS = words(
    """
    golden silver emerald ruby jade sapphire amber charcoal slate lavender ivory turquoise gold
    leaden ruddy tawny smoky coral cream ebony sage obsidian terracotta peach olive
    """
)

# Things by which a colour is told: "the colour of ripe lemons", "tomato-coloured".
_COLOUR_THINGS = {
    "red": "blood tomato cherry strawberry poppy brick fire raspberry wine rose ruby lobster flame"
    " lipstick pepper chilli chili ketchup cranberry ember rust fox garnet",
    "white": "snow milk chalk cotton cloud bone ivory pearl swan cream marble salt sugar paper lily"
    " flour frost alabaster eggshell foam moonlight",
    "black": "ink coal night soot tar pitch raven ebony midnight oil jet onyx obsidian crow panther"
    " liquorice licorice charcoal",
    "blue": "sky sea ocean cornflower sapphire lapis forget-me-not denim blueberry midnight"
    " bluebell cobalt jay",
    "green": "grass moss leaf lime pea bottle emerald jade fern olive mint apple forest pine clover"
    " seaweed basil avocado cucumber pickle cactus lettuce spinach frog",
    "yellow": "lemon sun buttercup banana corn straw canary butter mustard sunflower daffodil yolk"
    " custard honey wheat hay sulphur cheese",
    "purple": "plum grape lavender aubergine lilac amethyst eggplant violet orchid wine blackberry"
    " mulberry iris",
    "pink": "flamingo bubblegum rose candyfloss salmon cherry-blossom peony cotton-candy candy"
    " raspberry blossom shrimp",
    "brown": "chocolate coffee mud earth chestnut toffee caramel cinnamon walnut bark cocoa tobacco"
    " acorn hazelnut oak leather tea nutmeg molasses bear wood cognac gingerbread",
    "grey": "ash smoke slate stone steel lead storm elephant dove mouse pewter concrete fog iron"
    " cement wolf pigeon granite",
    "orange": "carrot pumpkin tangerine apricot rust flame marmalade mango persimmon tiger copper"
    " ginger ember",
    "gold": "gold honey wheat",
    "silver": "silver moon moonlight chrome",
    "beige": "sand oatmeal camel biscuit parchment",
    "turquoise": "lagoon",
}
COLOUR_THINGS: dict[str, frozenset[str]] = {
    word: frozenset(family for family, names in _COLOUR_THINGS.items() if word in names.split())
    for names in _COLOUR_THINGS.values()
    for word in names.split()
}

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

STOP_WORDS = words(
    """
    a an the and or of in on at to for with by from into onto over under is are was were be been
    being it its this that these those there here as who which whose what some any i you he she they
    we my your his her their our me him them us want wants would like please can could make draw
    show give create generate picture image photo photograph drawing very really just also has have
    had do does did not no without but so than then too up down out off im i'm id i'd let lets let's
    """
)
