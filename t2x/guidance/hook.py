"""The step hook: what stands between a pipeline's prediction and its scheduler's step.

    with watch_steps(pipe, [control]):
        pipe("a cat", num_inference_steps=20)

Any unmodified diffusers pipeline: methods of the *instances* are wrapped and unwrapped
(docs/design.md, section 12); for gradients the call as well, so that a callback sees none. A
control sees each step's x0_hat and may change it; the model output that says the same goes to the
scheduler, so that solvers with a memory stay consistent (a callback's edit of the latents is thrown
away by UniPC's corrector). Without a change the output passes untouched.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.latents import frozen
from t2x.guidance.levels import Level, check_scheduler, data_scale, level_count, read_level
from t2x.guidance.solvers import check_moves, forget_sample, forget_slopes
from t2x.guidance.step import DENOISERS, Call, Control, Step
from t2x.guidance.support import starts_within

__all__ = ["watch_steps"]

_HISTORY = "old_pred_original_sample"  # CogVideoXDPMScheduler's, which the pipeline keeps for it


@contextmanager
def watch_steps(
    pipe: Any, controls: Sequence[Control], *, prompts: Sequence[str] | None = None
) -> Iterator[None]:
    """Let ``controls`` act, in order, at each step of every call of ``pipe`` inside.

    ``prompts``: N, one for each row of the latents; without, those of the call, each as often as
    it has pictures. Raises T2XError for a pipeline that is watched already, one that lacks the
    methods, and several controls that trade noise.
    """
    for name in ("scheduler", "prepare_latents"):
        if not hasattr(pipe, name):
            raise T2XError(f"{type(pipe).__name__} has no {name}; guidance needs one")
    if "step" in vars(pipe.scheduler):
        raise T2XError(f"{type(pipe).__name__} is guided already; leave that `with` first")
    if sum(getattr(control, "trades_noise", False) for control in controls) > 1:
        raise T2XError(
            "guidance and particles would both trade the predicted noise for new noise, which can "
            "be done once; set the noise of guidance or that of the particles to 0"
        )
    session = _Session(pipe, list(controls), None if prompts is None else list(prompts))
    with ExitStack() as stack:
        session.install(stack)
        yield


class _Session:
    """Wraps a pipeline's methods and keeps count of a call."""

    def __init__(self, pipe: Any, controls: list[Control], prompts: list[str] | None) -> None:
        self.pipe, self.controls, self.prompts = pipe, controls, prompts
        self.chain = any(getattr(control, "chain", False) for control in controls)
        self.call = Call(pipe)
        self.begun = False
        self.listening = False  # to a denoiser
        self.plan: list[int] = []  # visits of each level
        self.visit = 0  # of the level that is at hand
        self.outputs: list[Tensor] = []
        self.tables: dict[str, Tensor] = {}  # the solver's own, where the pipeline sees others
        self.latents: Tensor | None = None  # as prepared, until their level is known
        self.level: Level | None = None  # of the first step, until latents are prepared
        self.touched = False  # x_t is not the one that the solver gave
        self.jumped = False  # since the first visit of its level

    # ---- wrapping ---------------------------------------------------------------------------

    def install(self, stack: ExitStack) -> None:
        """Wrap the instances; the stack unwraps them."""
        stack.callback(torch.set_grad_enabled, torch.is_grad_enabled())
        first = [n for n in ("check_inputs", "encode_prompt") if hasattr(self.pipe, n)]
        if first:  # Z-Image checks nothing
            _wrap(stack, self.pipe, first[0], self._new_call)
        _wrap(stack, self.pipe, "prepare_latents", self._prepare_latents)
        if hasattr(self.pipe, "prepare_extra_step_kwargs"):
            _wrap(stack, self.pipe, "prepare_extra_step_kwargs", self._check_eta)
        scheduler = self.pipe.scheduler
        stack.callback(self._shorten, scheduler)
        _wrap(stack, scheduler, "set_timesteps", self._set_timesteps)
        _wrap(stack, scheduler, "step", self._step)
        if hasattr(scheduler, "set_begin_index"):
            _wrap(stack, scheduler, "set_begin_index", self._set_begin_index)
        asked = self.chain or any(control.gradient(0, 0) for control in self.controls)
        if asked and not self.chain:
            kind = type(self.pipe)
            self.pipe.__class__ = _telling(kind)
            stack.callback(setattr, self.pipe, "__class__", kind)
        for name in DENOISERS:
            module = getattr(self.pipe, name, None)
            if isinstance(module, torch.nn.Module):
                stack.callback(module.register_forward_pre_hook(self._check_first).remove)
                stack.callback(module.register_forward_hook(self._remember).remove)
                self.listening = True
                if asked:  # frozen matrix products may differ in their last bits
                    stack.enter_context(frozen(module))
        # Else the space freezes it while it decodes: the pipeline's own decode is to give the bytes
        # of an unguided run.
        if getattr(getattr(self.pipe, "vae", None), "is_gradient_checkpointing", False):
            stack.enter_context(frozen(self.pipe.vae))

    def _check_first(self, module: Any, given: Any) -> None:
        """Before a call's first evaluation: refuse what its steps would be refused for."""
        if self.begun or not (self.call.steps and self.call.arguments):
            return
        scheduler = self.pipe.scheduler
        with self._own_tables(scheduler):
            check_scheduler(scheduler)
            if not starts_within(self.pipe):  # else it is not known where
                read_level(scheduler, scheduler.timesteps[self._first()])
            self._begin(scheduler)

    def _check_eta(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """DDIM's own noise, which comes with the call."""
        found = original(*args, **kwargs)
        if found.get("eta") and any(getattr(c, "trades_noise", False) for c in self.controls):
            raise T2XError(
                f"eta {found['eta']:g} and the noise of guidance or particles would both trade the "
                "predicted noise, which can be done once; set one of them to 0"
            )
        return found

    def _begin(self, scheduler: Any) -> None:
        if not self.begun:
            self.begun = True
            for control in self.controls:
                control.begin(self.call, scheduler)

    def _remember(self, module: Any, given: Any, result: Any) -> None:
        found = (
            result[0] if isinstance(result, (tuple, list)) else getattr(result, "sample", result)
        )
        if isinstance(found, list):  # Z-Image: a list of samples
            found = torch.stack([item.detach() for item in found])
        if isinstance(found, Tensor):
            self.outputs.append(found.detach())

    def _new_call(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.call, self.begun, self.visit = Call(self.pipe), False, 0
        self.touched = self.jumped = False
        self.latents, self.level, self.plan = None, None, []
        self.outputs.clear()
        bound = _bound(original, args, kwargs)
        negatives = ("negative_prompt", "negative_prompt_embeds")
        self.call.negative = any(bound.get(name) is not None for name in negatives)
        given = bound.get("prompt")
        if isinstance(given, str):
            self.call.prompts = [given]
        elif given is not None:
            self.call.prompts = [str(item) for item in given]
        return original(*args, **kwargs)

    def _prepare_latents(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.call.arguments = _bound(original, args, kwargs)
        if "step" not in vars(self.pipe.scheduler):
            raise T2XError(
                f"the scheduler of this {type(self.pipe).__name__} was replaced while guided; "
                "set it before the `with`"
            )
        found = original(*args, **kwargs)
        latents, *rest = found if isinstance(found, tuple) else (found,)
        self._match_prompts(len(latents))
        for control in self.controls:
            if hasattr(control, "start"):
                latents = control.start(self.call, latents)
        first = None if starts_within(self.pipe) else self._first()
        self.latents = latents = self._leaf(latents, first)
        self._place()
        return (latents, *rest) if isinstance(found, tuple) else latents

    def _place(self) -> None:
        """Put controls' own x_t into the first one, in place: pipelines prepare latents before
        they set timesteps (Flux, SD3, LTX), or after."""
        if self.latents is None or self.level is None:
            return
        latents, level, self.latents, self.level = self.latents, self.level, None, None
        scale = data_scale(self.pipe.scheduler)  # the pipeline's next multiplication
        for control in self.controls:
            if hasattr(control, "place"):
                with torch.no_grad():
                    first = latents.detach().float() * scale
                    latents.copy_(control.place(self.call, level, first) / scale)

    def _first(self) -> int:
        """The first level that is not skipped."""
        return next((i for i, visits in enumerate(self.plan) if visits), 0)

    def _match_prompts(self, n: int) -> None:
        given = self.prompts if self.prompts is not None else self.call.prompts
        if not given or n % len(given):
            raise T2XError(f"{n} pictures and {len(given)} prompts for guidance; give one for each")
        self.call.prompts = [prompt for prompt in given for _ in range(n // len(given))]

    def _set_timesteps(
        self, original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any
    ) -> Any:
        found = original(*args, **kwargs)
        total = level_count(scheduler)
        self.call.steps = total
        asked = [[c.visits(i, total) for c in self.controls] for i in range(total)]
        self.plan = [0 if 0 in visits else max([1, *visits]) for visits in asked]
        self.tables = {}
        first = self._first()
        if first and hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index(first)
        if any(hasattr(control, "place") for control in self.controls):
            self.level = read_level(scheduler, scheduler.timesteps[first])
        if self.plan != [1] * total:
            self._check_visits(scheduler)
            self._lengthen(scheduler)
        self._place()
        return found

    def _check_visits(self, scheduler: Any) -> None:
        check_moves(scheduler)
        if starts_within(self.pipe):
            raise T2XError(
                f"{type(self.pipe).__name__} starts within its list of timesteps, whose places "
                "correctors and skipped steps would shift; leave them out"
            )

    def _set_begin_index(
        self, original: Callable[..., Any], scheduler: Any, begin_index: int = 0
    ) -> None:
        """Pipelines set it to 0 before their loop (SDXL, Flux, Qwen-Image)."""
        original(begin_index or self._first())

    def _lengthen(self, scheduler: Any) -> None:
        """Show the pipeline each timestep as often as it is visited. Sigmas only get a longer end:
        some pipelines look them up by their own counter (Wan), others by the solver's."""
        self.tables["timesteps"] = own = scheduler.timesteps
        visits = [*self.plan, *[1] * (len(own) - len(self.plan))]  # the end, where it is listed
        scheduler.timesteps = own.repeat_interleave(torch.tensor(visits, device=own.device))
        if hasattr(scheduler, "sigmas"):
            self.tables["sigmas"] = own = scheduler.sigmas
            more = max(0, sum(self.plan) - len(self.plan))
            scheduler.sigmas = torch.cat([own, own[-1:].expand(more)])
        if getattr(scheduler, "begin_index", 0) is None:  # else it looks for the first timestep,
            scheduler.set_begin_index(0)  # and takes the second of equal ones

    def _shorten(self, scheduler: Any) -> None:
        """After a call that was broken off."""
        for name, own in self.tables.items():
            setattr(scheduler, name, own)

    @contextmanager
    def _own_tables(self, scheduler: Any) -> Iterator[None]:
        """The solver looks its place up in its own lists."""
        seen = {name: getattr(scheduler, name) for name in self.tables}
        for name, own in self.tables.items():
            setattr(scheduler, name, own)
        try:
            yield
        finally:
            for name in self.tables:  # none after the last step
                setattr(scheduler, name, seen[name])

    # ---- one step ---------------------------------------------------------------------------

    def _step(self, original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original).bind(*args, **kwargs)
        if self.listening and not self.outputs:
            raise T2XError(
                f"another pipeline steps with the scheduler of the {type(self.pipe).__name__} that "
                "is guided; give it one of its own (copy.deepcopy), or call it after the `with`"
            )
        with self._own_tables(scheduler):
            self._begin(scheduler)
            return self._controlled(original, scheduler, bound)

    def _controlled(
        self, original: Callable[..., Any], scheduler: Any, bound: inspect.BoundArguments
    ) -> Any:
        given = bound.arguments
        step = self._read(scheduler, given)
        for control in self.controls:
            control.edit(step)
        step.drop_graph()
        self.outputs.clear()
        self.visit = 0 if step.last_visit else step.visit + 1
        _mend_history(scheduler, given, step)
        if not step.last_visit:
            return self._stay(step, given)
        torch.set_grad_enabled(self.chain)
        if self.touched:
            forget_sample(scheduler)
        if step.visit > 0 and self.jumped:
            forget_slopes(scheduler)
        self._hand_over(step, given)
        found = original(*bound.args, **bound.kwargs)
        sample = found[0] if isinstance(found, tuple) else found.prev_sample
        changed = plain = sample.float()
        for control in self.controls:
            changed = control.after(step, changed)
        self.touched = changed is not plain
        if step.index == self.call.steps - 1:
            self.tables = {}
            for control in self.controls:
                control.end(self.call)
        sample = self._leaf(changed.to(sample.dtype), step.index + 1)
        if isinstance(found, tuple):
            ended = self.touched and step.index == self.call.steps - 1
            # Sana-Sprint decodes x0_hat of the last step, which is the sample there.
            return (sample, sample, *found[2:]) if ended else (sample, *found[1:])
        found.prev_sample = sample
        return found

    def _read(self, scheduler: Any, given: Mapping[str, Any]) -> Step:
        level = read_level(scheduler, given["timestep"])
        sample, output = given["sample"], given["model_output"]
        if sample.shape != output.shape or given.get("per_token_timesteps") is not None:
            raise T2XError(
                f"guidance needs one output for each number of x_t, all of one noise level; "
                f"{type(self.call.pipe).__name__} has {tuple(output.shape)} for "
                f"{tuple(sample.shape)}, or levels for each token; use another pipeline"
            )
        visits = self.plan[level.index] if level.index < len(self.plan) else 1
        return Step(
            self.call,
            level,
            sample,
            output,
            visit=min(self.visit, visits - 1),
            visits=visits,
            corrections=list(self.outputs),
            scheduler=scheduler,
            controls=self.controls,
        )

    def _hand_over(self, step: Step, given: dict[str, Any]) -> None:
        """Put into the scheduler's arguments what the controls made of the step."""
        if self.chain:
            if step.edited or step.rows is not None:
                raise T2XError(
                    "a step was edited while the whole chain is differentiated; leave the other "
                    "controls out"
                )
            return
        dtype, shape = given["sample"].dtype, given["sample"].shape
        sample, output = given["sample"].detach(), given["model_output"].detach()
        if step.rows is not None:
            for name, value in given.items():  # CogVideoX's pipeline keeps its solver's memory
                if isinstance(value, Tensor) and value.shape == shape:
                    given[name] = value[step.rows]
            sample, output = sample[step.rows], output[step.rows]
        given["sample"] = step.sample.to(dtype) if step.edited else sample
        given["model_output"] = self._output(step, output)

    def _output(self, step: Step, output: Tensor) -> Tensor:
        """The output that says x0_hat as edited; the model's own bytes without an edit."""
        if not step.edited:
            return output
        if step.level.sigma == 0:
            raise T2XError(
                "x0_hat can't be edited where no noise is left; leave the last step free"
            )
        return step.level.output(step.sample, step.clean).to(output.dtype)

    def _stay(self, step: Step, given: Mapping[str, Any]) -> Any:
        """The answer of a visit that is not the last: x_t of the same level."""
        moved = step.sample if step.moved is None else step.moved
        self.jumped = step.moved is not None or (self.jumped and step.visit > 0)
        self.touched = self.touched or self.jumped
        sample = self._leaf(moved.to(given["sample"].dtype), step.index)
        if _HISTORY in given:
            return (sample, given[_HISTORY])
        if not given.get("return_dict", True):  # Sana-Sprint unpacks x0_hat, too
            return (sample, step.clean) if step.level.prediction == "trigflow" else (sample,)
        return types.SimpleNamespace(prev_sample=sample)

    def _leaf(self, latents: Tensor, index: int | None) -> Tensor:
        """The sample of step ``index``: one that asks for gradients if a control needs them. None
        where the pipeline begins somewhere on its own (picture to picture): whether any does."""
        total = self.call.steps
        if total == 0:  # latents come before timesteps
            asked = range(1)
        else:
            asked = range(total) if index is None else range(index, min(index + 1, total))
        if self.chain:
            torch.set_grad_enabled(len(asked) > 0)
            return latents if asked else latents.detach()
        wanted = any(c.gradient(i, total) for c in self.controls for i in asked)
        torch.set_grad_enabled(wanted)
        return latents.detach().requires_grad_(wanted)


def _wrap(stack: ExitStack, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Put a method on the instance that calls ``wrapper(original, ...)``; the stack takes it off.

    A bound method, so that a deep copy of a scheduler gets one of its own. Scheduler methods are
    told which copy they are called on.
    """
    before = vars(owner).get(name)
    function = getattr(type(owner), name)
    on_scheduler = hasattr(owner, "timesteps")
    ended: list[bool] = []

    @functools.wraps(function)  # pipelines ask the signature what a scheduler takes
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = None if on_scheduler else before
        original = own or types.MethodType(function, self)
        if ended:  # a copy that was made inside
            return original(*args, **kwargs)
        extra = (self,) if on_scheduler else ()
        return wrapper(original, *extra, *args, **kwargs)

    object.__setattr__(owner, name, types.MethodType(method, owner))

    def undo() -> None:
        ended.append(True)
        if before is None:
            vars(owner).pop(name, None)
        else:
            object.__setattr__(owner, name, before)

    stack.callback(undo)


def _telling(kind: type) -> type:
    """``kind``, whose calls hand a callback plain tensors as they would without guidance. Python
    looks ``__call__`` up on classes only."""

    @functools.wraps(kind.__call__)
    def call(pipe: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(kind.__call__).bind(pipe, *args, **kwargs)
        given = bound.arguments
        callback = given.get("callback_on_step_end")
        if callback is not None:
            given["callback_on_step_end"] = _plainly(callback)
            if (names := getattr(callback, "tensor_inputs", None)) is not None:
                given["callback_on_step_end_tensor_inputs"] = names  # diffusers' own kind
        return kind.__call__(*bound.args, **bound.kwargs)

    body = {"__call__": call, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), body)


def _plainly(callback: Callable[..., Any]) -> Callable[..., Any]:
    """``callback``, given tensors that share their numbers with the loop's, so that a change in
    place counts; latents that it gives back ask for gradients as those of the loop did."""

    def told(pipe: Any, index: int, timestep: Any, given: dict[str, Any]) -> Any:
        latents = given.get("latents")
        plain = {k: v.detach() if isinstance(v, Tensor) else v for k, v in given.items()}
        with torch.no_grad():
            found = callback(pipe, index, timestep, plain)
        if isinstance(found, dict) and isinstance(found.get("latents"), Tensor):
            wanted = latents is not None and latents.requires_grad
            found = {**found, "latents": found["latents"].detach().requires_grad_(wanted)}
        return found

    return told


def _mend_history(scheduler: Any, given: dict[str, Any], step: Step) -> None:
    """Where the pipeline keeps the solver's history, it counts visits as levels, and does not know
    of rows that were reordered on a visit without a step."""
    if _HISTORY not in given:
        return
    given["timestep_back"] = scheduler.timesteps[step.index - 1] if step.index > 0 else None
    if not step.last_visit and step.rows is not None and given[_HISTORY] is not None:
        given[_HISTORY] = given[_HISTORY][step.rows]


def _bound(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    found = inspect.signature(function).bind(*args, **kwargs)
    found.apply_defaults()
    return dict(found.arguments)
