"""Language of short prompts, told by script and small words."""

from __future__ import annotations

import pytest

from t2x.prompts.languages import grammar_name, language

SHORT = {
    "en": """a cat on a mat|the old man and the sea|portrait of a woman with red hair|two dogs
        playing in the snow|a street without cars|a castle on a hill at night|close-up of an eye|
        a photo of three birds|an astronaut riding a horse|the Eiffel Tower in the rain|a knight
        holding a sword|a bowl of fruit next to a window|city skyline at dusk with fog|a dragon over
        the village|the king and his jester""",
    "de": """eine Katze auf dem Sofa|ein rotes Auto vor dem Haus|zwei Hunde im Schnee|Porträt einer
        alten Frau|die Brücke bei Nacht|ein Ritter mit Schwert|eine Straße ohne Autos|der Hund und
        das Kind|drei Vögel auf einem Ast|ein Schloss am See|Stadt im Nebel|ein Boot auf dem Meer|
        ein Mädchen mit Regenschirm|Blumen in einer Vase|Kölner Dom bei Gewitter""",
    "es": """un gato en el sofá|una mujer con sombrero|dos perros en la playa|el castillo en la
        colina|una calle sin coches|retrato de un anciano|tres pájaros en un árbol|una taza junto a
        la ventana|un niño con un globo rojo|el mar al atardecer|flores en un jarrón azul|un coche
        delante de la casa|la ciudad de noche|una manzana sobre la mesa|caballo blanco
        en la niebla""",
    "zh": "一只猫在沙发上|红色的汽车|海边的日落|两只狗在雪地里玩|没有人的街道",
}  # fmt: skip


@pytest.mark.parametrize("code", list(SHORT))
def test_short_prompts(code: str) -> None:
    """No prompt is taken for another language; nine of ten are told."""
    texts = [" ".join(text.split()) for text in SHORT[code].split("|")]
    found = [language(text) for text in texts]
    assert set(found) <= {code, ""}
    assert found.count(code) >= 0.9 * len(texts)


@pytest.mark.parametrize(
    ("text", "code"),
    [("猫がいる", "ja"), ("고양이", "ko"), ("кот на крыше", "ru"), ("", ""), ("12", ""),
     ("cat, sunset, 4k", ""), ("un chat dans la rue avec les fleurs", "fr")],
)  # fmt: skip
def test_others(text: str, code: str) -> None:
    assert language(text) == code


def test_tables_of_a_pair() -> None:
    assert grammar_name("ein Hund auf der Wiese") == "de"
    assert grammar_name("dog, lake", "ein Hund auf der Wiese") == "de"
    assert grammar_name("un chat dans la rue avec les fleurs") == "en"  # no tables of French


LOANS = """ice cream van|man in van|fox den|dragon den|MIT dome|am radio|los angeles skyline|
    el paso desert|sin city|jalapeño pizza|piñata|chat room|sous chef|pain au chocolat|crème brûlée|
    façade|lion as king|jack o lantern|al pacino as a king|São Paulo skyline|uno cards|
    non fiction shelf|due date calendar|y junction|I do|a red door|van Gogh starry night|
    die cast model car|la la land poster|pizza con carne"""


def test_a_loan_word_makes_no_other_language() -> None:
    texts = [" ".join(text.split()) for text in LOANS.split("|")]
    assert {text: language(text) for text in texts if language(text) not in ("", "en")} == {}
