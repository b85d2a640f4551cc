"""Models of the real classes with a few thousand random weights from a fixed seed: their pictures
and texts mean nothing, but they load, save, batch, offload and differentiate like their big
counterparts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_SENTENCE = (
    "a an the two three of on in and with to left right above below photo picture cat dog pizza "
    "bus red green blue yellow white small large please draw yes no think answer prompt"
)
WORDS = tuple(_SENTENCE.split())
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {{ message['content'] }} "
    "<|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
QWEN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@contextmanager
def fixed_weights(seed: int) -> Iterator[None]:
    """Make what is built inside depend on ``seed`` alone, and leave the caller's random state
    be."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def tiny_word_tokenizer(words: Iterable[str] = WORDS, *, max_length: int = 128) -> Any:
    """Build a fast tokenizer of whole words with chat tokens, <think> tags and a chat template.

    Unknown words become <unk>; padding is on the left, as generation needs it.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>"]
    tags = ["<think>", "</think>", "<answer>", "</answer>"]
    known = dict.fromkeys([*special, *tags, "user", "system", "assistant", ".", ",", *words])
    vocabulary = {word: index for index, word in enumerate(known)}
    model = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        padding_side="left",
        model_max_length=max_length,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_byte_tokenizer() -> Any:
    """Build a fast chat tokenizer of bytes, to which no text is unknown. Chat tokens are special;
    <think> tags are added tokens but not special, as in Qwen3.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.add_tokens([AddedToken(t, special=False) for t in ("<think>", "</think>")])
    tokenizer.chat_template = QWEN_TEMPLATE
    return tokenizer


def tiny_clip_tokenizer(max_length: int = 77) -> Any:
    """Build a CLIP tokenizer without merges: one token per byte, of which no text is unknown."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import CLIPTokenizer

    letters = sorted(ByteLevel.alphabet())
    pieces = [*letters, *(f"{letter}</w>" for letter in letters)]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=max_length)


def tiny_bert_tokenizer(words: Iterable[str] = WORDS) -> Any:
    """Build BERT's tokenizer on whole words and single letters, of which no Latin text is
    unknown."""
    import string

    from transformers import BertTokenizer

    letters = string.ascii_lowercase + string.digits
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation, *letters]
    known = dict.fromkeys([*pieces, *(f"##{letter}" for letter in letters), *words])
    return BertTokenizer(vocab={piece: index for index, piece in enumerate(known)})


def tiny_blip(seed: int = 0, *, size: int = 32) -> tuple[Any, Any]:
    """Build (model, processor): BLIP's image-text matching, towers of one layer and width 32."""
    from transformers import (
        BlipConfig,
        BlipForImageTextRetrieval,
        BlipImageProcessor,
        BlipProcessor,
    )

    tokenizer = tiny_bert_tokenizer()
    tower = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "initializer_range": 0.2,
    }
    text = {"vocab_size": len(tokenizer) + 2, "bos_token_id": None, "sep_token_id": None}
    config = BlipConfig(
        text_config={**tower, **text},
        vision_config={**tower, "image_size": size, "patch_size": 8},
        image_text_hidden_size=16,
        initializer_range=0.2,
    )
    with fixed_weights(seed):
        model = BlipForImageTextRetrieval(config)
    pictures = BlipImageProcessor(size={"height": size, "width": size})
    return model.eval(), BlipProcessor(image_processor=pictures, tokenizer=tokenizer)


def tiny_causal_lm(
    seed: int = 0, *, words: Iterable[str] = WORDS, tokenizer: Any = None, tied: bool = True
) -> tuple[Any, Any]:
    """Build (model, tokenizer): a Qwen3 causal LM of 2 layers and width 32 on the word tokenizer,
    or on another one; ``tied`` are its word embeddings.

    Not Qwen2, for which AutoTokenizer replaces a tokenizer of one's own without a word.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = tokenizer or tiny_word_tokenizer(words)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=tied,
    )
    with fixed_weights(seed):
        return Qwen3ForCausalLM(config).eval(), tokenizer


def tiny_open_clip(seed: int = 0, *, size: int = 64) -> tuple[Any, Any]:
    """Build (model, tokenizer): an open_clip model of width 32 for ``size``-pixel pictures.

    The tokenizer turns a list of texts into (B, 77) token ids, one token per byte.
    """
    import torch
    from open_clip import CLIP

    tokenizer = tiny_clip_tokenizer()
    vision = {"image_size": size, "patch_size": 16, "width": 32, "layers": 2, "head_width": 16}
    text = {
        "context_length": 77,
        "vocab_size": len(tokenizer),
        "width": 32,
        "heads": 2,
        "layers": 2,
    }
    with fixed_weights(seed):
        model = CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text).eval()

    def tokenize(texts: Sequence[str]) -> Tensor:
        rows = tokenizer(list(texts), padding="max_length", truncation=True, max_length=77)
        return torch.tensor(rows["input_ids"])

    return model, tokenize


def _tower(**changes: Any) -> dict[str, Any]:
    """Settings of a transformer of 2 layers and width 32 in transformers' CLIP and SigLIP."""
    settings = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    return {**settings, **changes}


def tiny_transformers_clip(seed: int = 0, *, size: int = 32) -> tuple[Any, Any]:
    """Build (model, processor): transformers' CLIP for ``size``-pixel pictures, one token per
    byte.
    """
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor

    tokenizer = tiny_clip_tokenizer()
    text = _tower(
        vocab_size=len(tokenizer),
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    vision = _tower(image_size=size, patch_size=8)
    with fixed_weights(seed):
        model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))
    pictures = CLIPImageProcessor(
        size={"shortest_edge": size}, crop_size={"height": size, "width": size}
    )
    return model.eval(), CLIPProcessor(image_processor=pictures, tokenizer=tokenizer)


def tiny_siglip(seed: int = 0, *, size: int = 32, length: int = 16) -> tuple[Any, Any]:
    """Build (model, processor): a SigLIP for ``size``-pixel pictures on the word tokenizer, which
    closes a text with </s> and pads with the same, as SigLIP's own does.
    """
    from tokenizers.processors import TemplateProcessing
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipProcessor

    tokenizer = tiny_word_tokenizer(("</s>", *WORDS), max_length=length)
    end = tokenizer.convert_tokens_to_ids("</s>")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", end)]
    )
    tokenizer.eos_token = tokenizer.pad_token = "</s>"
    tokenizer.padding_side = "right"
    text = _tower(
        vocab_size=len(tokenizer),
        max_position_embeddings=length,
        projection_size=32,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
    )
    vision = _tower(image_size=size, patch_size=8)
    with fixed_weights(seed):
        model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision))
        model.logit_bias.data.fill_(-1.0)
        model.logit_scale.data.fill_(2.0)
    pictures = SiglipImageProcessor(size={"height": size, "width": size})
    return model.eval(), SiglipProcessor(image_processor=pictures, tokenizer=tokenizer)


def tiny_vae(seed: int = 0, **changes: Any) -> Any:
    """Build an AutoencoderKL that shrinks pictures by 4, with 4 latent channels."""
    from diffusers import AutoencoderKL

    settings = {
        "down_block_types": ["DownEncoderBlock2D"] * 3,
        "up_block_types": ["UpDecoderBlock2D"] * 3,
        "block_out_channels": [8, 8, 8],
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "latent_channels": 4,
        "sample_size": 64,
        "scaling_factor": 1.0,
    }
    with fixed_weights(seed):
        return AutoencoderKL(**{**settings, **changes}).eval()


def tiny_clip_text(tokenizer: Any, *, projected: bool = False) -> Any:
    """Build CLIP's text encoder of width 32, with random weights as the caller's seed has it."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        projection_dim=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=tokenizer.model_max_length,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config).eval()


def tiny_t5(tokenizer: Any, *, width: int = 32) -> Any:
    """Build T5's encoder of one layer, with random weights as the caller's seed has it."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=len(tokenizer), d_model=width, d_kv=8, d_ff=32, num_layers=1, num_heads=4
    )
    return T5EncoderModel(config).eval()
