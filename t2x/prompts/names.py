"""Proper names of a prompt, and whether a rewrite still has them.

A name is known by its capitals inside a sentence, by its form (iPhone, R2-D2, NASA), or from a
small list of famous ones, so that "pikachu" and a name that begins the prompt count too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from os.path import commonprefix

from t2x.prompts.forms import is_plural, noun_of
from t2x.prompts.grammar import ENGLISH, is_english_adjective
from t2x.prompts.languages import grammar_name
from t2x.prompts.quotes import quoted
from t2x.prompts.spelling import rank_of
from t2x.prompts.synonyms import is_known, share_group
from t2x.prompts.words import COLOUR_FAMILIES, NUMBER_WORDS, STOP_WORDS, words

__all__ = ["lost_names", "names"]

_WORD = r"(?:[A-Z\u00c0-\u00de][\w\u2019']*(?:[-&.][A-Z\u00c0-\u00de0-9][\w']*)*\.?|[a-z]+[A-Z]\w*|[A-Z]+\d[\w-]*)"
_INNER = (
    r"(?:of(?: the)?|the|de la|de las|de los|del?|da|di|dos|van der|van den|van|von der|von"
    r"|le|la|el|al|bin|&|und|y)"
)
_NAME = re.compile(
    rf"(?<![\w'\u2019-]){_WORD}(?:[ -](?:{_INNER} )?(?:{_WORD}|\d{{1,4}}(?!\w)))*(?!\w)"
)
_ABBREVIATIONS = {
    "mt": "mount", "st": "saint", "dr": "doctor", "nyc": "newyorkcity", "la": "losangeles",
    "usa": "unitedstates", "us": "unitedstates", "uk": "unitedkingdom", "ny": "newyork",
    "sf": "sanfrancisco", "mr": "mister", "prof": "professor", "pres": "president",
    "dc": "washington", "bros": "brothers", "ft": "fort", "jfk": "kennedy",
}  # fmt: skip
_TITLES = words(
    "mr mrs ms miss dr sir lady lord king queen prince princess president pope saint doctor"
    " mister professor captain general emperor empress the a an"
)
_GENERIC = words(
    """
    city tower bridge mount mountain lake river castle street square park museum building wall gate
    palace cathedral temple island islands mountains house church station avenue opera basilica
    beach bay canyon falls desert ocean sea valley forest hotel theatre theater university center
    centre market gardens garden statue column great of the place plaza road
    """
)
_TECHNICAL = words(
    """
    hdr raw uhd hd 4k 8k 3d 2d cgi rgb ai vhs tv dslr dof ufo png jpg psd svg pbr vfx sfx iso fx usb
    led lcd dvd cd diy ok am pm i i'm i'd i'll i've ui ux fps pov vr ar nsfw sfw b&w bw
    """
)
_PERIODS = words(
    """
    monday tuesday wednesday thursday friday saturday sunday january february march april may june
    july august september october november december
    """
)
_FAMOUS = words(
    """
    einstein mozart beethoven bach shakespeare napoleon cleopatra gandhi lincoln obama trump biden
    churchill hitler stalin mandela picasso monet rembrandt vermeer dali warhol kahlo hokusai
    michelangelo leonardo raphael banksy elvis beyonce madonna rihanna shakira adele messi ronaldo
    pele maradona beckham pikachu mario luigi batman superman spiderman spider-man ironman hulk thor
    yoda vader godzilla shrek gandalf frodo hogwarts voldemort dumbledore naruto goku totoro elsa
    simba bambi snoopy garfield barbie minion minions pokemon kirby zelda sonic minecraft
    paris london tokyo berlin rome madrid barcelona vienna prague amsterdam venice florence milan
    lisbon moscow kyoto osaka beijing shanghai seoul mumbai delhi cairo istanbul athens dublin
    edinburgh chicago boston seattle miami hollywood manhattan brooklyn broadway vegas sydney
    melbourne toronto vancouver rio havana dubai singapore bangkok hamburg munich cologne zurich
    geneva brussels phoenix georgia jordan cambridge oxford florence nice salzburg dresden leipzig
    marrakech casablanca jerusalem petra giza lisbon porto seville granada toledo naples pisa siena
    verona sicily tuscany provence bavaria alps andes himalayas patagonia bali phuket mykonos capri
    cuba jamaica nepal tibet vietnam thailand cambodia peru chile argentina ireland portugal belgium
    netherlands denmark poland austria hungary croatia ukraine israel iran iraq syria ethiopia
    nigeria ghana senegal madagascar philippines indonesia malaysia taiwan mongolia stockholm oslo
    copenhagen helsinki budapest warsaw krakow santorini hawaii
    california texas florida alaska france germany italy spain england scotland ireland wales japan
    china korea india brazil mexico canada australia egypt greece turkey russia norway sweden
    iceland finland switzerland austria morocco kenya africa europe asia america antarctica everest
    fuji kilimanjaro vesuvius sahara amazon nile thames seine stonehenge colosseum parthenon kremlin
    versailles alhambra nike adidas ferrari porsche lamborghini tesla bmw mercedes audi toyota honda
    volkswagen ford chevrolet harley vespa lego nasa ikea starbucks mcdonald's google apple-inc
    coca-cola pepsi rolex gucci chanel disney pixar marvel dracula frankenstein pegasus atlantis
    rapunzel cinderella tarzan zorro icarus narcissus hercules achilles apollo athena loki tintin
    asterix popeye pinocchio aladdin gulliver hamlet ophelia macbeth quixote chewbacca darwin
    galileo socrates plato aristotle newton darwin chopin vivaldi debussy cezanne matisse renoir
    degas klimt munch rothko pollock basquiat botticelli caravaggio goya velazquez hiroshige
    kandinsky chagall magritte escher bosch bruegel gaudi hitchcock kubrick spielberg chaplin zeus
    medusa poseidon odin anubis buddha
    goethe schiller bismarck luther kant nietzsche freud merkel schneewittchen koln munchen wien
    frankfurt stuttgart dusseldorf nurnberg bremen hannover basel bern innsbruck heidelberg
    neuschwanstein matterhorn zugspitze rhein elbe donau bodensee ostsee nordsee schwarzwald alpen
    cervantes quijote lorca colon sevilla cordoba malaga valencia bilbao cuzco bogota lima santiago
    frida gaudi washington houston austin dallas denver virginia victoria lincoln
    mercury nefertiti cleopatra tutankhamun andersen grimm danube jesus mars jupiter saturn venus
    neptune pluto
    """
)
_TOWNS = words(
    """
    paris london tokyo berlin rome madrid barcelona vienna prague amsterdam venice florence milan
    lisbon moscow kyoto cairo istanbul athens dublin chicago boston seattle miami vegas sydney
    melbourne toronto phoenix georgia jordan cambridge oxford nice china turkey chad india brazil
    mexico canada cuba virginia carolina texas alaska lincoln washington houston austin dallas
    denver jackson madison charlotte victoria adelaide wellington
    """
)
# Names of several words that people type without capitals.
_FAMOUS_PHRASES = re.compile(
    r"(?<![\w-])(?:mona lisa|charlie chaplin|taylor swift|john lennon|marilyn monroe|audrey hepburn"
    r"|david bowie|freddie mercury|michael jackson|bob marley|nikola tesla|isaac newton|albert"
    r" einstein|frida kahlo|salvador dali|van gogh|vincent van gogh|pablo picasso|claude monet"
    r"|leonardo da vinci|andy warhol|joan of arc|julius caesar|genghis khan|marco polo|anne frank"
    r"|mother teresa|princess diana|queen elizabeth|queen victoria|steve jobs|elon musk|bill gates"
    r"|edgar allan poe|jane austen|mark twain|charles dickens|oscar wilde|ernest hemingway|franz"
    r" kafka|sherlock holmes|harry potter|darth vader|luke skywalker|james bond|indiana jones|robin"
    r" hood|peter pan|snow white|mickey mouse|donald duck|bugs bunny|santa claus|super mario|hello"
    r" kitty|lara croft|king kong|moby dick|don quixote|peter rabbit|winnie the pooh|captain"
    r" america|iron man|wonder woman|optimus prime|king arthur|statue of liberty|eiffel tower|big"
    r" ben|taj mahal|machu picchu|golden gate(?: bridge)?|brooklyn bridge|times square|central park"
    r"|empire state building|mount (?:fuji|everest|rushmore|rainier|etna)|notre dame"
    r"|sagrada familia"
    r"|great wall(?: of china)?|niagara falls|grand canyon|loch ness|tower bridge|hagia sophia"
    r"|burj khalifa|stone ?henge|easter island|new york(?: city)?|los angeles|san francisco|las"
    r" vegas|hong kong|rio de janeiro|buenos aires|cape town|mexico city|new orleans|new zealand"
    r"|south korea|costa rica|sri lanka|united states|great britain|coca[- ]cola|louis vuitton|star"
    r" (?:wars|trek)|studio ghibli|rolls[- ]royce|aston martin|bruce lee|muhammad ali|barack obama"
    r"|donald trump|nelson mandela|mahatma gandhi|martin luther king|abraham lincoln|george"
    r" washington|winston churchill|elvis presley|lady gaga|lionel messi|cristiano ronaldo|greta"
    r" thunberg|stephen hawking|marie curie|ada lovelace|charles darwin)(?!\w)",
    re.IGNORECASE,
)
_COMMON_RANK = 25_000  # what is more frequent than this is rather no name
_LIKE = re.compile(r"[- ](?:like|style|inspired|esque|lookalike|look-alike|impersonator)(?!\w)")
_ROLES = words(
    "nurse singer dancer painter writer poet actress actor queen princess waitress teacher doctor"
    " farmer baker sailor soldier model widow maid clerk student cat dog horse cow doll"
)
_SHORT = {"bill": "william", "bob": "robert", "jim": "james", "jack": "john", "harry": "henry",
          "liz": "elizabeth", "beth": "elizabeth", "tony": "anthony", "ted": "theodore",
          "charlie": "charles", "tom": "thomas", "mike": "michael", "dave": "david",
          "abe": "abraham", "andy": "andrew", "kate": "katherine", "leo": "leonardo"}  # fmt: skip
_NO_NAME = words("portrait photo painting picture image drawing sketch illustration close-up view")
_CHINESE = re.compile(
    r"\u300a[^\u300b]+\u300b|(?:北京|上海|广州|深圳|香港|台北|巴黎|伦敦|东京|京都|纽约|罗马|威尼斯|长城|故宫|富士山|埃菲尔铁塔"
    r"|自由女神像|西湖|黄山|泰山|长江|黄河|李白|杜甫|孔子|孙悟空|哪吒|爱因斯坦|梵高|达芬奇|莫奈|毕加索|莎士比亚|拿破仑|牛顿|贝多芬"
    r"|莫扎特|蒙娜丽莎|皮卡丘|哆啦A梦|蝙蝠侠|超人|蜘蛛侠|成都|西安|杭州|苏州|南京|重庆|武汉|柏林|莫斯科|悉尼|巴塞罗那|金门大桥|天安门"
    r"|诸葛亮|关羽|刘备|曹操|武则天|秦始皇|杨贵妃|林黛玉|贾宝玉|鲁迅|嫦娥|张飞|岳飞|花木兰|白素贞|猪八戒|唐僧|观音|屈原|王羲之"
    r"|齐白石|成龙|李小龙|青岛|大连|厦门|桂林|昆明|丽江|拉萨|哈尔滨|敦煌|洛阳|开封|绍兴|扬州|徐州|天津|长沙|华山|峨眉山|九寨沟|张家界"
    r"|布达拉宫|莫高窟|兵马俑|颐和园|圆明园|鼓浪屿|洱海|青海湖|太湖|天山|珠穆朗玛峰|法国|日本|意大利|埃及|英国|美国|德国|俄罗斯|印度"
    r"|外滩|东方明珠|圣诞老人|哈利·波特|[\u4e00-\u9fff]{1,4}·[\u4e00-\u9fff]{1,4})"
)


def names(text: str) -> list[str]:
    """Proper names of ``text`` as written, in order, without repeats; quoted text has none."""
    code = grammar_name(text)
    for inner in quoted(text):
        text = text.replace(inner, " ")
    if code == "zh":
        return list(dict.fromkeys(m.strip("\u300a\u300b") for m in _CHINESE.findall(text)))
    found = [*_capitalised(text, code), *_FAMOUS_PHRASES.findall(text), *_famous(text)]
    kept = [n for n in found if not any(n != m and n.lower() in m.lower() for m in found)]
    return list(dict.fromkeys(kept))


def _capitalised(text: str, code: str) -> Iterator[str]:
    tokens = re.findall(r"[^\W\d_][\w'\u2019-]*", text)
    capitals = sum(t[0].isupper() for t in tokens)
    if len(tokens) > 3 and capitals > 0.7 * len(tokens):  # a title, or shouting
        return
    for match in _NAME.finditer(text):
        starts = _starts_sentence(text, match.start())
        parts = match.group().rstrip(".").split()
        while parts and (starts or _is_common(parts[0])) and _leads(parts, starts=starts):
            parts, starts = parts[1:], False
        while parts and parts[-1].lower() in ENGLISH.of | {"the", "&"}:
            parts = parts[:-1]
        name = re.sub(r"['\u2019]s?$", "", " ".join(parts))
        if name and not _is_noise(name) and _counts_as_name(name, text, match, starts, code):
            yield name


def _starts_sentence(text: str, at: int) -> bool:
    return re.search(r"(?:^|[.!?:\n]\s+|^\W+)$", text[:at]) is not None


def _is_common(word: str) -> bool:
    return word.lower() in STOP_WORDS or word.lower() in NUMBER_WORDS


def _leads(parts: Sequence[str], *, starts: bool) -> bool:
    """Whether the first word only has its capital from the start of the sentence."""
    word = parts[0].lower()
    if _is_common(parts[0]) or word in _NO_NAME or word in ENGLISH.boundaries:
        return True
    if not starts or word in _FAMOUS or not word.isalpha():
        return False
    if len(parts) == 1:
        return _is_plain(word)
    plain = word in COLOUR_FAMILIES or is_english_adjective(word)
    return plain and parts[1].lower() not in _GENERIC


def _is_plain(word: str, *, ranked: bool = True) -> bool:
    """Whether a word that begins a sentence has its capital from there: "Kittens", "Sunset"."""
    noun = noun_of(word)
    if (
        is_known(noun)
        or is_plural(word)
        or is_english_adjective(word)
        or word in ENGLISH.verbs | _NO_NAME
    ):
        return True
    if not ranked:
        return False
    rank = rank_of(word)
    return rank is not None and rank < _COMMON_RANK


def _is_noise(name: str) -> bool:
    lower = name.lower()
    return lower in _TECHNICAL or lower in _PERIODS or _is_common(name) or len(name) < 2


def _counts_as_name(name: str, text: str, match: re.Match[str], starts: bool, code: str) -> bool:
    if code != "de":
        return True
    # German writes every noun with a capital.
    before = re.findall(r"[\w-]+", text[: match.start()])
    alone = bool(before) and before[-1].lower() in ("in", "nach")
    return " " in name or name.lower() in _FAMOUS or (alone and not starts) or name.isupper()


def _famous(text: str) -> Iterator[str]:
    for match in re.finditer(r"[^\W\d_][\w'-]*", text):
        if _folded(match.group()) in _FAMOUS:
            yield re.sub(r"'s$", "", match.group())


def lost_names(original: str, rewrite: str) -> list[str]:
    """Say which names of ``original`` the rewrite does not have; of a person, the last name is
    enough, but not under another first name.
    """
    return [f"the name {name!r} is lost" for name in names(original) if not _has(rewrite, name)]


@lru_cache(maxsize=4096)
def _folded(text: str) -> str:
    """Lower case, without accents, apostrophes and points."""
    flat = unicodedata.normalize("NFKD", text.lower().replace("\u2019", "'"))
    return re.sub(r"'s?(?!\w)|[.'\u0300-\u036f]", "", flat)


def _has(rewrite: str, name: str) -> bool:
    if re.search(r"[\u4e00-\u9fff]", name):
        return name in rewrite
    told = _spelt(re.findall(r"[^\W_]+", _folded(rewrite)))
    joined = "".join(told)
    parts = [p for p in _spelt(re.findall(r"[^\W_]+", _folded(name))) if p not in STOP_WORDS]
    parts = [p for p in parts if p not in _TITLES] or parts
    if _is_compared(rewrite, parts) and not _is_compared(name, parts):
        return False
    if _renamed(rewrite, name):
        return False
    own = _own_words(parts)
    if _only_small(rewrite, own, name):
        return False
    if "".join(parts) in joined:
        return True
    exact = len(own) < len(parts) or len(parts) == 1 or any(c.isdigit() for c in name)
    placed = parts[-1] in _GENERIC or parts[0] in _WHOLE or " of " in name.lower()
    if exact or placed or _NUMERAL.fullmatch(parts[-1].upper()):
        return bool(own) and all(_known(p, told) for p in own)
    return _known(parts[-1], told) and not _other_first_name(rewrite, parts)


_DROPPABLE = words(
    "city river mountain mountains island islands ocean sea desert lake mount volcano"
)
_WHOLE = words(
    "new north south east west san santa saint los las el la rio costa puerto hong sri port fort"
    " cape"
    " united great upper lower old little big super star red black white blue green golden"
)
_NUMERAL = re.compile(r"[IVX]+")


def _own_words(parts: Sequence[str]) -> list[str]:
    """What is left of a place's name without what kind of place it is: "Fuji", "Golden Gate"."""
    own = list(parts)
    if len(own) > 1 and own[-1] in _DROPPABLE:
        own = own[:-1]
    if len(own) > 1 and own[0] in _DROPPABLE:
        own = own[1:]
    return own


def _only_small(rewrite: str, own: Sequence[str], name: str) -> bool:
    """Whether words of a capitalised name of several stand scattered and without capitals."""
    if not name[0].isupper() or not rewrite[:1].isupper():
        return False
    found = [w for w in re.findall(r"[^\W_]+", rewrite) if _folded(w) in own]
    capitals = [
        m.group()
        for m in re.finditer(r"[^\W_]+", rewrite)
        if _folded(m.group()) in own and m.group()[0].isupper()
    ]
    return bool(found) and not capitals


def _renamed(rewrite: str, name: str) -> bool:
    """Whether a place's name is now someone's: "a girl called Sydney", "Florence, a nurse"."""
    if _folded(name) not in _FAMOUS or " " in name:
        return False
    if _folded(name) in _TOWNS and _in_other_name(rewrite, name):
        return True
    called = rf"(?:called|named) {re.escape(name)}(?!\w)"
    who = rf"(?<!\w){re.escape(name)}, an? ([a-z-]+)(?: ([a-z]+))?"
    if re.search(called, rewrite):
        return True
    told = (word for found in re.findall(who, rewrite) for word in found if word)
    return any(share_group("person", w) or w in _ROLES for w in told)


def _in_other_name(rewrite: str, name: str) -> bool:
    """Whether a town's name is only a part of another name: "Paris Hilton", "Michael Jordan"."""
    found = list(re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", rewrite, re.IGNORECASE))
    return bool(found) and all(
        _is_other(re.match(r"\s([A-Z]\w+)", rewrite[m.end() :]))
        or (
            _is_other(found_before := re.search(r"([A-Z]\w+)\s$", rewrite[: m.start()]))
            and found_before is not None
            and not (
                _starts_sentence(rewrite, found_before.start(1))
                and _is_plain(found_before.group(1).lower(), ranked=False)
            )
        )
        for m in found
    )


def _is_other(found: re.Match[str] | None) -> bool:
    return found is not None and found.group(1).lower() not in _GENERIC | _TITLES | STOP_WORDS


def _spelt(found: Sequence[str]) -> list[str]:
    return [_ABBREVIATIONS.get(word, word) for word in found]


def _known(part: str, told: Sequence[str]) -> bool:
    """Whether a word is ``part``, or its adjective: "Japan" and "Japanese"."""
    return any(
        word in (part, f"{part}s", _ADJECTIVES.get(part))
        or _is_adjective_of(word, part)
        or _is_adjective_of(part, word)
        for word in told
    )


def _is_adjective_of(word: str, part: str) -> bool:
    if len(part) < 4 or len(word) <= len(part) - 2:
        return False
    same = len(commonprefix([word, part]))
    return same >= max(3, len(part) - 2) and word[same:] in _ENDINGS


_ENDINGS = words("ese ish ian ean an n ic i er ien esque iana ns ians ans")
_ADJECTIVES = {
    "france": "french", "spain": "spanish", "greece": "greek", "wales": "welsh",
    "netherlands": "dutch", "england": "english", "scotland": "scottish", "ireland": "irish",
    "denmark": "danish", "poland": "polish", "switzerland": "swiss", "venice": "venetian",
    "naples": "neapolitan", "florence": "florentine", "vienna": "viennese", "moscow": "muscovite",
}  # fmt: skip


def _is_compared(text: str, parts: Sequence[str]) -> bool:
    return any(
        re.search(rf"(?<!\w){re.escape(p)}$", _folded(text[: m.start()]).strip())
        for m in _LIKE.finditer(text)
        for p in parts
    )


def _other_first_name(rewrite: str, parts: Sequence[str]) -> bool:
    """Whether the last name stands after a capitalised word that is not in the name."""
    pattern = rf"([A-Z\u00c0-\u00de][\w'-]+) {re.escape(parts[-1])}(?!\w)"
    for match in re.finditer(pattern, rewrite, re.IGNORECASE):
        first = match.group(1)
        starts = _starts_sentence(rewrite, match.start())
        same = {_SHORT.get(p, p) for p in (*parts, *(p[:4] for p in parts))}
        own = _folded(first)
        if first[0].isupper() and not {_SHORT.get(own, own), own, own[:4]} & {*same, *parts}:
            plain = starts and _is_plain(first.lower(), ranked=False)
            return not plain and first.lower() not in STOP_WORDS | _TITLES
    return False
