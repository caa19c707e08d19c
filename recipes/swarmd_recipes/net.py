"""The project's own detector: dense Conv-BN-ReLU6, anchor-free, one output grid.

Chosen for INT8 (37 dB and more of signal to quantisation noise, where depthwise nets reach 24): no depthwise layers, no
SiLU, no sigmoid, exponential or suppression in the graph; class logits and box distances leave as separate tensors so
that each has its own scale. Modules are of one size, so one grid at stride 8 says all; deeper layers only lend context.

Needs PyTorch (extra `train`).
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True, slots=True)
class NetOptions:
    """Size of the net; the `[net]` table of a recipe."""

    widths: tuple[int, ...] = (16, 32, 64, 96, 128)
    """Channels at strides 2, 4, 8, 16, 32."""
    blocks: tuple[int, ...] = (1, 2, 2, 1)
    """Residual blocks at strides 4, 8, 16, 32."""
    neck: int = 64
    classes: int = 11


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU6."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU6()
    )


class Residual(nn.Module):  # type: ignore[misc]  # PyTorch is not installed where types are checked.
    """x + conv3x3(conv1x1(x)) with half the channels in between."""

    def __init__(self, channels: int) -> None:
        """Build the block."""
        super().__init__()
        self.squeeze = conv(channels, channels // 2, 1)
        self.spread = conv(channels // 2, channels, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape out as in."""
        return x + self.spread(self.squeeze(x))


def _stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, 3, 2), *(Residual(outputs) for _ in range(blocks)))


class Detector(nn.Module):  # type: ignore[misc]
    """Grey frame in, class logits and box distances of every cell out."""

    def __init__(self, options: NetOptions) -> None:
        """Build the net with random weights."""
        super().__init__()
        self.options = options
        w, b, neck = options.widths, options.blocks, options.neck
        self.stem = conv(1, w[0], 3, 2)
        self.stage4 = _stage(w[0], w[1], b[0])
        self.stage8 = _stage(w[1], w[2], b[1])
        self.stage16 = _stage(w[2], w[3], b[2])
        self.stage32 = _stage(w[3], w[4], b[3])
        self.lateral8, self.lateral16, self.lateral32 = (conv(width, neck, 1) for width in w[2:5])
        self.merge16 = Residual(neck)
        self.merge8 = Residual(neck)
        self.head = conv(neck, neck, 3)
        self.fault = nn.Conv2d(neck, 1, 1)
        self.kind = nn.Conv2d(neck, options.classes, 1)
        self.dist = nn.Conv2d(neck, 4, 1)
        nn.init.constant_(self.fault.bias, -3.0)  # Few cells hold a fault; begin there.
        nn.init.constant_(self.dist.bias, 2.0)

    def parts(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What the loss looks at.

        Args:
            x: Shape (batch, 1, rows, columns), float, pixels / 255; sides are multiples of 32.

        Returns:
            Logit of any fault (batch, 1, r, c), logits of its kind (batch, classes, r, c), distances (batch, 4, r, c).
        """
        c8 = self.stage8(self.stage4(self.stem(x)))
        c16 = self.stage16(c8)
        p32 = self.lateral32(self.stage32(c16))
        p16 = self.merge16(self.lateral16(c16) + F.interpolate(p32, scale_factor=2.0, mode="nearest"))
        p8 = self.merge8(self.lateral8(c8) + F.interpolate(p16, scale_factor=2.0, mode="nearest"))
        y = self.head(p8)
        return self.fault(y), self.kind(y), F.relu(self.dist(y))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the bundle's decoder looks at: the likeliest kind carries the logit of any fault, the others less.

        So the score says how sure it is that there is a fault, however unsure of which.

        Args:
            x: As for `parts`.

        Returns:
            Logits (batch, cells, classes) and distances left, top, right, bottom (batch, cells, 4) >= 0 in strides.
        """
        fault, kind, dist = self.parts(x)
        cls = fault - F.relu6(kind.amax(1, keepdim=True) - kind)
        batch = x.shape[0]
        cls = cls.permute(0, 2, 3, 1).reshape(batch, -1, self.options.classes)
        return cls, dist.permute(0, 2, 3, 1).reshape(batch, -1, 4)


def private_channels(net: nn.Module) -> list[tuple[str, list[str]]]:
    """Names of the (convolution, ReLU6) whose channels only the named convolutions read: what may be scaled."""
    pairs = [
        (f"{name}.squeeze", [f"{name}.spread.0"]) for name, part in net.named_modules() if isinstance(part, Residual)
    ]
    if isinstance(net, Detector):
        pairs += [("stem", ["stage4.0.0"]), ("head", ["fault", "kind", "dist"])]
    return pairs


def fold(module: nn.Module) -> nn.Module:
    """Fold every batch normalisation into its convolution, in place; the net must be in eval mode."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Sequential) and len(child) >= 2 and isinstance(child[1], nn.BatchNorm2d):
            fused = torch.nn.utils.fuse_conv_bn_eval(child[0], child[1])
            setattr(module, name, nn.Sequential(fused, *list(child)[2:]))
        else:
            fold(child)
    return module


@torch.no_grad()  # type: ignore[untyped-decorator]
def million_macs(net: nn.Module, height: int, width: int) -> float:
    """Multiplications of a net's convolutions and linear layers for one grey picture, in millions."""
    counts: list[int] = []

    def count(layer: Any, _: Any, said: torch.Tensor) -> None:
        counts.append(said.numel() * layer.weight[0].numel())

    layers = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    handles = [layer.register_forward_hook(count) for layer in layers]
    was_training = net.training
    net.eval()(torch.zeros(1, 1, height, width, device=next(net.parameters()).device))
    net.train(was_training)
    for handle in handles:
        handle.remove()
    return sum(counts) / 1e6


def _area(sides: torch.Tensor) -> torch.Tensor:
    """Area of boxes given as (left, top, right, bottom) distances from one point, shape (n, 4)."""
    return (sides[:, 0] + sides[:, 2]) * (sides[:, 1] + sides[:, 3])


def detector_loss(
    parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    fault: torch.Tensor,
    kind: torch.Tensor,
    weight: torch.Tensor,
    distance: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Focal loss of fault or not, cross entropy of its kind, 1 - GIoU of the boxes.

    Args:
        parts: Of `Detector.parts`.
        fault: Wanted probability of a fault (batch, cells).
        kind: Wanted probability of each kind given a fault (batch, cells, classes).
        weight: (batch, cells): 0 where a cell is to be ignored, else 1.
        distance: Wanted distances (batch, cells, 4); negative where a cell has no box.

    Returns:
        The three losses, each a scalar.
    """
    logit, kinds, dist = (t.float().flatten(2).transpose(1, 2) for t in parts)
    logit = logit[..., 0]
    strength = fault * weight
    count = strength.sum().clamp(min=1.0)
    entropy = F.binary_cross_entropy_with_logits(logit, fault, reduction="none")
    surprise = (logit.detach().sigmoid() - fault).abs()
    fault_loss = (entropy * surprise * weight).sum() / count
    there = strength > 0.02
    cross = -(kind[there] * F.log_softmax(kinds[there], 1)).sum(1)
    kind_loss = (cross * strength[there]).sum() / count
    has_box = distance.amin(-1) >= 0
    wanted, given = distance[has_box], dist[has_box]
    inner, outer = torch.minimum(wanted, given), torch.maximum(wanted, given)
    overlap, hull = _area(inner), _area(outer)
    union = _area(wanted) + _area(given) - overlap
    giou = overlap / union.clamp(min=1e-6) - (hull - union) / hull.clamp(min=1e-6)
    return fault_loss, kind_loss, (1.0 - giou).mean() if len(giou) else dist.sum() * 0.0
