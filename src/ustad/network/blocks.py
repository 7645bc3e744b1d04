"""The Transformer block that both levels share: pre-norm, multi-head softmax attention, feed-forward of 4 D.

In go tokens [B, L, D] and, where some are padding, an additive bias on the keys [B, 1, 1, L]; out come tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

#: Added to the attention logits of padded keys: finite, so that a window of padding only gives no NaN, and so low
#: that the softmax is exactly 0 beside any real key.
HIDDEN = -1e9


class Attention(nn.Module):
    """Multi-head self-attention, written out: matmul, softmax, matmul.

    The fused kernel of torch refuses CUDA batches of more than 65,535 sequences × heads, which feature-level
    attention reaches at once; compiled, this is as fast on sequences this short.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def mix(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Every token's weighted mean of values, before the output map: [B, L, D] -> [B, L, D]."""
        B, L, D = x.shape
        q, k, v = self.qkv(x).view(B, L, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)  # 3 × [B, H, L, d]
        return self._attend(q, k, v, bias).transpose(1, 2).reshape(B, L, D)

    def mix_at(self, x: Tensor, bias: Tensor | None, at: Tensor) -> Tensor:
        """The same for one query per sequence, at [B]: [B, L, D] -> [B, D]."""
        B, L, D = x.shape
        weight_q, weight_kv = self.qkv.weight.split([D, 2 * D])
        bias_q, bias_kv = self.qkv.bias.split([D, 2 * D])
        queries = x[torch.arange(B, device=x.device), at]  # [B, D]
        q = nn.functional.linear(queries, weight_q, bias_q).view(B, self.heads, 1, D // self.heads)
        kv = nn.functional.linear(x, weight_kv, bias_kv).view(B, L, 2, self.heads, D // self.heads)
        k, v = kv.permute(2, 0, 3, 1, 4)  # 2 × [B, H, L, d]
        return self._attend(q, k, v, bias).reshape(B, D)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        logits = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))  # [B, H, Lq, L]
        if bias is not None:
            logits = logits + bias
        return logits.softmax(dim=-1).to(v.dtype) @ v  # [B, H, Lq, d]


class Block(nn.Module):
    """x + MSA(norm(x)), then x + FFN(norm(x)).

    Departure from the paper: it writes the two sums without saying where the normalisation stands; here it stands
    before each part (pre-norm), the activation is GELU.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm_forward = nn.LayerNorm(width)
        self.forward_in = nn.Linear(width, 4 * width)
        self.forward_out = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """All tokens: [B, L, D] -> [B, L, D]."""
        return self._rest(x, self.attention.mix(self.norm_attention(x), bias))

    def at(self, x: Tensor, bias: Tensor | None, at: Tensor) -> Tensor:
        """One token of each sequence, at [B]: [B, L, D] -> [B, D]."""
        tokens = x[torch.arange(len(x), device=x.device), at]
        return self._rest(tokens, self.attention.mix_at(self.norm_attention(x), bias, at))

    def where(self, x: Tensor, bias: Tensor | None, flat: Tensor) -> Tensor:
        """Some tokens, by their place in the flattened batch, flat [M]: [B, L, D] -> [M, D]."""
        D = x.shape[-1]
        mixture = self.attention.mix(self.norm_attention(x), bias)
        return self._rest(x.reshape(-1, D).index_select(0, flat), mixture.reshape(-1, D).index_select(0, flat))

    def total(self, x: Tensor) -> Tensor:
        """All tokens added up: [B, L, D] -> [B, D], equal to forward(x).sum(dim=1).

        The last map is linear, so the sum goes before it: a third of the block's arithmetic is spared.
        """
        x = x + self.attention.out(self.attention.mix(self.norm_attention(x), None))
        inner = nn.functional.gelu(self.forward_in(self.norm_forward(x))).sum(dim=1)  # [B, 4 D]
        weight, bias = self.forward_out.weight, self.forward_out.bias
        return x.sum(dim=1) + nn.functional.linear(inner, weight) + x.shape[1] * bias

    def _rest(self, x: Tensor, mixture: Tensor) -> Tensor:
        x = x + self.attention.out(mixture)
        return x + self.forward_out(nn.functional.gelu(self.forward_in(self.norm_forward(x))))
