"""Cooperative training: several prompters that write parts of one prompt in turns, each trained on
what the finished prompt's pictures are worth.

    t2x train cooperative --config world/cooperative
    t2x train cooperative --config world/cooperative_single    # one prompter, as many pictures

MultiPrompter (Kim et al. 2023, arXiv 2310.16730). The prompters share one reward, that of the
finished prompt. They are trained in alternation: one learns by GRPO while the others, as they are
now, write their parts: those before it by sampling, which gives the states that it meets; those
behind it greedily, so that a group compares its own parts. Each is a policy of its own, full or
with adapters, because TRL trains one policy at a time; the protocol (what each sees, how parts are
joined) is that of the search (``t2x.rewriters.turns``), and ``load_rewriter(OUT/model)`` loads all
as one rewriter.

``trainer.max_steps`` counts the steps of all turns together, so that runs with one and with several
prompters cost the same number of pictures.

Differs from the paper: GRPO with group-relative advantages in place of actor-critic with a
centralised critic; alternation in place of joint updates, with a fresh optimiser in every turn;
parts of free length. KL is held to each prompter's start, after its warm-up.

One process: prompters write their parts between the turns, which is not shared out.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from t2x.errors import T2XError
from t2x.files import write_metrics, write_whole
from t2x.rewriters.completion import Completion
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.rewriters.parsing import write_completion
from t2x.rewriters.sampling import row_seed
from t2x.rewriters.templates import Template
from t2x.rewriters.turns import (
    Draft,
    Prompter,
    add_part,
    joint_completion,
    joint_template,
    save_turns,
    write_turns,
)
from t2x.rollouts.checkpoints import STATE_FILE, load_state
from t2x.rollouts.config import RolloutConfig
from t2x.rollouts.reading import policy_text
from t2x.rollouts.reward import RolloutReward
from t2x.rollouts.scorer import RolloutScorer
from t2x.search.cooperative import TEMPLATES
from t2x.search.instructions import shared
from t2x.settings import SETTINGS_FILE
from t2x.training.arguments import trainer_arguments
from t2x.training.checking import check_settings
from t2x.training.config import DataConfig, PolicyConfig, RewardConfig, RunConfig
from t2x.training.data import load_prompts, load_rows
from t2x.training.grpo import DEFAULTS, end_tokens, grpo_arguments, recent_means, run_grpo
from t2x.training.limits import refuse_unused, require_one_process
from t2x.training.picture_rows import world_range
from t2x.training.policy import Policy, load_policy, load_trained, save_policy, save_trained
from t2x.training.run import begin_run, write_run_metrics
from t2x.watching.config import WatchConfig
from t2x.watching.watch import Watch
from t2x.world.turn_rows import part_row

log = logging.getLogger(__name__)

_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class WarmupConfig:
    """Supervised steps before the turns, for a prompter that does not know its task.

    ``rows``: a file of ``original_prompt``, ``written`` and ``part``, or ``world:parts``.
    ``trainer``: TRL's SFTConfig.
    """

    rows: str = "world:parts?n=4000"
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PrompterConfig:
    """``role``: its name; ``sees``: the prompt alone (for the first only), or the request with what
    was written. ``template``: words around that; None is the policy's own for one that sees the
    prompt alone, else that of the search for ``role`` (subject, arrangement, style).
    """

    role: str
    policy: PolicyConfig
    sees: Literal["prompt", "turns"] = "turns"
    template: Template | None = None
    warmup: WarmupConfig | None = None


@dataclass(frozen=True)
class Config:
    """``rounds``: how often each prompter has its turn to learn. ``trainer``: TRL's GRPOConfig.
    ``watch``: of every turn, in a folder of its own.
    """

    run: RunConfig
    data: DataConfig
    reward: RewardConfig
    prompters: list[PrompterConfig]
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    rounds: int = 2
    watch: WatchConfig = field(default_factory=WatchConfig)
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise T2XError(f"rounds is {self.rounds}; give at least 1")
        if self.watch.held_out is not None:
            raise T2XError("watch.held_out measures one policy alone; leave it out of a turn")
        refuse_unused("cooperative", "data", self.data, "validation")
        for prompter in self.prompters:
            known = prompter.sees == "prompt" or prompter.role in TEMPLATES
            if not known and prompter.template is None:
                raise T2XError(
                    f"the prompter {prompter.role!r} has no template; give one, or a role of the "
                    f"search: {', '.join(TEMPLATES)}"
                )


@dataclass(frozen=True)
class Turn:
    """In turn ``number`` the prompter at ``place`` learns, for ``steps``."""

    number: int
    place: int
    steps: int
    folder: Path


class TurnReward(RolloutReward):
    """Advantages of the parts that one prompter writes, by what the finished prompts are worth.

    ``following`` go on with each part, greedily.
    """

    def __init__(
        self,
        scorer: RolloutScorer,
        prompter: Prompter,
        following: Sequence[Prompter],
        **options: Any,
    ) -> None:
        rewriter = prompter.rewriter
        super().__init__(
            scorer, tokenizer=rewriter.tokenizer, template=rewriter.template, **options
        )
        self.prompter, self.following = prompter, tuple(following)

    def completions(
        self,
        completion_ids: Sequence[Sequence[int]],
        original_prompt: Sequence[str],
        columns: Mapping[str, Sequence[Any]],
    ) -> list[Completion]:
        """The finished prompts of N parts, each behind the columns ``written`` and ``negative``."""
        sources = [policy_text(p) for p in original_prompt]
        begun = map(Draft, columns["written"], columns["negative"])
        drafts = [
            add_part(source, draft, self.read(ids), self.prompter)
            for source, draft, ids in zip(sources, begun, completion_ids, strict=True)
        ]
        return [joint_completion(d) for d in write_turns(self.following, sources, drafts)]


def main(config: Config) -> dict[str, float]:
    """Train all prompters in alternation, save them as one rewriter to ``run.out/model`` and return
    the means over the last steps of each one's last turn. T2XError if several processes were
    launched.
    """
    from trl import GRPOConfig

    require_one_process("cooperative")
    check_settings(config, GRPOConfig, **DEFAULTS)
    turns = plan_turns(config)
    begin_run(config)
    begun = time.perf_counter()
    policies = [start_policy(config, place) for place in range(len(config.prompters))]
    prompters = [
        Prompter(
            own.role,
            LanguageModelRewriter(p.model, p.tokenizer, template=p.template, model_id=own.role),
            own.sees,
        )
        for own, p in zip(config.prompters, policies, strict=True)
    ]
    joint = joint_template(policies[0].template.domain)
    scorer = RolloutScorer.from_config(config.reward, config.rollout, joint)
    prompts = load_prompts(
        config.data.train, limit=config.data.limit, split=config.data.train_split
    )
    metrics: dict[str, float] = {}
    for turn in turns:
        log.info("turn %d of %d: %s", turn.number + 1, len(turns), prompters[turn.place].role)
        found = run_turn(config, turn, policies, prompters, scorer=scorer, prompts=prompts)
        role = prompters[turn.place].role
        metrics |= {f"{role}/{k}": v for k, v in found.items() if k not in scorer.cost}
    rows = zip(config.prompters, policies, strict=True)
    save_turns([(own.role, own.sees, p) for own, p in rows], Path(config.run.out) / "model")
    metrics |= scorer.cost | {"turns": float(len(turns)), "seconds": time.perf_counter() - begun}
    return write_run_metrics(Path(config.run.out), metrics)


def plan_turns(config: Config) -> list[Turn]:
    """Turns of equal length in the order of the prompters; T2XError if there are too few steps."""
    number = config.rounds * len(config.prompters)
    steps = config.trainer.get("max_steps", -1)
    if not config.prompters or steps < number:
        raise T2XError(
            f"{len(config.prompters)} prompters in {config.rounds} rounds need trainer.max_steps "
            f"of at least {max(number, 1)}, all turns together; given {steps}"
        )
    folder = Path(config.run.out) / "turns"
    places = [p for _ in range(config.rounds) for p in range(len(config.prompters))]
    return [
        Turn(i, p, steps // number, folder / f"{i}-{config.prompters[p].role}")
        for i, p in enumerate(places)
    ]


# ---- the policies -------------------------------------------------------------------------------


def start_policy(config: Config, place: int) -> Policy:
    """A prompter as it enters its first turn: loaded, warmed up if asked for, and saved, so that it
    is the reference of KL; with fresh adapters if it learns by those.
    """
    own = config.prompters[place]
    folder = Path(config.run.out) / "start" / f"{place}-{own.role}"
    if not (config.run.resume and (folder / SETTINGS_FILE).is_file()):
        policy = load_policy(replace(own.policy, lora=None))
        template = own.template
        if template is None and own.sees == "turns":
            template = TEMPLATES[own.role]
        policy = replace(policy, template=template or policy.template)
        if own.warmup is not None:
            warm_up(policy, own.warmup, replace(config.run, out=folder.parent / f"{place}-warmup"))
        save_policy(policy, folder)
    return load_policy(replace(own.policy, model=str(folder), template_of=None, revision=None))


def warm_up(policy: Policy, warmup: WarmupConfig, run: RunConfig) -> None:
    """Teach the policy, in place, to write parts behind what was written."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    tags, encoder = policy.template.require_answer, policy.encoder
    rows = []
    for row in _part_rows(warmup.rows):
        asked = encoder.conversation(shared(row["original_prompt"], row["written"]))
        said = write_completion(row["part"]) if tags else row["part"]
        rows.append({"prompt": asked, "completion": encoder.answer(said)})
    arguments = trainer_arguments(SFTConfig, run, warmup.trainer, save_strategy="no")
    trainer = SFTTrainer(
        model=policy.model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=policy.tokenizer,
    )
    Watch(run.out, WatchConfig(report=0)).train(trainer)


def _part_rows(source: str) -> list[Mapping[str, str]]:
    numbers = world_range(source, "parts")
    if numbers is not None:
        return [part_row(i) for i in numbers]
    rows = load_rows(source)
    if missing := {"written", "part"} - set(rows.column_names):
        raise T2XError(
            f"{source!r} has no column {min(missing)}; a warm-up needs original_prompt, written "
            "and part"
        )
    return list(rows)


# ---- one turn -----------------------------------------------------------------------------------


def run_turn(
    config: Config,
    turn: Turn,
    policies: Sequence[Policy],
    prompters: Sequence[Prompter],
    *,
    scorer: RolloutScorer,
    prompts: Sequence[str],
) -> dict[str, float]:
    """Let the prompter whose turn it is learn, in place, or take what it had learnt before a run
    was broken off; give its metrics."""
    policy, prompter = policies[turn.place], prompters[turn.place]
    own_seed = row_seed(config.run.seed, "turn", generation=turn.number)
    run = replace(config.run, out=turn.folder)
    arguments = grpo_arguments(run, policy.template, {**config.trainer, "max_steps": turn.steps})
    watch = Watch(turn.folder, config.watch, policy=policy)
    reward = TurnReward(
        scorer,
        prompter,
        prompters[turn.place + 1 :],
        num_generations=arguments.num_generations,
        pictures=config.reward.pictures,
        seed=own_seed,
        ends=end_tokens(policy.model),
    )
    if config.run.resume and (turn.folder / STATE_FILE).is_file():
        load_state(reward, turn.folder)
        load_trained(policy.model, turn.folder / _WEIGHTS)
        return dict(json.loads((turn.folder / "metrics.json").read_text()))
    wanted = turn.steps * arguments.generation_batch_size // arguments.num_generations
    chosen = _chosen(prompts, turn.number, wanted)
    rows = turn_rows(policy, prompter, prompters[: turn.place], chosen, turn.number, own_seed)
    trainer = run_grpo(policy, rows, reward, arguments, run, watch=watch)
    if "ref" in getattr(policy.model, "peft_config", {}):
        policy.model.delete_adapter("ref")  # TRL's copy; the next turn makes its own
    metrics = recent_means(trainer.state.log_history) | scorer.cost  # of all turns so far
    _keep(policy.model, reward, metrics, turn.folder)
    return metrics


def turn_rows(
    policy: Policy,
    prompter: Prompter,
    earlier: Sequence[Prompter],
    prompts: Sequence[str],
    number: int,
    seed: int,
) -> Any:
    """What the prompter meets in its turn: ``prompt``, ``original_prompt``, and what the earlier
    ones have ``written``, sampled anew in every turn. Prompts that those fail at are left out."""
    from datasets import Dataset

    sources = [policy_text(p) for p in prompts]
    empty = [Draft()] * len(sources)
    drafts = write_turns(earlier, sources, empty, generation=number + 1, seed=seed)
    rows = []
    for prompt, source, draft in zip(prompts, sources, drafts, strict=True):
        body = prompter.body(source, draft.text)
        if not draft.problem and policy.encoder.reads_alike(body):
            said = {"written": draft.text, "negative": draft.negative}
            asked = policy.encoder.conversation(body)
            rows.append({"prompt": asked, "original_prompt": prompt, **said})
    if lost := len(prompts) - len(rows):
        log.warning("%d of %d prompts left out: no part was written for them", lost, len(prompts))
    if not rows:
        raise T2XError(
            f"no prompt is left for {prompter.role}: those before it gave no usable part; give "
            "them a warm-up or another template"
        )
    return Dataset.from_list(rows)


def _keep(model: Any, reward: TurnReward, metrics: Mapping[str, float], folder: Path) -> None:
    """Write what a resumed run needs of a finished turn, the mark of its end last."""
    save_trained(model, folder / _WEIGHTS)
    write_metrics(folder, metrics)
    write_whole(folder / STATE_FILE, json.dumps(reward.state_dict()))


def _chosen(prompts: Sequence[str], turn: int, number: int) -> list[str]:
    """The prompts of a turn: the next ``number``, round and round."""
    return [prompts[(turn * number + i) % len(prompts)] for i in range(number)]
