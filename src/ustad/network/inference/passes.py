"""The network's forward pass as inference wants it: the same numbers, fewer of the steps.

In go feature fields or event embeddings, out come the tensors that `DualTransformer.embed` and `contextualise_at`
give, to float rounding (a test compares them). What is saved: normalisation weights and the attention scale are
folded into the linear maps; results go into buffers that are kept between calls, because on a CPU fresh memory
costs as much as the arithmetic on it; nothing is padded, so nothing is hidden; the sum over fields is taken
before the last linear map of the feature level instead of after it. On a GPU the blocks may compute in half
precision (fp16, whose rounding is an eighth of bf16's, since EU is small); the stream between them stays fp32.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ustad.events.windows import Features
from ustad.network.blocks import Block
from ustad.network.dual_transformer import DualTransformer
from ustad.network.inference import inference_kernels as kernels


class Workspace:
    """Named buffers that grow to the largest size asked for and are then reused."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: dict[str, Tensor] = {}

    def get(self, name: str, dtype: torch.dtype, *shape: int) -> Tensor:
        """An uninitialised tensor of this shape; it is overwritten by the next one of the same name."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[name] = torch.empty(size, dtype=dtype, device=self._device)
        return buffer[:size].view(shape)


def normalise_rows(x: Tensor, epsilon: float, out: Tensor) -> Tensor:
    """Layer normalisation of rows [n, D] without weights, as two sums and one map.

    The kernel of torch gives every row a block of its own, which for rows this short took half of all the time.
    """
    mean = x.mean(-1, keepdim=True)
    square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
    scale = square.sub_(mean.square()).clamp_(min=0).add_(epsilon).rsqrt_()
    return torch.addcmul(mean.mul_(scale).neg_(), x, scale, out=out)


class _Linear:
    """x ↦ x Wᵀ + b, where a normalisation before it has been folded into W and b."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, norm: nn.LayerNorm | None = None) -> None:
        if norm is not None:
            bias = bias + weight @ norm.bias
            weight = weight * norm.weight
        self.weight, self.bias = weight.detach().t().to(dtype).contiguous(), bias.detach().to(dtype)

    def __call__(self, x: Tensor, out: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight, out=out)


class FastBlock:
    """One pre-norm block over tokens [N·L, D], in place."""

    def __init__(self, block: Block, work: Workspace, dtype: torch.dtype) -> None:
        self.heads, self.work, self.dtype = block.attention.heads, work, dtype
        self.epsilon = block.norm_attention.eps
        attention, D = block.attention, block.attention.out.in_features
        scale = torch.ones_like(attention.qkv.bias)
        scale[:D] = 1 / math.sqrt(D // self.heads)
        weight, bias = attention.qkv.weight.detach() * scale[:, None], attention.qkv.bias.detach() * scale
        self.qkv = _Linear(weight, bias, dtype, block.norm_attention)
        self.query = _Linear(weight[:D], bias[:D], dtype, block.norm_attention)
        self.key_value = _Linear(weight[D:], bias[D:], dtype, block.norm_attention)
        self.out = _Linear(attention.out.weight, attention.out.bias, dtype)
        self.up = _Linear(block.forward_in.weight, block.forward_in.bias, dtype, block.norm_forward)
        self.down = _Linear(block.forward_out.weight, block.forward_out.bias, dtype)

    def __call__(self, x: Tensor, length: int) -> Tensor:
        """All tokens; x is changed and returned."""
        x = self._attend(x, length)
        return self._add(x, self.down, self._hidden(x))

    def sum_tokens(self, x: Tensor, length: int) -> Tensor:
        """All tokens, then the sum over each sequence: [N·L, D] -> [N, D]."""
        x = self._attend(x, length)
        hidden = self._hidden(x)
        total = hidden.view(-1, length, hidden.shape[-1]).sum(1)
        linear = torch.addmm(self.down.bias * length, total, self.down.weight)
        return x.view(-1, length, x.shape[-1]).sum(1).add_(linear)

    def at(self, x: Tensor, length: int, flat: Tensor) -> Tensor:
        """The tokens at rows `flat` [N], one of each sequence: [N·L, D] -> [N, D]."""
        N, D = len(flat), x.shape[-1]
        normal = self.normalise(x)
        query = self.query(normal[flat], self.buffer("query", N, D))
        pair = self.key_value(normal, self.buffer("qkv", len(x), 2 * D))
        width = D // self.heads
        split = self.buffer("split", 2 * self.heads, N, length, width)
        split.copy_(pair.view(N, length, 2 * self.heads, width).permute(2, 0, 1, 3))
        key, value = split.view(2, self.heads * N, length, width)
        query = query.view(N, self.heads, width).transpose(0, 1).reshape(self.heads * N, 1, width)
        weights = self.softmax_rows(torch.bmm(query, key.transpose(1, 2)))
        mixture = torch.bmm(weights, value).view(self.heads, N, width).transpose(0, 1).reshape(N, D)
        tokens = x[flat].add_(torch.addmm(self.out.bias, mixture, self.out.weight))
        hidden = nn.functional.gelu(torch.addmm(self.up.bias, self.normalise(tokens), self.up.weight))
        return tokens.add_(torch.addmm(self.down.bias, hidden, self.down.weight))

    def normalise(self, x: Tensor) -> Tensor:
        """Normalised rows [n, D], without the weights that the linear maps hold; in a buffer."""
        if x.device.type == "cuda":
            return normalise_rows(x, self.epsilon, self.buffer("normal", *x.shape))
        if x.dtype == self.dtype == torch.float32:
            normal = self.buffer("normal", *x.shape)
            kernels.normalise(x.numpy(), self.epsilon, normal.numpy())
            return normal
        return nn.functional.layer_norm(x, x.shape[-1:], eps=self.epsilon).to(self.dtype)

    def _attend(self, x: Tensor, length: int) -> Tensor:
        tokens, D = x.shape
        N, H, width = tokens // length, self.heads, D // self.heads
        qkv = self.qkv(self.normalise(x), self.buffer("qkv", tokens, 3 * D))
        split = self.buffer("split", 3 * H, N, length, width)
        split.copy_(qkv.view(N, length, 3 * H, width).permute(2, 0, 1, 3))
        query, key, value = split.view(3, H * N, length, width)
        logits = torch.bmm(query, key.transpose(1, 2), out=self.buffer("logits", H * N, length, length))
        mixture = torch.bmm(self.softmax_rows(logits), value, out=self.buffer("mixture", H * N, length, width))
        side_by_side = self.buffer("side_by_side", N, length, H, width)
        side_by_side.copy_(mixture.view(H, N, length, width).permute(1, 2, 0, 3))
        return self._add(x, self.out, side_by_side.view(tokens, D))

    def softmax_rows(self, logits: Tensor) -> Tensor:
        """Softmax over the last dimension; `logits` may be overwritten."""
        if logits.dtype != torch.float32 or logits.device.type != "cpu":
            return torch.softmax(logits, -1)
        spare = self.buffer("spare", logits.numel())
        kernels.softmax(logits.view(-1, logits.shape[-1]).numpy(), spare.numpy())
        return logits

    def _add(self, x: Tensor, linear: _Linear, inner: Tensor) -> Tensor:
        """x plus a linear map of something, in place; where the precision is one, without a buffer between."""
        if x.dtype == self.dtype and x.device.type == "cpu":
            return x.addmm_(inner, linear.weight).add_(linear.bias)
        return x.add_(linear(inner, self.buffer("down", *x.shape)))

    def buffer(self, name: str, *shape: int) -> Tensor:
        return self.work.get(name, self.dtype, *shape)

    def _hidden(self, x: Tensor) -> Tensor:
        wide = self.up(self.normalise(x), self.buffer("wide", len(x), 4 * x.shape[-1]))
        if wide.dtype == torch.float32 and wide.device.type == "cpu":
            kernels.gelu(wide.view(-1).numpy())
            return wide
        return torch.ops.aten.gelu.out(wide, out=wide)


class Passes:
    """Feature-level and event-level passes of one network, with its weights as they are now."""

    def __init__(self, network: DualTransformer, dtype: torch.dtype | None = None) -> None:
        self.network = network
        token = network.masked_token
        self.work = Workspace(token.device)
        with torch.no_grad():
            self.feature_blocks = [FastBlock(b, self.work, dtype or token.dtype) for b in _blocks(network, "feature")]
            self.event_blocks = [FastBlock(b, self.work, dtype or token.dtype) for b in _blocks(network, "event")]

    def embed(self, features: Features, keep: Tensor | None) -> Tensor:
        """As `network.embed`; keep [..., F, D] may have more leading dimensions than the features."""
        tokens = self.network.tokenizer(features)
        tokens = tokens * keep if keep is not None else tokens.clone()
        leading, (F, D) = tokens.shape[:-2], tokens.shape[-2:]
        x = tokens.view(-1, D)
        *blocks, last = self.feature_blocks
        for block in blocks:
            x = block(x, F)
        return last.sum_tokens(x, F).view(*leading, D)

    def at(self, embeddings: Tensor, row: Tensor, hide: int, day_position: Tensor, at: Tensor) -> Tensor:
        """As `network.contextualise_at` for T samples at once, without padding: [T, B, D].

        embeddings [T, n, D]; row [B, L] indexes them, day_position [B, L] is the order within the day; at [B]. The
        target is hidden in the first `hide` samples.
        """
        (T, D), (B, L) = (len(embeddings), embeddings.shape[-1]), row.shape
        network, device = self.network, embeddings.device
        x = self.work.get("x", embeddings.dtype, T, B * L, D)
        torch.index_select(embeddings, 1, row.flatten(), out=x)
        x = x.view(T, B, L, D)
        x[:hide, torch.arange(B, device=device), at] = network.masked_token
        limit = network.position.num_embeddings - 1
        order = torch.arange(L, device=device).clamp(max=limit)
        x += network.position(order) + network.day_position(day_position.clamp(max=limit))
        flat = (torch.arange(T * B, device=device) * L).view(T, B) + at
        x = x.view(T * B * L, D)
        *blocks, last = self.event_blocks
        for block in blocks:
            x = block(x, L)
        return network.norm(last.at(x, L, flat.flatten())).view(T, B, D)


def _blocks(network: DualTransformer, level: str) -> list[Block]:
    return [b for b in getattr(network, f"{level}_blocks") if isinstance(b, Block)]
