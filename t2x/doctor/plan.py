"""A chosen run before anything is downloaded: what comes from where, under which licence, how much
memory each phase takes, and what to pass so that it fits.

The memory is ``t2x.memory.plan_run``'s. Of a hub id only configurations and vocabularies are
fetched for it, a few MB; no weights are.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.checkpoint_files import faults, is_hub_id, missing_parts
from t2x.doctor.downloads import Download, find_download
from t2x.errors import T2XError, UnknownNameError
from t2x.failures import explain, first_line, without_secrets
from t2x.hub_failures import model_page
from t2x.memory.machine import readable_bytes
from t2x.settings import INDEX_FILE, SETTINGS_FILE

if TYPE_CHECKING:
    from t2x.generators.presets import ModelPreset
    from t2x.memory.plan import RunPlan

__all__ = ["Need", "RunReport", "plan_report"]


@dataclass(frozen=True)
class Need:
    """One model of a run.

    Args:
        kind: "rewriter", "generator" or "reward".
        name: as it was given.
        place: "embedded", "local", "package", "endpoint" or "hub".
        downloads: what its repositories make the libraries download.
        stated: what a table of t2x says of the download, where no repository is known.
        licence: of the weights; None where it is unknown.
        gated: whether a licence must be accepted on the hub first; None where it is unknown.
        fault: what keeps a local folder from loading, as far as its files tell; or empty.
    """

    kind: str
    name: str
    place: str
    downloads: tuple[Download, ...] = ()
    stated: str = ""
    licence: str | None = None
    gated: bool | None = None
    fault: str = ""

    @property
    def missing(self) -> int | None:
        """Bytes to download; None where they are unknown."""
        if self.place != "hub":
            return 0
        sizes = [download.missing for download in self.downloads]
        known = [size for size in sizes if size is not None]
        return sum(known) if sizes and len(known) == len(sizes) else None

    @property
    def out_of_reach(self) -> bool:
        """Whether nothing of it is here and the hub does not say what it is."""
        return any(not download.parts for download in self.downloads)


@dataclass(frozen=True)
class RunReport:
    """What a run needs. ``memory`` lacks what can't be counted, for the ``reason``;
    ``free_disk`` in bytes is that of the hub's cache; ``has_token`` tells of a login."""

    needs: tuple[Need, ...]
    memory: RunPlan | None
    reason: str
    free_disk: int
    has_token: bool

    @property
    def missing(self) -> int | None:
        """Bytes to download in all; None where some are unknown."""
        sizes = [need.missing for need in self.needs]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def problems(self) -> list[str]:
        """What would end the run, each with what to do."""
        found = []
        known = sum(need.missing or 0 for need in self.needs)
        if known > self.free_disk:
            found.append(
                f"{readable_bytes(known)} are to be downloaded and {readable_bytes(self.free_disk)}"
                " are free: set HF_HOME to a folder on another disk"
            )
        if not self.has_token:
            found += [_gate(need) for need in self.needs if need.gated and need.missing != 0]
        found += [
            f"{need.name}: {download.problem}"
            for need in self.needs
            for download in need.downloads
            if download.refused and not download.parts
        ]
        found += [f"{need.name}: {need.fault}" for need in self.needs if need.fault]
        if self.memory is not None and self.memory.verdict == "does not fit":
            found.append("it does not fit into the memory, in whatever way it is placed")
        return found

    def advice(self) -> list[str]:
        """What else to do or to pass, in the order in which to try it."""
        found = [] if self.memory is None else self.memory.advice()
        if self.has_token:
            found += [
                f"{need.name} is gated: see that your account has accepted its licence "
                f"({_pages(need)})"
                for need in self.needs
                if need.gated and need.missing != 0
            ]
        return found

    def record(self) -> dict[str, Any]:
        """Everything as JSON values, sizes in bytes."""
        needs = [
            {**asdict(need), "missing": need.missing, "downloads": _recorded(need.downloads)}
            for need in self.needs
        ]
        return {
            "needs": needs,
            "missing": self.missing,
            "free_disk": self.free_disk,
            "memory": None if self.memory is None else self.memory.record(),
            "reason": self.reason,
            "problems": self.problems(),
            "advice": self.advice(),
        }


def plan_report(
    rewriter: str | None = None,
    generator: str | None = None,
    rewards: Sequence[str] = (),
    **settings: Any,
) -> RunReport:
    """Find out what a run needs. ``settings`` are those of ``t2x.memory.plan_run``: limit, device,
    dtype, size, num_frames, batch, sampling, source_size.

    Downloads no weights; asks the hub with short timeouts. Raises UnknownNameError for names that
    nothing has, T2XError for what is no device, size or number format.
    """
    from huggingface_hub import get_token
    from huggingface_hub.constants import HF_HUB_CACHE

    from t2x.generators.loading import resolve_dtype
    from t2x.memory.plan import room_on
    from t2x.registry import check_names

    check_names("rewriters", [name for name in (rewriter,) if name])
    check_names("generators", [name for name in (generator,) if name])
    check_names("rewards", rewards)
    where, _ = room_on(settings.get("device"), settings.get("limit"))
    if (dtype := settings.get("dtype")) is not None:
        resolve_dtype(dtype, where)
    needs = [_generator(generator)] if generator else []
    if rewriter and rewriter != "none":
        needs.insert(0, _rewriter(rewriter))
    needs += [_reward(name) for name in rewards]
    unknown = [need for need in needs if need.out_of_reach]
    out_of_reach = {need.name for need in unknown}
    memory, reason = _memory(
        None if rewriter in out_of_reach else rewriter,
        None if generator in out_of_reach else generator,
        [name for name in rewards if name not in out_of_reach],
        settings,
    )
    if out_of_reach:
        why = dict.fromkeys(d.problem for need in unknown for d in need.downloads if not d.parts)
        reason = f"nothing is known of {', '.join(sorted(out_of_reach))}: {' / '.join(why)}"
    there = next(p for p in (Path(HF_HUB_CACHE), *Path(HF_HUB_CACHE).parents) if p.exists())
    return RunReport(tuple(needs), memory, reason, shutil.disk_usage(there).free, bool(get_token()))


def _memory(
    rewriter: str | None, generator: str | None, rewards: Sequence[str], settings: Mapping[str, Any]
) -> tuple[RunPlan | None, str]:
    from t2x.memory.plan import plan_run

    if rewriter is None and generator is None and not rewards:
        return None, ""
    try:
        return plan_run(rewriter, generator, list(rewards), **settings), ""
    except UnknownNameError:
        raise
    except Exception as error:  # the hub's, a gate's, a folder's
        said = explain(error, generator or rewriter or "the rewards")
        return None, first_line(error if said is None or isinstance(error, T2XError) else said)


def _rewriter(name: str) -> Need:
    from t2x.registry import is_language_model
    from t2x.rewriters.adapters import ADAPTER_FILE
    from t2x.rewriters.presets import PRESETS

    if Path(name).is_dir():
        return _local("rewriter", name, "config.json", ADAPTER_FILE)
    known = PRESETS.get(name)
    if known is not None and known.weights:
        return _from_hub("rewriter", name, known.weights, licence=known.licence or None)
    if is_hub_id(name):
        return _from_hub("rewriter", name, name)
    engine, _, model = name.partition(":")
    if engine in ("vllm", "vision-edit", "vision-i2v") and is_hub_id(model):
        return _from_hub("rewriter", name, model)
    place = "package" if is_language_model(name) and not _embedded(name) else "embedded"
    return Need("rewriter", name, "endpoint" if engine == "openai" else place)


def _generator(name: str) -> Need:
    from t2x.generators.presets import preset_for

    if Path(name).is_dir():
        return _local("generator", name, INDEX_FILE)
    preset = preset_for(name)
    if preset is not None:
        return _published(name, preset)
    if is_hub_id(name):
        return _from_hub("generator", name, name)
    return Need("generator", name, "embedded" if _embedded(name) else "package")


def _local(kind: str, name: str, *index: str) -> Need:
    """A folder, with what is wrong in it; ``index``: files of which each of its kind has one."""
    folder = Path(name)
    wrong = ""
    if lacks := missing_parts(folder):
        wrong = f"{INDEX_FILE} names parts that are not there: {', '.join(lacks)}"
    elif broken := faults(folder):
        wrong = "; ".join(f"{file} {fault}" for file, fault in broken[:3])
    elif not any((folder / file).is_file() for file in (*index, SETTINGS_FILE)):
        wrong = f"the folder has no {index[0]}, so that it is no {kind}"
    return Need(kind, name, "local", fault=f"{wrong}; copy or download it again" if wrong else "")


def _published(name: str, preset: ModelPreset) -> Need:
    """What a preset knows stands where the hub does not say."""
    repository = preset.hub[0] if name == preset.name else name
    own = repository.lower() == preset.hub[0].lower()
    variant = preset.variant if own else None
    found: tuple[Download, ...]
    if preset.denoiser_file:
        alone = find_download(repository, only=preset.denoiser_file)
        found = (alone, find_download(preset.base, variant=variant, without=("unet",)))
    else:
        found = (find_download(repository, variant=variant),)
    need = _hub_need("generator", name, found, preset.licence)
    gated = preset.gated if need.gated is None or preset.gated else need.gated
    size = preset.download_bytes if own and need.out_of_reach else None
    stated = "" if size is None else readable_bytes(size)
    return replace(need, stated=stated, gated=gated)


def _reward(name: str) -> Need:
    from t2x.reward_facts import FACTS

    facts = FACTS.get(name)
    if facts is None:
        return Need("reward", name, "package")
    if facts.download in ("embedded", "no weights"):
        return Need("reward", name, "embedded", licence=facts.licence)
    return Need("reward", name, "hub", (), facts.download, facts.licence)


def _embedded(name: str) -> bool:
    from t2x.world.weights import EMBEDDED

    return name in EMBEDDED


def _from_hub(kind: str, name: str, *sources: str, licence: str | None = None) -> Need:
    return _hub_need(kind, name, tuple(map(find_download, sources)), licence)


def _hub_need(kind: str, name: str, found: tuple[Download, ...], licence: str | None) -> Need:
    gates = {download.gated for download in found}
    gated = True if True in gates else (None if None in gates else False)
    tag = next((download.licence for download in found if download.licence), None)
    return Need(kind, name, "hub", found, licence=licence or tag, gated=gated)


def _pages(need: Need) -> str:
    gated = [d.source for d in need.downloads if d.gated is not False]
    return without_secrets(", ".join(model_page(source) for source in gated))


def _gate(need: Need) -> str:
    return (
        f"{need.name} is gated: accept its licence at {_pages(need)}, then log in: hf auth login "
        "(or set HF_TOKEN)"
    )


def _recorded(downloads: Sequence[Download]) -> list[dict[str, Any]]:
    return [{**asdict(download), "total": download.total} for download in downloads]
