"""German and Spanish for ``t2x.prompts.phrases``: the same tables as English has, smaller."""

from __future__ import annotations

import re

from t2x.prompts.grammar import ENGLISH, Grammar
from t2x.prompts.numerals import GERMAN_NUMBERS, SPANISH_NUMBERS
from t2x.prompts.words import words

__all__ = ["GERMAN", "GRAMMARS", "SPANISH"]


def _inflected(table: dict[str, str], endings: str) -> dict[str, frozenset[str]]:
    forms: dict[str, set[str]] = {}
    for family, names in table.items():
        for name in names.split():
            for ending in ["", *endings.split()]:
                forms.setdefault(name + ending, set()).add(family)
    return {word: frozenset(families) for word, families in forms.items()}


def _any(alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w<@-])(?:{alternatives})(?![\w-])")


_GERMAN_COLOURS = {
    "red": "rot hellrot dunkelrot knallrot feuerrot blutrot karmesinrot scharlachrot weinrot"
    " rubinrot purpurrot tiefrot leuchtendrot",
    "blue": "blau hellblau dunkelblau himmelblau marineblau königsblau tiefblau azurblau"
    " kobaltblau türkis blassblau",
    "green": "grün hellgrün dunkelgrün smaragdgrün olivgrün moosgrün giftgrün türkis grasgrün",
    "yellow": "gelb hellgelb zitronengelb sonnengelb goldgelb senfgelb",
    "orange": "orange orangefarben",
    "purple": "lila violett purpur purpurn purpurfarben dunkelviolett",
    "pink": "rosa pink rosafarben magenta",
    "brown": "braun hellbraun dunkelbraun kastanienbraun",
    "black": "schwarz tiefschwarz pechschwarz",
    "white": "weiß schneeweiß weiss",
    "grey": "grau hellgrau dunkelgrau silbergrau silbern",
    "gold": "golden goldfarben",
    "beige": "beige cremefarben",
}
_SPANISH_COLOURS = {
    "red": "rojo roja rojos rojas carmesí escarlata granate bermellón rojizo rojiza bermejo",
    "blue": "azul azules celeste celestes marino cobalto índigo zafiro turquesa",
    "green": "verde verdes esmeralda turquesa oliva jade",
    "yellow": "amarillo amarilla amarillos amarillas limón mostaza",
    "orange": "naranja naranjas anaranjado anaranjada",
    "purple": "morado morada morados moradas púrpura violeta lila",
    "pink": "rosa rosas rosado rosada rosados rosadas fucsia",
    "brown": "marrón marrones café castaño castaña castaños pardo parda",
    "black": "negro negra negros negras azabache",
    "white": "blanco blanca blancos blancas níveo nívea",
    "grey": "gris grises plateado plateada",
    "gold": "dorado dorada dorados doradas",
    "beige": "beige crema",
}
_GERMAN_RELATIONS = (
    *(
        (rf"{word} (?:dem|der|denen)(?= eine?[nrms]? )", f"{name} it")
        for word, name in (("hinter", "behind"), ("vor", "front"), ("unter", "below"),
                           ("über", "above"), ("neben", "near"), ("auf", "on"), ("in", "in"))
    ),
    ("an (?:seiner|ihrer|deren|dessen) seite", "near it"),
    ("links neben|links von|zur linken (?:seite )?(?:von|des|der)"
     "|auf der linken seite (?:von|des|der|eines|einer)", "left"),
    ("rechts neben|rechts von|zur rechten (?:seite )?(?:von|des|der)"
     "|auf der rechten seite (?:von|des|der|eines|einer)", "right"),
    ("auf der linken seite|links", "@left"),
    ("auf der rechten seite|rechts", "@right"),
    ("im hintergrund", "@behind"),
    ("im vordergrund", "@front"),
    ("neben|nahe|bei|dicht an|an der seite", "near"),
    ("nebeneinander", "near each"),
    ("zwischen", "between"),
    ("hinter", "behind"),
    ("vor", "front"),
    ("oberhalb|über", "above"),
    ("unterhalb|unter", "below"),
    ("oben auf|auf", "on"),
    ("darunter", "below it"), ("darauf", "on it"), ("dahinter", "behind it"), ("davor", "front it"),
    ("darin", "in it"), ("darüber", "above it"), ("daneben", "near it"),
    ("innerhalb|im inneren|in|im", "in"),
    ("außerhalb", "out"),
    ("umgeben von", "<around"),
    ("rund um|um", "around"),
    ("flankiert von", "between"),
)  # fmt: skip
_SPANISH_RELATIONS = (
    ("a la izquierda (?:de|del)|al lado izquierdo (?:de|del)", "left"),
    ("a la derecha (?:de|del)|al lado derecho (?:de|del)", "right"),
    ("a la izquierda|en el lado izquierdo", "@left"),
    ("a la derecha|en el lado derecho", "@right"),
    ("al fondo|en el fondo", "@behind"),
    ("en primer plano", "@front"),
    ("al lado (?:de|del)|junto (?:a|al)|cerca (?:de|del)|pegado a|contiguo a", "near"),
    ("entre", "between"),
    ("detrás (?:de|del)|tras", "behind"),
    ("delante (?:de|del)|frente (?:a|al)|enfrente (?:de|del)", "front"),
    ("debajo (?:de|del)|bajo", "below"),
    ("encima (?:de|del)|en lo alto de", "on"),
    ("por encima (?:de|del)|arriba (?:de|del)", "above"),
    ("sobre", "over"),
    ("dentro (?:de|del)|en el interior (?:de|del)", "in"),
    ("fuera (?:de|del)", "out"),
    ("alrededor (?:de|del)|en torno a", "around"),
    ("rodead[oa]s? (?:de|por)", "<around"),
    ("flanquead[oa]s? por", "between"),
    ("en", "over"),
)  # fmt: skip

GERMAN = Grammar(
    name="de",
    determiners=words(
        """
        ein eine einen einem einer eines der die das den dem des dieser diese dieses kein keine
        keinen keinem keiner jeder jede jedes alle
        """
    ),
    ones=words("ein eine einen einem einer eines einzelne einzelner einzelnes einzelnen einzige 1"),
    others=frozenset(),
    boundaries=words(
        """
        mit ohne von vom zum zur zu für aus nach bei durch gegen seit als wie wenn während ist sind
        war waren wird werden hat haben nicht sehr auch nur trägt tragen sitzt sitzen steht stehen
        liegt liegen hängt hängen schläft schlafen läuft laufen fliegt fliegen fährt spielt spielen
        lehnt lehnen parkt parken sitzend stehend liegend schwebt schweben in im am an einige
        mehrere viele
        """
    ),
    conjunctions=words("und oder & ,"),
    pronouns=words("es ihm ihnen sie er denen"),
    possessives=words("sein seine seinen seinem seiner ihr ihre ihren ihrem ihrer dessen deren"),
    verbs=words(
        "gemalt gefärbt geparkt stehen sitzen lackiert gestrichen bemalt gehalten getaucht"
    ),
    numbers=GERMAN_NUMBERS,
    ranges={"mehrere": (3, 12), "einige": (2, 12), "viele": (5, 10**9), "zahlreiche": (5, 10**9)},
    colours=_inflected(_GERMAN_COLOURS, "e er es en em farben farbene farbenes farbener"),
    shades=words(
        """
        hell dunkel tief leuchtend blass kräftig helles dunkles leuchtendem leuchtendes leuchtenden
        kräftigem tiefem hellem dunklem sattem sattes glänzendem zartem
        """
    ),
    of=words("von"),
    relations=tuple((_any(pattern), name) for pattern, name in _GERMAN_RELATIONS),
    head="capital",
)

SPANISH = Grammar(
    name="es",
    determiners=words("un una unos unas el la los las este esta estos estas cada ningún ninguna"),
    ones=words("un una uno solo sola único única 1"),
    others=words("otro otra"),
    boundaries=words(
        """
        con sin de del para por a al hacia desde como cuando mientras que es son está están era
        tiene tienen hay lleva llevan muy no ni se sentado sentada sentados acostado parado
        corriendo jugando volando nadando durmiendo caminando comiendo aparcado estacionado
        algunos algunas varios varias muchos muchas iluminado cubierto lleno
        """
    ),
    conjunctions=words("y e o u & ,"),
    pronouns=words("ella él ellos ellas ello"),
    possessives=words("su sus cuyo cuya cuyos cuyas"),
    verbs=frozenset(),
    numbers=SPANISH_NUMBERS,
    ranges={"varios": (3, 12), "varias": (3, 12), "algunos": (2, 12), "algunas": (2, 12),
            "muchos": (5, 10**9), "muchas": (5, 10**9), "numerosos": (5, 10**9)},
    colours=_inflected(_SPANISH_COLOURS, ""),
    shades=words("claro oscuro brillante intenso pálido vivo clara oscura color"),
    of=words("de"),
    relations=tuple((_any(pattern), name) for pattern, name in _SPANISH_RELATIONS),
    head="first",
)  # fmt: skip

GRAMMARS: dict[str, Grammar] = {g.name: g for g in (ENGLISH, GERMAN, SPANISH)}
