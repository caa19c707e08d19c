"""Structured pruning: a smaller net of the same plan, made of the channels of a larger one that matter most.

A channel's worth is the sum, over the layers that write it, of the size of its filter after normalisation. Channels
that are added up (a stage's trunk with its residual blocks; everything that the neck adds) are kept or dropped
together. What is left is smaller dense layers, so every runtime gains by it and no mask has to be carried. The pruned
net is trained on. Needs PyTorch (extra `train`).
"""

from typing import Any

import torch
from torch import nn

from swarmd_models.errors import ArtefactError
from swarmd_recipes.net import Detector, NetOptions


@torch.no_grad()  # type: ignore[untyped-decorator]
def pruned(net: Detector, options: NetOptions) -> Detector:
    """A net of the given size with the weights of the most important channels of `net`.

    Args:
        net: Trained; normalisations not folded. It is left as it is.
        options: Of the smaller net: the same blocks and classes, widths and neck at most as large.

    Returns:
        The smaller net, to be trained on.

    Raises:
        ArtefactError: `options` is no smaller net of the same plan.
    """
    old = net.options
    fits = old.blocks == options.blocks and old.classes == options.classes and options.neck <= old.neck
    if not fits or any(a > b for a, b in zip(options.widths, old.widths, strict=True)):
        raise ArtefactError(f"a net of {options} cannot be cut out of one of {old}")
    small = Detector(options)
    grey = torch.zeros(1, dtype=torch.long)
    trunk = _best([net.stem], options.widths[0])
    _copy(net.stem, small.stem, trunk, grey)
    stages = ("stage4", "stage8", "stage16", "stage32")
    kept = []
    for name, width in zip(stages, options.widths[1:], strict=True):
        big, little = getattr(net, name), getattr(small, name)
        chosen = _best([big[0], *(block.spread for block in list(big)[1:])], width)
        _copy(big[0], little[0], chosen, trunk)
        for theirs, ours in zip(list(big)[1:], list(little)[1:], strict=True):
            _copy_block(theirs, ours, chosen)
        trunk = chosen
        kept.append(chosen)
    laterals = [(getattr(net, f"lateral{s}"), getattr(small, f"lateral{s}")) for s in (8, 16, 32)]
    merges = [(net.merge16, small.merge16), (net.merge8, small.merge8)]
    neck = _best([*(big for big, _ in laterals), *(big.spread for big, _ in merges)], options.neck)
    for (big, little), inputs in zip(laterals, kept[1:], strict=True):
        _copy(big, little, neck, inputs)
    for theirs, ours in merges:
        _copy_block(theirs, ours, neck)
    head = _best([net.head], options.neck)
    _copy(net.head, small.head, head, neck)
    for name in ("fault", "kind", "dist"):
        big, little = getattr(net, name), getattr(small, name)
        little.weight.copy_(big.weight[:, head])
        little.bias.copy_(big.bias)
    return small


def _copy_block(theirs: Any, ours: Any, trunk: torch.Tensor) -> None:
    inner = _best([theirs.squeeze], ours.squeeze[0].out_channels)
    _copy(theirs.squeeze, ours.squeeze, inner, trunk)
    _copy(theirs.spread, ours.spread, trunk, inner)


def _best(layers: list[Any], count: int) -> torch.Tensor:
    """The `count` most important of the channels that all of `layers` write, in their old order."""
    worth = sum((_worth(layer) for layer in layers), torch.zeros(()))
    return torch.topk(worth, count).indices.sort().values


def _worth(layer: nn.Sequential) -> torch.Tensor:
    """L1 size of each filter as its normalisation leaves it."""
    filters, norm = layer[0], layer[1]
    assert isinstance(norm, nn.BatchNorm2d)
    variance = norm.running_var
    assert variance is not None
    size = filters.weight.abs().flatten(1).sum(1)
    return torch.as_tensor(size * norm.weight.abs() / torch.sqrt(variance + norm.eps))


def _copy(theirs: Any, ours: Any, outputs: torch.Tensor, inputs: torch.Tensor) -> None:
    ours[0].weight.copy_(theirs[0].weight[outputs][:, inputs])
    for name in ("weight", "bias", "running_mean", "running_var"):
        getattr(ours[1], name).copy_(getattr(theirs[1], name)[outputs])
