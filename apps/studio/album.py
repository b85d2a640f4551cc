"""What a page shows of a job: its pictures as files with their recipes, and their scores."""

from __future__ import annotations

import json
import logging
import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from t2x.errors import T2XError
from t2x.plain import plain
from t2x.studio.events import Drawn, GuidanceStep, Scored
from t2x.studio.recipes import Recipe, write_picture
from t2x.types import Rewrite

from .bars import ARMS, number

if TYPE_CHECKING:
    from t2x.studio.requests import Request

log = logging.getLogger(__name__)

__all__ = ["BY_SEED", "Album", "Picture"]

BY_SEED = "seed"


@dataclass(frozen=True)
class Picture:
    """One picture of a job: the paths of its PNG (an animated one of a video) and of its recipe as
    JSON, the user's words and the text that was drawn."""

    arm: str
    index: int
    seed: int
    path: str
    recipe: str  # path of the JSON file
    prompt: str
    text: str
    video: str = ""  # path of the MP4 file of a video, where one could be written

    @property
    def shown(self) -> str:
        """Path of what a page shows and gives to people: what any player plays, of a video."""
        return self.video or self.path


@dataclass
class Album:
    """The state of one page; a new job begins a new one and removes the files of the one before."""

    request: Request | None = None
    rewrite: Rewrite | None = None
    words: str = ""
    arms: dict[str, list[Picture]] = field(default_factory=dict)
    scores: list[Scored] = field(default_factory=list)
    steps: list[GuidanceStep] = field(default_factory=list)
    order: dict[str, list[int]] = field(default_factory=dict)
    note: str = ""  # why videos are no MP4 files
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="t2x-studio-")))

    def remove(self) -> None:
        """Delete the files; what the page shows are gradio's copies."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, drawn: Drawn) -> None:
        """Save one picture with its recipe and show it behind those of its arm."""
        name = f"{drawn.arm}-seed{drawn.seed}-{drawn.index + 1}"
        path = self.folder / f"{name}.png"
        facts = plain(drawn.recipe)
        written = json.dumps(facts, ensure_ascii=False, indent=1)
        kept = Recipe.from_record(drawn.recipe)
        write_picture(path, drawn.picture, kept, frames=drawn.frames, fps=drawn.fps)
        video = self._video(drawn, path.with_suffix(".mp4")) if drawn.frames else ""
        recipe = self.folder / f"{name}.json"
        recipe.write_text(written, encoding="utf-8", errors="replace")
        text = str(facts.get("text", ""))
        picture = Picture(
            drawn.arm,
            drawn.index,
            drawn.seed,
            str(path),
            str(recipe),
            str(facts.get("prompt", text)),
            text,
            video,
        )
        self.arms.setdefault(drawn.arm, []).append(picture)

    def _video(self, drawn: Drawn, path: Path) -> str:
        """Write the MP4 file of a video; gives its path, or "" and leaves a note."""
        from t2x.media import from_pil, save_video

        frames = from_pil(list(drawn.frames))
        assert not isinstance(frames, list)
        try:
            save_video(frames, path, fps=drawn.fps)
        except T2XError as error:
            self.note = f"Videos are shown as animated PNG files: {error}."
        except Exception as error:  # whatever an encoder raises, the frames are there
            log.warning("no MP4 file of a video", exc_info=True)
            reason = " ".join(str(error).split())[:200]
            self.note = f"Videos are shown as animated PNG files: MP4 failed ({reason})."
        else:
            return str(path)
        path.unlink(missing_ok=True)
        return ""

    def step(self, step: GuidanceStep) -> None:
        """Keep a step of the picture that is being steered, and forget those of the one before."""
        if self.steps and self.steps[-1].index != step.index:
            self.steps = []
        self.steps.append(step)

    def sort(self, by: str) -> None:
        """Order the pictures of each arm, the best by a reward first, or by seed."""
        self.order = {}
        for score in self.scores:
            if score.reward == by:
                for arm, values in score.values.items():
                    self.order[arm] = best_first(values)

    def placed(self, arm: str) -> list[Picture]:
        """The pictures of an arm as they are shown."""
        pictures = self.arms.get(arm, [])
        order = self.order.get(arm, range(len(pictures)))
        return [pictures[i] for i in order if i < len(pictures)]

    def gallery(self, arm: str, *, by: str = BY_SEED) -> list[tuple[str, str]]:
        """Path and caption of each picture of an arm, as they are shown."""
        return [(p.shown, self._caption(p, by)) for p in self.placed(arm)]

    def values(self, picture: Picture) -> dict[str, float]:
        """What each reward says of one picture; NaN is not measured."""
        found = {}
        for score in self.scores:
            values = score.values.get(picture.arm, ())
            found[score.reward] = values[picture.index] if picture.index < len(values) else math.nan
        return found

    def measured(self) -> list[str]:
        """Rewards that measured something."""
        return [
            score.reward
            for score in self.scores
            if any(not math.isnan(v) for values in score.values.values() for v in values)
        ]

    def title(self, picture: Picture) -> str:
        """Which picture it is, in words."""
        return f"{self.arm_title(picture.arm)}, seed {picture.seed}"

    def arm_title(self, arm: str) -> str:
        """What an arm is called; a text that the user wrote is no rewrite."""
        given = self.rewrite is not None and self.rewrite.model_id == "given"
        return "Your own text" if given and arm == "rewritten" else ARMS.get(arm, arm)

    def _caption(self, picture: Picture, by: str) -> str:
        seed = f"seed {picture.seed}"
        value = self.values(picture).get(by)
        return seed if value is None else f"{seed} · {by} {number(value)}"


def best_first(values: Sequence[float]) -> list[int]:
    """Indices from the largest value to the smallest; NaN comes last, equals in order."""
    return sorted(range(len(values)), key=lambda i: (math.isnan(values[i]), -values[i], i))
