"""Words that people use and captions do not: synonyms, riddles, counts, ways to tell a relation.

The rule-based arm (``t2x.world.rules``) reads these tables as well.
"""

from __future__ import annotations

from t2x.world.captions import plural
from t2x.world.scene import CLASSES

__all__ = [
    "COLOR_SYNONYMS",
    "COLOR_THINGS",
    "COUNT_NOUNS",
    "RELATION_PHRASES",
    "RIDDLES",
    "SYNONYMS",
    "plural_of",
]

# class: synonyms | riddles
_TABLE: dict[str, str] = {
    "cat": "kitten, kitty, feline | animal that purrs, pet that chases mice",
    "dog": "puppy, hound, doggy | animal that barks, pet that fetches sticks",
    "horse": "pony, stallion, mare | animal that a jockey rides, animal that wears a saddle",
    "cow": "calf, heifer | animal that gives milk, animal that says moo",
    "sheep": "lamb, ewe | animal that gives wool, animal that says baa",
    "elephant": "jumbo, pachyderm | animal with a trunk, animal with tusks",
    "bear": "grizzly, bruin | animal that hibernates, animal that loves honey",
    "zebra": "zebra foal, striped equine | animal with stripes, striped animal of the savanna",
    "giraffe": "camelopard, giraffe calf | animal with a long neck, tallest animal",
    "bird": "sparrow, songbird | animal with feathers, animal that sings in trees",
    "teddy bear": "teddy, plush bear, stuffed bear | toy that children hug, toy full of cotton",
    "apple": "pippin, granny smith | fruit that keeps the doctor away, fruit that fell on newton",
    "banana": "plantain, cavendish | fruit that monkeys love, long curved fruit",
    "broccoli": "broccoli floret, broccoli top | vegetable like a small tree, vegetable with stems",
    "carrot": "carrot stick, baby carrot | vegetable that rabbits love, nose of a snowman",
    "pizza": "slice of pizza, pizza slice, margherita | food from naples, food with melted cheese",
    "hot dog": "frankfurter, wiener | sausage in a bun, food sold at baseball games",
    "sandwich": "toastie, sub | food between slices of bread, lunch made of sliced bread",
    "donut": "doughnut, glazed ring | sweet ring with a hole, fried ring with frosting",
    "cake": "gateau, birthday cake, layer cake | dessert with candles, dessert of a birthday party",
    "wine glass": "goblet, glass of wine, wineglass | glass for merlot, stemmed glass",
    "cup": "tumbler, beaker, soda cup | thing to drink juice from, container with a straw",
    "bicycle": "bike, pushbike, cycle | vehicle with two wheels and pedals, vehicle that you pedal",
    "motorcycle": "motorbike, moped | loud vehicle of a biker, two-wheeled vehicle with an engine",
    "car": "automobile, sedan | vehicle that families drive, vehicle that is parked in a garage",
    "bus": "coach, omnibus | vehicle of public transport, vehicle that takes children to school",
    "truck": "lorry, delivery van | vehicle that carries freight, vehicle that moves furniture",
    "train": "locomotive, steam engine | vehicle on rails, vehicle that stops at a station",
    "airplane": "plane, jet, aeroplane | vehicle that flies, vehicle with wings",
    "boat": "sailboat, ship, yacht | vehicle that sails, vehicle on water",
    "traffic light": "stoplight, traffic signal | signal at a crossing, lamp that makes cars wait",
    "stop sign": "halt sign, stop board | sign with eight sides, sign that makes drivers halt",
    "umbrella": "parasol, brolly | thing that keeps you dry, thing to open when it rains",
    "backpack": "rucksack, knapsack, schoolbag | bag worn on the back, bag that hikers carry",
    "handbag": "purse, clutch bag | bag of a lady, bag carried in the hand",
    "tie": "necktie, cravat | thing worn with a suit, thing knotted around the neck",
    "kite": "paper kite, flying kite | toy on a string in the wind, toy that flies in the wind",
    "skateboard": "longboard, skate deck | board with four wheels, board that does kickflips",
    "chair": "stool, seat | furniture for one person, furniture with legs and a back",
    "couch": "sofa, settee | furniture for a nap, long seat for several people",
    "potted plant": "houseplant, pot plant | thing that needs watering, thing with leaves",
    "tv": "television, telly, tv set | screen in the living room, thing that shows the news",
    "laptop": "notebook computer, macbook | computer that folds, computer that you carry",
    "book": "novel, paperback | thing with pages, thing that you read",
    "clock": "alarm clock, timepiece | thing that tells the time, thing that rings in the morning",
}


# colour: synonyms | things of that colour
_COLOR_TABLE: dict[str, str] = {
    "red": "crimson, scarlet, ruby | blood, a ripe tomato, a strawberry",
    "orange": "tangerine, amber | a pumpkin, a basketball",
    "yellow": "golden, lemon-coloured, canary | the sun, a lemon",
    "green": "emerald, jade, olive | grass, a frog",
    "blue": "azure, navy, cobalt | the sky, the sea",
    "purple": "violet, lilac, plum | a grape, lavender",
    "pink": "rose, magenta, salmon | a flamingo, bubblegum",
    "brown": "chocolate, chestnut, tan | mud, a coffee bean",
    "black": "ebony, jet-black, charcoal | coal, the night",
    "white": "ivory, snow-white, snowy | snow, milk",
}


def _column(table: dict[str, str], index: int) -> dict[str, tuple[str, ...]]:
    return {key: tuple(row.split(" | ")[index].split(", ")) for key, row in table.items()}


SYNONYMS: dict[str, tuple[str, ...]] = _column(_TABLE, 0)
RIDDLES: dict[str, tuple[str, ...]] = _column(_TABLE, 1)
COLOR_SYNONYMS: dict[str, tuple[str, ...]] = _column(_COLOR_TABLE, 0)
COLOR_THINGS: dict[str, tuple[str, ...]] = _column(_COLOR_TABLE, 1)
COUNT_NOUNS: dict[int, tuple[str, ...]] = {
    2: ("a pair of", "a couple of", "a duo of"),
    3: ("a trio of", "a threesome of"),
    4: ("a quartet of", "two pairs of"),
}
RELATION_PHRASES: dict[str, tuple[str, ...]] = {  # "A <phrase> B"
    "left of": ("to the left of", "left of", "on the left of", "on the left side of"),
    "right of": ("to the right of", "right of", "on the right of", "on the right side of"),
    "above": ("above", "on top of", "over", "atop", "higher than", "up above"),
    "below": ("below", "under", "beneath", "underneath", "lower than", "down below"),
}
_IRREGULAR = """
puppy > puppies, kitty > kitties, doggy > doggies, pony > ponies, brolly > brollies, lorry >
lorries, telly > tellies, coach > coaches, omnibus > omnibuses, calf > calves, giraffe calf >
giraffe calves, gateau > gateaux, slice of pizza > slices of pizza, glass of wine > glasses of
wine, wineglass > wineglasses
"""
_PLURALS = dict(" ".join(pair.split()).split(" > ") for pair in _IRREGULAR.split(","))


def plural_of(name: str) -> str:
    """Plural of a class name or of one of its synonyms."""
    return plural(name) if name in CLASSES else _PLURALS.get(name, f"{name}s")
