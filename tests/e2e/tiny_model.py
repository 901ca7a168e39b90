"""A model folder for mock workers: a tokenizer and the shape of a small Qwen2, and no weights.

One word is one token, so that a workload's lengths in words are its lengths in tokens.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WORDS = tuple(f"w{number}" for number in range(2000))
MAX_TOKENS = 4096
_END, _TURN, _TURN_END, _UNKNOWN = _SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>")
_IDS = {word: number for number, word in enumerate((*_SPECIAL, "system", "user", "assistant", *WORDS))}
_CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [
        {"id": _IDS[word], "content": word, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for word in _SPECIAL
    ],
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {"type": "WordLevel", "vocab": _IDS, "unk_token": _UNKNOWN},
    **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
}
_FILES: dict[str, dict[str, Any]] = {
    "tokenizer.json": _TOKENIZER,
    "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _TURN_END,
        "pad_token": _END,
        "unk_token": _UNKNOWN,
        "model_max_length": MAX_TOKENS,
        "chat_template": _CHAT_TEMPLATE,
    },
    "config.json": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "torch_dtype": "bfloat16",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": len(_IDS),
        "max_position_embeddings": MAX_TOKENS,
        "bos_token_id": _IDS[_END],
        "eos_token_id": _IDS[_TURN_END],
    },
    "generation_config.json": {"eos_token_id": [_IDS[_TURN_END], _IDS[_END]], "pad_token_id": _IDS[_END]},
}


def write_model(folder: Path) -> None:
    """Write the files that Dynamo's frontend and mocker read of a model."""
    folder.mkdir()
    for name, content in _FILES.items():
        (folder / name).write_text(json.dumps(content, indent=1))
