"""The policy: a language model with its tokenizer and the template around the user's words."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from t2x.config import build_config
from t2x.errors import T2XError
from t2x.files import write_whole
from t2x.rewriters.encoding import PromptEncoder
from t2x.rewriters.templates import Template, read_template
from t2x.settings import SETTINGS_FILE, read_settings
from t2x.training.config import LoraSection, PolicyConfig

if TYPE_CHECKING:
    from t2x.rewriters.language_model import LanguageModelRewriter

__all__ = [
    "Policy",
    "load_policy",
    "load_trained",
    "save_policy",
    "save_template",
    "save_trained",
    "stored_model",
    "with_adapters",
]


@dataclass(frozen=True)
class Policy:
    """``model`` (with adapters if ``lora`` was asked for), ``tokenizer`` and ``template``."""

    model: Any
    tokenizer: Any
    template: Template

    @property
    def encoder(self) -> PromptEncoder:
        """Turns prompts into the ids that the model is trained on and serves."""
        return PromptEncoder(self.tokenizer, self.template)


def load_policy(config: PolicyConfig) -> Policy:
    """Load what a recipe trains.

    Raises T2XError for a rewriter that is no language model of transformers.
    """
    from t2x.registry import is_language_model, load_rewriter

    source = _source(config.model)
    if not is_language_model(source):
        raise T2XError(
            f"{config.model!r} is no language model, and can't be trained; give one that is: a "
            "name of `t2x list rewriters`, a folder or a hub id"
        )
    own = None if config.template_of is None else _template_of(config.template_of)
    options: dict[str, Any] = {"revision": config.revision, "dtype": config.dtype}
    options |= {"device": config.device, "trust_remote_code": config.trust_remote_code}
    rewriter = cast("LanguageModelRewriter", load_rewriter(source, **options))
    template = rewriter.template if own is None else own
    if config.template:
        template = build_config(Template, asdict(template) | config.template)
    model = rewriter.model
    if model.device.type == "cpu" and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation("eager")  # torch's flash attention is slow backwards there
    if config.lora is not None:
        model = with_adapters(model, config.lora)
    return Policy(model, rewriter.tokenizer, template)


def save_policy(policy: Policy, folder: str | Path, *, half: bool = False) -> None:
    """Save a folder that ``t2x.load_rewriter`` loads: weights with adapters merged in, tokenizer,
    and the template in ``t2x.json``. ``half`` stores float16.
    """
    folder = Path(folder)
    stored_model(policy.model, half=half).save_pretrained(folder)
    save_template(policy, folder)


def stored_model(model: Any, *, half: bool = False) -> Any:
    """A model as it is stored, with adapters merged into the weights, and as float16 if ``half``;
    the given one stays as it is."""
    import torch

    if hasattr(model, "merge_and_unload"):
        model = deepcopy(model).merge_and_unload()
    return deepcopy(model).to(torch.float16) if half else model


def save_template(policy: Policy, folder: Path) -> None:
    """Put the tokenizer and the template beside weights that lie in ``folder``."""
    policy.tokenizer.save_pretrained(folder)
    settings = read_settings(folder) | {"rewriter": asdict(policy.template)}
    write_whole(folder / SETTINGS_FILE, json.dumps(settings, indent=1) + "\n")


def save_trained(model: Any, path: str | Path) -> None:
    """Write what is trained of a model, adapters or all of it, to go on from in memory."""
    from safetensors.torch import save_file

    trained = {n: p.detach().contiguous() for n, p in model.named_parameters() if p.requires_grad}
    save_file(trained, path)


def load_trained(model: Any, path: str | Path) -> None:
    """Put what :func:`save_trained` wrote into the same model."""
    from safetensors.torch import load_file

    model.load_state_dict(load_file(path), strict=False)


def _source(name: str) -> str:
    """The embedded ``emoji-lm`` is no rewriter, so the registry does not know it by name."""
    from t2x.world.weights import EMBEDDED, require_model

    return str(require_model(name)) if name in EMBEDDED else name


def _template_of(name: str) -> Template:
    from t2x.rewriters.presets import PRESETS, preset_template

    found = preset_template(name) if name in PRESETS else None
    if found is None and Path(source := _source(name)).is_dir():
        found = read_template(source)
    if found is None:
        raise T2XError(
            f"policy.template_of is {name!r}, which has no template; give a preset "
            f"({', '.join(PRESETS)}) or a folder whose {SETTINGS_FILE} has one"
        )
    return found


def with_adapters(model: Any, lora: LoraSection) -> Any:
    """The model with fresh low-rank adapters, which alone are trained."""
    from t2x.registry import missing_dependency

    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError as error:
        raise missing_dependency(error) from error
    return get_peft_model(
        model,
        LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=lora.targets,
            task_type="CAUSAL_LM",
        ),
    )
