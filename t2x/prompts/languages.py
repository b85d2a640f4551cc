"""Language of a short prompt, by its script and its small words.

Prompts are a few words long, where statistics of letters fail; the words between the nouns tell. A
text that gives no clear sign ("cat, dog, sunset") has no language: "".
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

from t2x.prompts.words import words

__all__ = ["LANGUAGES", "grammar_name", "language", "script"]

_SMALL = {
    "en": words(
        """
        the a an of and with in on at to is are by from for near under over behind between next its
        his her their without no this that into through left right above below beside two three
        i me my we you he she it they am be was do as or not all one some off out up down
        wearing sitting standing holding portrait photo painting picture looking
        """
    ),
    "de": words(
        """
        der die das den dem des ein eine einen einem einer eines und mit auf im in am an vor hinter
        neben unter über zwischen ohne nicht kein keine ist sind von vom zum zur für aus bei nach
        links rechts zwei drei vier fünf sechs sieben acht neun zehn sitzt steht liegt bild foto ihr
        sein seine
        frau mann hund katze haus rot rote roter rotes blau schwarz weiß grün mädchen junge
        """
    ),
    "es": words(
        """
        el la los las un una unos unas y con en de del al sobre bajo junto sin por para que es son
        está están hay su sus entre detrás delante debajo encima izquierda derecha lado cerca dos
        tres cuatro cinco seis foto retrato muy no
        mujer hombre perro gato casa niño niña rojo roja azul negro negra blanco blanca verde
        """
    ),
    "fr": words(
        """
        le la les un une des du de et avec dans sur sous sans au aux à est sont pour par en qui que
        son sa ses près devant derrière entre gauche droite deux trois très pas d'un d'une l' d'
        femme homme chien chat maison rouge bleu noir blanc vert fille garçon avec
        """
    ),
    "it": words(
        """
        il lo la gli le un una uno di del della dei delle e con nel nella sul sulla su sotto senza
        al alla è sono per da che tra accanto sinistra destra due tre molto non in
        donna uomo cane gatto casa rosso rossa nero bianco bianca verde ragazza con
        """
    ),
    "pt": words(
        """
        o a os as um uma uns umas e com em no na nos nas do da dos das de sobre sob sem ao à é são
        para por que seu sua entre atrás frente esquerda direita lado dois duas três não
        mulher homem cão gato vermelho preto branco azul verde menina menino
        """
    ),
    "nl": words(
        """
        de het een en met op in van voor achter naast onder boven tussen zonder niet geen is zijn
        aan bij links rechts twee drie vier uit naar haar zijn
        """
    ),
    "pl": words("i w na z ze do pod nad obok przy bez nie jest są dwa trzy oraz za przed między"),
}
_SIGNS = {
    "de": "äöüß", "es": "ñ¿¡óíáú", "fr": "çêèàâîôûœ", "pt": "ãõ", "pl": "ąęłśżźćń", "it": "òùì",
}  # fmt: skip
_SCRIPTS = {
    "han": "zh", "japanese": "ja", "hangul": "ko", "cyrillic": "ru", "arabic": "ar",
    "hebrew": "he", "greek": "el", "thai": "th", "devanagari": "hi",
}  # fmt: skip
LANGUAGES = (*_SMALL, *_SCRIPTS.values())


@lru_cache(maxsize=2048)
def language(text: str) -> str:
    """Code of the language of ``text`` ("en", "de", "es", "zh", ...), or "" if it is not clear."""
    name = script(text)
    if name != "latin":
        return _SCRIPTS.get(name, "")
    found = set(re.findall(r"[^\W\d_]+(?:['\u2019])?", text.lower()[:4000]))
    points, small, signs = Counter[str](), Counter[str](), Counter[str]()
    for word in found:
        known = [code for code, table in _SMALL.items() if word in table]
        own = [] if "en" in known else known
        for code in known:
            points[code] += 12 // len(known)
        for code, letters in _SIGNS.items():
            if set(word) & set(letters):
                points[code] += 6
                signs[code] += code not in own
        small.update(own)
    pairs = re.findall(r"(?<![^\W\d_])([^\W\d_]+) [A-ZÄÖÜ][a-zäöüß]+", text[:4000])
    german = _SMALL["de"] - _SMALL["en"]
    signs["de"] += any(word in german for word in pairs)  # its nouns are capitals: "im Nebel"
    # One word alone may be a loan or a name: "ice cream van", "crème brûlée", "São Paulo".
    for code in points.keys() - {"en"}:
        if small[code] == 0 or small[code] + signs[code] < 2:
            del points[code]
    ranked = points.most_common(2)
    if not ranked or ranked[0][1] < 3:
        return ""
    second = ranked[1][1] if len(ranked) > 1 else 0
    return ranked[0][0] if ranked[0][1] > second else ""


def grammar_name(original: str, rewrite: str = "") -> str:
    """The language by whose tables a pair is read: its own if they are there, else English."""
    code = language(original) or language(rewrite)
    return code if code in ("de", "es", "zh") else "en"


def script(text: str) -> str:
    """Script of most letters: latin, han, japanese, hangul, cyrillic, ...; '' without letters."""
    names = Counter(_script_of(c) for c in text[:4000] if c.isalpha())
    if not names:
        return ""
    if names["hiragana"] + names["katakana"] and names["latin"] < sum(names.values()) / 2:
        return "japanese"
    return names.most_common(1)[0][0]


@lru_cache(maxsize=8192)
def _script_of(char: str) -> str:
    first = unicodedata.name(char, "UNKNOWN").split()[0].lower()
    return {"cjk": "han"}.get(first, first)
