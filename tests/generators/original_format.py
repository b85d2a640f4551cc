"""A tiny Stable Diffusion pipeline's weights under the names of the original code (CompVis'
latent-diffusion, Stability AI's generative-models, OpenCLIP), which diffusers reads back.

Where a diffusers model lies in blocks, the original numbers all layers of a side in one row.
"""

from __future__ import annotations

import re
from typing import Any

import torch

_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
_UNET = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}
_VAE_ATTENTION = {
    "group_norm": "norm",
    "to_q": "q",
    "to_k": "k",
    "to_v": "v",
    "to_out.0": "proj_out",
}
_OPEN_CLIP = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}


def original_state(pipe: Any) -> dict[str, torch.Tensor]:
    """Every weight of a StableDiffusion(XL)Pipeline with one resnet per block and half."""
    state = {f"model.diffusion_model.{k}": v for k, v in _unet(pipe.unet).items()}
    state |= {f"first_stage_model.{k}": v for k, v in _vae(pipe.vae).items()}
    text = {k.removeprefix("text_model."): v for k, v in pipe.text_encoder.state_dict().items()}
    if not hasattr(pipe, "text_encoder_2"):
        return state | {f"cond_stage_model.transformer.text_model.{k}": v for k, v in text.items()}
    state |= {f"conditioner.embedders.0.transformer.text_model.{k}": v for k, v in text.items()}
    second = _open_clip(pipe.text_encoder_2.state_dict())
    return state | {f"conditioner.embedders.1.model.{k}": v for k, v in second.items()}


def _unet(unet: Any) -> dict[str, torch.Tensor]:
    per = unet.config.layers_per_block
    found = {}
    for key, value in unet.state_dict().items():
        side = re.match(r"(down|up)_blocks\.(\d+)\.(resnets|attentions)\.(\d+)\.(.*)", key)
        sample = re.match(r"(down|up)_blocks\.(\d+)\.(?:down|up)samplers\.0\.conv\.(.*)", key)
        middle = re.match(r"mid_block\.(resnets|attentions)\.(\d+)\.(.*)", key)
        if side:
            block, kind, layer, rest = int(side[2]), side[3], int(side[4]), side[5]
            down = side[1] == "down"
            number = block * (per + 1) + layer + (1 if down else 0)
            stem = f"{'input' if down else 'output'}_blocks.{number}.{int(kind == 'attentions')}"
        elif sample:
            block, rest = int(sample[2]), sample[3]
            if sample[1] == "down":
                stem, rest = f"input_blocks.{(block + 1) * (per + 1)}.0.op", rest
            else:
                attends = hasattr(unet.up_blocks[block], "attentions")
                stem = f"output_blocks.{block * (per + 1) + per}.{1 + attends}.conv"
            found[f"{stem}.{rest}"] = value
            continue
        elif middle:
            number = 1 if middle[1] == "attentions" else 2 * int(middle[2])
            stem, rest = f"middle_block.{number}", middle[3]
            kind = middle[1]
        else:
            found[_renamed(key, _UNET)] = value
            continue
        found[f"{stem}.{_renamed(rest, _RESNET) if kind == 'resnets' else rest}"] = value
    return found


def _vae(vae: Any) -> dict[str, torch.Tensor]:
    ups = len(vae.decoder.up_blocks)
    found = {}
    for key, value in vae.state_dict().items():
        name = key.replace("conv_shortcut", "nin_shortcut").replace("conv_norm_out", "norm_out")
        name = re.sub(r"down_blocks\.(\d+)\.resnets\.", r"down.\1.block.", name)
        name = re.sub(r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample", name)
        for pattern, part in (("resnets", "block"), ("upsamplers.0", "upsample")):
            hit = re.match(rf"decoder\.up_blocks\.(\d+)\.{pattern}(.*)", name)
            if hit:
                name = f"decoder.up.{ups - 1 - int(hit[1])}.{part}{hit[2]}"
        name = re.sub(r"mid_block\.resnets\.(\d)", lambda m: f"mid.block_{int(m[1]) + 1}", name)
        attention = re.match(r"(.*)mid_block\.attentions\.0\.(.*)", name)
        if attention:
            name = f"{attention[1]}mid.attn_1.{_renamed(attention[2], _VAE_ATTENTION)}"
            value = value[:, :, None, None] if value.ndim == 2 else value  # a 1x1 convolution
        found[name] = value
    return found


def _open_clip(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    state = {k.removeprefix("text_model."): v for k, v in state.items()}
    found = {
        "positional_embedding": state["embeddings.position_embedding.weight"],
        "token_embedding.weight": state["embeddings.token_embedding.weight"],
        "ln_final.weight": state["final_layer_norm.weight"],
        "ln_final.bias": state["final_layer_norm.bias"],
        "text_projection": state["text_projection.weight"].T,
    }
    for key, value in state.items():
        layer = re.match(r"encoder\.layers\.(\d+)\.(.*)", key)
        if layer is None:
            continue
        stem, rest = f"transformer.resblocks.{layer[1]}", layer[2]
        joined = re.match(r"self_attn\.([qkv])_proj\.(weight|bias)", rest)
        if joined is None:
            found[f"{stem}.{_renamed(rest, _OPEN_CLIP)}"] = value
        elif joined[1] == "q":
            three = [state[key.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            found[f"{stem}.attn.in_proj_{joined[2]}"] = torch.cat(three)
    return found


def _renamed(key: str, names: dict[str, str]) -> str:
    stem, _, leaf = key.rpartition(".")
    return f"{names.get(stem, stem)}.{leaf}"
