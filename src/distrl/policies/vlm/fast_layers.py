"""Norms, MLPs and adapted layers with their small steps joined: the same numbers up to rounding, fewer passes over memory.

Stock norms take six passes over their input and stock gates two; one fused kernel each does it here. An adapter is added
to its layer by the product that computes it. MLPs that carry no
adapter and whose inner width is no multiple of 8 (3,420 in Qwen2.5-VL's vision tower) are filled up with zeros for the
product, since matrix kernels for such widths run at a fraction of the chip's rate; the weights themselves stay as they are.
"""

from __future__ import annotations

from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.policies.vlm.adapters import ADAPTER

WIDTH_STEP = 64
"""Inner widths are filled up to a multiple of this."""
KERNELS = 64
"""How many forms of the joined gate a process may compile; beyond that it computes them in two steps."""


def fuse_layers(model: nn.Module) -> int:
    """Give every norm and gated MLP under `model` its fused form; how many there were."""
    changed = 0
    for module in model.modules():
        fused = _fused_form(module)
        if fused is not None:
            module.forward = MethodType(fused, module)
            changed += 1
    return changed


def restore_layers(model: nn.Module) -> None:
    """Give every module under `model` the forward of its class again."""
    for module in model.modules():
        module.__dict__.pop("forward", None)


def _fused_form(module: nn.Module) -> Any:
    if _is_adapted(module):
        return _adapted_linear
    if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
        return _norm
    gated = all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj", "act_fn"))
    if not (gated and "silu" in type(module.act_fn).__name__.lower()):
        return None
    plain = all(type(getattr(module, name)) is nn.Linear for name in ("gate_proj", "up_proj", "down_proj"))
    return _filled_mlp if plain and module.gate_proj.out_features % 8 else _gated_mlp  # type: ignore[operator,union-attr]


def _is_adapted(module: Any) -> bool:
    """Whether this is a linear layer with one plain adapter, of peft."""
    adapters = getattr(module, "lora_A", None)
    return adapters is not None and list(adapters) == [ADAPTER] and type(module.base_layer) is nn.Linear


def _adapted_linear(self: Any, x: Tensor) -> Tensor:
    """The layer and its adapter in the numbers of `x`, where peft would leave them for float32 and come back."""
    out: Tensor = self.base_layer(x)
    if self.merged or self.disable_adapters:
        return out
    down, up = (part[ADAPTER].weight.to(x.dtype) for part in (self.lora_A, self.lora_B))
    low = F.linear(x, down).flatten(0, -2)
    return torch.addmm(out.flatten(0, -2), low, up.T, alpha=self.scaling[ADAPTER]).view(out.shape)


def _norm(self: Any, hidden_states: Tensor) -> Tensor:
    return F.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)


def _gated_mlp(self: Any, x: Tensor) -> Tensor:
    out: Tensor = self.down_proj(_gate(self.gate_proj(x), self.up_proj(x)))
    return out


def _filled_mlp(self: Any, x: Tensor) -> Tensor:
    gate, up, down = self.gate_proj, self.up_proj, self.down_proj
    missing = -gate.out_features % WIDTH_STEP
    weight = torch.cat([_taller(gate.weight, missing), _taller(up.weight, missing)])
    bias = None if gate.bias is None else torch.cat([F.pad(gate.bias, (0, missing)), F.pad(up.bias, (0, missing))])
    gated = _gate(*F.linear(x, weight, bias).chunk(2, dim=-1))
    return F.linear(gated, F.pad(down.weight, (0, missing)), down.bias)


def _taller(weight: Tensor, rows: int) -> Tensor:
    return F.pad(weight, (0, 0, 0, rows))


def _gate(gate: Tensor, up: Tensor) -> Tensor:
    return _joined_gate()(gate, up) if gate.is_cuda else _plain_gate(gate, up)


def _plain_gate(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


@cache
def _joined_gate() -> Any:
    # One kernel for each kind of numbers, of layout and of gradients: more than the compiler makes of one function by itself.
    torch._dynamo.config.recompile_limit = max(KERNELS, torch._dynamo.config.recompile_limit)
    return torch.compile(_plain_gate, dynamic=True)
