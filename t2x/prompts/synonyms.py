"""Which English words name one thing, closely enough that a picture of one is a picture of the
other, and a few classes of nouns that the checks treat alike.

Own small tables: the words of a line name one thing; after ">" stand its kinds, which are no names
for each other. A pair that shares no line counts as two things.
"""

from __future__ import annotations

from functools import lru_cache

from t2x.prompts.words import words

__all__ = [
    "ABSENCES",
    "CLOTHES",
    "GENERIC",
    "MATERIALS",
    "NO_PLACES",
    "PARTS",
    "SETTINGS",
    "is_known",
    "share_group",
]

_GROUPS = """
cat kitten kitty feline tomcat tabby
dog puppy pup hound canine pooch doggy
horse pony stallion mare foal steed colt
cow bull ox calf cattle heifer
pig piglet hog swine
sheep lamb ewe ram
rabbit bunny hare
chicken hen rooster chick cockerel
duck duckling mallard drake
goose gosling
bird songbird fowl > sparrow robin finch crow raven owl parrot pigeon eagle seagull hawk dove
bird songbird > hummingbird swan heron stork penguin flamingo peacock canary duck goose chicken
fish > goldfish koi salmon trout pike shark carp tuna
lion lioness
donkey mule
frog toad
snake serpent > python cobra
turtle tortoise
rodent > mouse rat squirrel hamster
insect bug > beetle butterfly bee ant fly ladybug moth
dinosaur t-rex tyrannosaurus
dragon wyvern drake
elephant pachyderm
monkey ape chimpanzee
child kid youngster youth > toddler boy girl
baby infant newborn > toddler
boy lad schoolboy
girl lass schoolgirl
man guy gentleman fellow male
woman lady female
person human figure individual pedestrian passerby somebody someone anyone anybody folk soul crowd
person human figure individual > pensioner senior elder retiree friend lover boxer wrestler dancer
person human figure individual > musician singer worker soldier farmer sailor nurse doctor teacher
person human figure individual > student artist painter writer chef waiter knight king queen prince
person human figure individual > princess monk nun priest witch wizard clown pirate cowboy thief
person human figure individual > detective bride groom twin sibling sister brother mother father
person human figure individual > husband wife grandmother grandfather baby toddler teenager athlete
person human figure individual > runner cyclist skier surfer swimmer footballer player driver pilot
person human figure individual > hunter fisherman gardener shepherd baker butcher blacksmith man
person human figure individual > woman child boy girl passenger adult stranger villager visitor
person human figure individual > tourist couple lady gentleman guy kid
pedestrian passerby somebody someone > pensioner senior elder retiree friend lover boxer wrestler
pedestrian passerby somebody someone > dancer musician singer worker soldier farmer sailor nurse
pedestrian passerby somebody someone > doctor teacher student artist painter writer chef waiter
pedestrian passerby somebody someone > knight king queen prince princess monk nun priest witch
pedestrian passerby somebody someone > wizard clown pirate cowboy thief detective bride groom twin
pedestrian passerby somebody someone > sibling sister brother mother father husband wife grandmother
pedestrian passerby somebody someone > grandfather baby toddler teenager athlete runner cyclist
pedestrian passerby somebody someone > skier surfer swimmer footballer player driver pilot hunter
pedestrian passerby somebody someone > fisherman gardener shepherd baker butcher blacksmith man
pedestrian passerby somebody someone > woman child boy girl passenger adult stranger villager
pedestrian passerby somebody someone > visitor tourist couple lady gentleman guy kid
anyone anybody folk soul > pensioner senior elder retiree friend lover boxer wrestler dancer
anyone anybody folk soul > musician singer worker soldier farmer sailor nurse doctor teacher student
anyone anybody folk soul > artist painter writer chef waiter knight king queen prince princess monk
anyone anybody folk soul > nun priest witch wizard clown pirate cowboy thief detective bride groom
anyone anybody folk soul > twin sibling sister brother mother father husband wife grandmother
anyone anybody folk soul > grandfather baby toddler teenager athlete runner cyclist skier surfer
anyone anybody folk soul > swimmer footballer player driver pilot hunter fisherman gardener shepherd
anyone anybody folk soul > baker butcher blacksmith man woman child boy girl passenger adult
anyone anybody folk soul > stranger villager visitor tourist couple lady gentleman guy kid
crowd > pensioner senior elder retiree friend lover boxer wrestler dancer musician singer worker
crowd > soldier farmer sailor nurse doctor teacher student artist painter writer chef waiter knight
crowd > king queen prince princess monk nun priest witch wizard clown pirate cowboy thief detective
crowd > bride groom twin sibling sister brother mother father husband wife grandmother grandfather
crowd > baby toddler teenager athlete runner cyclist skier surfer swimmer footballer player driver
crowd > pilot hunter fisherman gardener shepherd baker butcher blacksmith man woman child boy girl
crowd > passenger adult stranger villager visitor tourist couple lady gentleman guy kid
friend companion buddy pal
doctor physician medic
policeman cop policewoman officer
soldier warrior trooper
knight warrior
wizard sorcerer mage magician
witch sorceress
king monarch ruler
queen monarch
robot android automaton droid
astronaut spaceman cosmonaut
chef cook baker
musician player performer > guitarist pianist drummer violinist bassist saxophonist trumpeter
musician player performer instrumentalist > cellist singer flutist
dancer ballerina performer
artist painter
student pupil
fisherman angler fisher
farmer peasant
singer vocalist
teenager teen youth
car automobile > sedan coupe sportscar roadster convertible limousine hatchback beetle cabriolet
vehicle > car truck bus van lorry motorcycle automobile
van minivan minibus
truck lorry pickup
bike bicycle cycle
motorcycle motorbike scooter bike
boat ship vessel > sailboat rowboat canoe yacht
ship vessel galleon
plane airplane aeroplane aircraft jet airliner
helicopter chopper
spaceship spacecraft rocket starship
train locomotive railway
tram streetcar trolley
bus coach
house home > cottage cabin
cabin cottage hut lodge shack
building structure edifice > tower skyscraper house barn
castle fortress palace citadel
church chapel cathedral
barn stable shed
shop store boutique
restaurant cafe diner bistro
lighthouse beacon
tower spire turret
bridge overpass viaduct
road street path lane highway avenue
street avenue alley road lane
path trail track footpath walkway
river stream creek brook
lake pond lagoon > water
sea ocean > water
beach shore seashore seaside coast
hill hillside mound knoll
mountain peak summit mount
forest wood woods woodland jungle
field meadow pasture grassland
garden yard backyard lawn
rock boulder stone > pebble
cliff bluff crag
sofa couch settee loveseat
chair armchair seat > stool
table desk tabletop
stool barstool
cupboard cabinet closet wardrobe
shelf bookshelf bookcase ledge
rug carpet mat
bed mattress cot
cushion pillow
curtain drape
lamp light > lantern
candle taper
mirror looking-glass
cup mug teacup
glass goblet tumbler
bottle flask
bowl dish basin
plate dish platter saucer
pan saucepan skillet
kettle teapot
jar pot vase
vase jug pitcher urn
basket hamper
box crate carton container
chest trunk
bag sack pouch > handbag backpack purse
suitcase luggage trunk
book novel volume tome
notebook notepad journal
newspaper paper
picture painting image artwork
poster placard banner
sign signboard board placard
laptop computer notebook
computer pc
phone smartphone telephone cellphone
tv television screen
camera camcorder
clock watch timepiece
umbrella parasol
ball sphere orb globe
cube box block
sphere globe orb ball
cone pyramid
ring band
hat cap beanie
coat jacket parka overcoat
dress gown frock
shirt t-shirt tee blouse top
sweater jumper pullover
trousers pants slacks jeans
shoe sneaker boot trainer footwear
boot shoe
spectacles glasses eyeglasses
scarf shawl
ribbon bow
necklace pendant
flower blossom bloom > rose tulip daisy lily sunflower poppy peony orchid lotus dahlia iris
plant houseplant > flower
tree > oak pine willow maple birch palm fir spruce
bush shrub hedge
leaf foliage
grass lawn
fruit > apple orange pear banana peach lemon strawberry grape
sweet candy
cake pastry
biscuit cookie
chips fries
soda cola
coffee espresso latte
fire flame campfire bonfire
cloud
fog mist haze
snow snowfall
rain raindrop rainfall
moon crescent
sun sunlight
star starlight
sky heavens
text lettering writing word letter inscription caption
logo emblem
watermark signature
wing feather
fur coat hair pelt
beard whiskers
eye iris
hair lock curl tress ringlet braid
taxi cab taxicab
bag satchel tote
sofa chesterfield
skin complexion
lip mouth
nail fingernail
telephone phone payphone
cottage house farmhouse
house villa mansion bungalow farmhouse
coat trenchcoat mac
scarf muffler
truck semi
face head
hand palm
statue sculpture figurine
doll puppet
toy > doll
toy plaything
kite sail
balloon airship
flag banner
fence railing
gate gateway
door doorway entrance
window pane
wall brickwork
roof rooftop
story storey floor level
layer tier level
stair staircase steps step
pavement sidewalk
bench seat
swing swingset
traffic > car vehicle
crowd audience throng
swan cygnet
tent marquee
screen display monitor
instrument > guitar violin piano drum
furniture > chair table sofa bed
stripe band
worker labourer laborer
jewellery jewelry
luggage baggage
gift present
couple pair
photo photograph picture
"""

SETTINGS = words(
    """
    forest wood woodland jungle field meadow city town village street park beach room kitchen sky
    garden desert ocean sea lake river mountain hill snow grass rain space water landscape studio
    bedroom bathroom office library cafe restaurant market alley road square plaza field valley
    countryside farm yard backyard lawn sand shore coast harbor harbour station stadium arena stage
    gym classroom school museum gallery church cathedral temple shop store savanna savannah
    rainforest swamp cave night sunset moonlight fog mist storm underwater universe world scene
    background wheat flower bloom blossom cloud shadow air sidewalk pavement hillside cliff pond
    stream meadow pasture harbour port dock pier interior house home apartment diner bar pub
    """
)
# What stands after a preposition and is no place: "in the rain", "on fire", "in red".
NO_PLACES = words(
    """
    rain sunlight sunshine light style shape form front colour color air distance day morning
    evening afternoon night dusk dawn sunset sunrise spring summer autumn winter fire display
    motion action detail focus moonlight fog mist wind darkness silhouette profile glow lighting
    candlelight lamplight firelight storm manner pose view art hand style mood atmosphere tone
    black white winter weekend holiday camera film canvas time line row pair group moment way
    shade hue order flight bloom half middle centre center world life love general total scene
    background foreground photo picture painting image drawing sky heat cold shadow
    """
)
CLOTHES = words(
    """
    dress suit hat cap coat jacket shirt t-shirt sweater jumper uniform gown robe cloak armor armour
    jeans trousers pants skirt shorts boot shoe scarf glove kimono costume outfit tuxedo blouse
    apron spacesuit raincoat hoodie vest swimsuit pajamas clothes clothing helmet mask glasses
    sunglasses attire garment
    """
)
# What a thing has: a colour said of it is said of the thing.
PARTS = words(
    """
    stripe dot spot pattern check detail accent fabric paint fur coat skin feather petal surface
    body exterior finish hull plumage hair scale shell peel rind facade cloth canopy panel
    paintwork hue colour color tone shade bodywork leather silk velvet wool linen cotton
    material texture strand lock curl glaze stripe wing sail hide casing livery sheen gloss frame
    clapboard plank board shingle timber trim pelt mane tail carapace wool fleece fell gefied haut
    haar pelaj plumaj fassad anstrich lack enamel plush
    """
)
# What a thing is made of or seen as: "a sofa in green velvet", "hills in black silhouette".
MATERIALS = words(
    """
    silhouette outline shape ink paint lacquer enamel glaze gloss velvet silk satin leather cotton
    wool fur denim linen plush suede porcelain glass steel marble wood metal brick stone paper
    plastic lace tweed corduroy chrome clay ceramic granite chalk crayon neon light tulle hide
    chiffon taffeta brocade felt fleece canvas vinyl organza crepe flannel jersey board plank
    clapboard shingle timber tile livery armour armor thread yarn foil stucco oilskin
    """
)
# Names that stand for any thing: a number told of them may count whatever the prompt counts.
GENERIC = words(
    """
    animal object thing item figure subject creature piece one them total all individual being
    person people character example specimen altogether together member it
    """
)
# Words that say that something is absent. "*" stands for anything.
ABSENCES: dict[str, frozenset[str]] = {
    word: words(things)
    for group, things in (
        ("deserted uninhabited unpopulated abandoned desolate lonely unoccupied uncrowded unpeopled"
         " depopulated", "person people crowd human figure pedestrian man woman child tourist soul"
         " traffic car nobody anyone visitor"),
        ("empty vacant bare blank", "*"),
        ("solitary alone solo lone", "person people other friend company companion crowd human"),
        ("clear cloudless unclouded", "cloud"),
        ("bald hairless shaven", "hair"),
        ("clean-shaven beardless smooth-faced", "beard moustache mustache stubble whiskers"),
        ("barefoot barefooted shoeless unshod", "shoe sock footwear boot sandal sneaker"),
        ("bareheaded hatless bare-headed", "hat cap helmet headwear"),
        ("bare-chested shirtless topless", "shirt"),
        ("fresh-faced bare-faced barefaced", "makeup cosmetics"),
        ("plain unadorned undecorated unpatterned", "pattern decoration ornament print logo text"
         " detail stripe object design label"),
        ("wordless textless unlabeled unlabelled unmarked unlettered unprinted",
         "text word label writing letter logo lettering caption watermark"),
        ("unlit dark extinguished pitch-dark pitch-black lightless unlighted",
         "light flame lit candle lamp lighting"),
        ("still calm glassy motionless", "wave ripple motion movement wind"),
        ("silent quiet", "noise sound people person crowd traffic"),
        ("dry", "rain water"),
        ("vegan vegetarian meatless", "meat"),
        ("monochrome grayscale greyscale colorless colourless", "color colour"),
        ("sunless overcast", "sun sunlight sunshine"),
        ("starless", "star"),
        ("unfurnished", "furniture chair table"),
        ("treeless barren", "tree plant vegetation grass leaf"),
        ("pristine spotless immaculate", "dirt stain dust mess trash litter"),
        ("uncluttered tidy minimal minimalist", "clutter mess object"),
        ("serious stern solemn unsmiling straight-faced neutral", "smile smiling"),
        ("closed shut", "open"),
        ("riderless", "rider person jockey"),
        ("smooth", "wrinkle bump crack texture"),
        ("nude naked unclothed", "clothes clothing"),
        ("stationary parked", "moving driving"),
        ("flawless unblemished", "flaw blemish scratch crack"),
        ("driverless", "driver"),
        ("straight", "curl curve"),
        ("unoccupied vacated forsaken unmanned unattended unpeopled ghostly", "person people crowd"
         " crew staff anyone passenger"),
        ("windless breathless", "wind breeze"),
        ("rainless sunny", "rain"),
        ("untouched untrodden unspoilt unspoiled virgin", "footprint track trace mark person"),
        ("unframed", "frame"), ("uncut", "cut"), ("unwrapped", "wrapping"),
        ("sugarless unsweetened", "sugar"), ("plain", "topping icing filling"),
        ("snuffed quenched", "candle flame light lit fire"),
        ("hollow void", "*"), ("stripped naked denuded", "*"), ("unsaddled", "saddle"),
        ("crewless", "crew sailor"), ("unarmed weaponless", "weapon sword gun"),
        ("unaccompanied", "person people companion"), ("nameless anonymous", "name text label"),
        ("matte matt", "shine gloss"), ("asleep", "awake"), ("daylight noon", "night"),
        ("uncovered exposed", "cover lid cloth curtain"), ("open", "closed lid door"),
        ("unmade", "made"), ("loose", "tie"), ("seedless", "seed"), ("stringless", "string"),
    )
    for word in group.split()
}  # fmt: skip


@lru_cache(maxsize=1)
def _groups() -> tuple[dict[str, frozenset[int]], dict[str, frozenset[int]]]:
    """Of each noun the groups whose name it is, and those in which it is one kind of several."""
    from t2x.prompts.forms import noun_of

    names: dict[str, set[int]] = {}
    kinds: dict[str, set[int]] = {}
    for number, line in enumerate(_GROUPS.strip().splitlines()):
        for table, words_of_line in zip((names, kinds), line.split(" > "), strict=False):
            for word in words_of_line.split():
                table.setdefault(noun_of(word), set()).add(number)
    return (
        {word: frozenset(numbers) for word, numbers in names.items()},
        {word: frozenset(numbers) for word, numbers in kinds.items()},
    )


def share_group(one: str, two: str) -> bool:
    """Whether two singular nouns are synonyms, or one is a kind of the other: "child" and "boy",
    but not "boy" and "girl".
    """
    names, kinds = _groups()
    none: frozenset[int] = frozenset()
    own, other = names.get(one, none), names.get(two, none)
    return bool(own & other or own & kinds.get(two, none) or other & kinds.get(one, none))


def is_known(noun: str) -> bool:
    """Whether some group holds the singular ``noun``."""
    return any(noun in table for table in _groups())
