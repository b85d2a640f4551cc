"""The page as it is built: its tabs, its look, and whose page it is."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from t2x.studio import Studio

pytestmark = pytest.mark.extra("app")
USER = "guest-" + "0f" * 16


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from t2x.apps.studio.app import build

    home = tmp_path_factory.mktemp("home")
    return build(Studio(home=home), home=home)


def test_the_page_has_every_tab_once(page: Any) -> None:
    labels = [block.label for block in page.blocks.values() if type(block).__name__ == "Tab"]
    assert labels == ["Create", "Edit", "Ask me", "History", "Batch"]


def test_the_look_asks_nothing_of_the_network() -> None:
    from t2x.apps.studio.app import look

    theme, sheet = look()["theme"], Path(look()["css_paths"][0]).read_text(encoding="utf-8")
    assert theme._stylesheets == []
    assert not re.search(r"url\([\"']?(https?:)?//|@import", theme._get_theme_css() + sheet)


@pytest.mark.parametrize("forged", [None, 3, "", "user-ada", "../../etc", "guest-", USER + "/.."])
def test_a_browser_cannot_choose_who_it_is(forged: Any) -> None:
    from t2x.apps.studio.desk import user_of

    given = user_of(forged, cast(Any, SimpleNamespace(username=None)))
    assert given.startswith("guest-") and len(given) == len(USER) and given != forged


def test_who_has_logged_in_is_known_by_name() -> None:
    from t2x.apps.studio.desk import user_of

    assert user_of(USER, cast(Any, SimpleNamespace(username="ada"))) == "user-ada"
    assert user_of(USER, None) == USER


def test_the_browser_s_id_outlives_a_restart(tmp_path: Path) -> None:
    from t2x.apps.studio.app import build

    secrets = []
    for _ in range(2):
        build(Studio(home=tmp_path), home=tmp_path)
        secrets.append((tmp_path / "page-secret").read_text(encoding="utf-8"))
    assert secrets[0] == secrets[1] and len(secrets[0]) == 64
