"""Rounds a trained net's weights to INT8 so that its answers change least.

Rounding every weight to the nearest step is what quantisers do, and it is most of the loss of an INT8 model of ours:
fault contrasts are a few grey levels on a bright frame, so a filter's weights nearly cancel and the errors of its
rounding do not. Here the weights of a layer are rounded one after the other and the error of each is made up for by
those that are left, weighed by what the layer's inputs look like; what remains of it on the mean goes into the bias.
The result lies on the quantiser's own grid, which rounds it to itself.

Before that, channels that use little of the range that they share with others are scaled up, and the layers that read
them down, wherever nothing else reads or adds to them (`equalised`).

Source: Frantar et al. (2022), "Optimal Brain Compression"; the bias: Nagel et al. (2019), "Data-Free Quantization".
Needs PyTorch (extra `train`).
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

_STEPS = 127
_ROWS = 12_000
"""Places of a layer's input that are looked at."""
_DAMPING = 0.002
_CEILING, _ROOM, _MOST = 6.0, 1.1, 16.0
"""Of ReLU6; what is left free above the highest seen; the greatest factor of a channel."""


@torch.no_grad()  # type: ignore[untyped-decorator]
def round_weights(net: nn.Module, inputs: torch.Tensor) -> nn.Module:
    """A copy of a net whose convolutions have weights of 255 steps a channel.

    Args:
        net: In eval mode, normalisations folded, on the CPU; it is left as it is.
        inputs: A batch like what it will see.

    Returns:
        The copy. Layers are rounded in the order in which they run, each for the inputs that the rounded ones before
        it give.
    """
    rounded = copy.deepcopy(net)
    generator = torch.Generator().manual_seed(1)
    order: list[str] = []
    handles = [
        layer.register_forward_hook(lambda *_, name=name: order.append(name))
        for name, layer in rounded.named_modules()
        if isinstance(layer, nn.Conv2d)
    ]
    rounded(inputs[:1])
    for handle in handles:
        handle.remove()
    theirs, ours = dict(net.named_modules()), dict(rounded.named_modules())
    for name in order:
        layer: Any = ours[name]
        seen = _seen_by(rounded, layer, inputs)
        x = _places(seen, layer, generator)
        weight = layer.weight.flatten(1)
        layer.weight.copy_(_round_layer(weight.double(), x - x.mean(0), layer.weight.shape))
        if layer.bias is not None:
            wanted = _mean_output(net, theirs[name], inputs)
            layer.bias.add_(wanted - _mean_output(rounded, layer, inputs))
    return rounded


@torch.no_grad()  # type: ignore[untyped-decorator]
def equalised(net: nn.Module, pairs: list[tuple[str, list[str]]], inputs: torch.Tensor) -> nn.Module:
    """A copy of a net that answers the same, with channels that fill the range of ReLU6.

    Args:
        net: In eval mode, normalisations folded, on the CPU; it is left as it is.
        pairs: Names of a sequence (convolution, ReLU6), and of all convolutions that read it.
        inputs: A batch like what it will see; tells how far each channel goes.

    Returns:
        The copy.
    """
    copied = copy.deepcopy(net)
    layers: dict[str, Any] = dict(copied.named_modules())
    for writer, readers in pairs:
        highest: list[torch.Tensor] = []
        _run_until(copied, layers[writer], inputs, _keep_highest(highest))
        factor = (_CEILING / (_ROOM * torch.stack(highest).amax(0)).clamp(min=1e-3)).clamp(1.0, _MOST)
        layers[writer][0].weight.mul_(factor[:, None, None, None])
        layers[writer][0].bias.mul_(factor)
        for reader in readers:
            layers[reader].weight.div_(factor[None, :, None, None])
    return copied


def _keep_highest(seen: list[torch.Tensor]) -> Callable[[Any, Any], None]:
    return lambda _, said: seen.append(said.amax((0, 2, 3)))


class _Stop(Exception):  # The rest of the net is of no interest.
    pass


def _run_until(net: nn.Module, layer: nn.Module, inputs: torch.Tensor, look: Callable[[Any, Any], None]) -> None:
    """Run `net` in parts of a batch up to `layer`, and look at that layer's input and output."""

    def hook(_: nn.Module, given: Any, said: Any) -> None:
        look(given[0], said)
        raise _Stop

    handle = layer.register_forward_hook(hook)
    for part in inputs.split(8):
        try:
            net(part)
        except _Stop:
            continue
    handle.remove()


def _seen_by(net: nn.Module, layer: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    seen: list[torch.Tensor] = []
    _run_until(net, layer, inputs, lambda given, _: seen.append(given))
    return torch.cat(seen)


def _mean_output(net: nn.Module, layer: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    said: list[torch.Tensor] = []
    _run_until(net, layer, inputs, lambda _, output: said.append(output.mean((0, 2, 3))))
    return torch.stack(said).mean(0)


def _places(seen: torch.Tensor, layer: Any, generator: torch.Generator) -> torch.Tensor:
    """What the filters of a layer see at some places: shape (places, weights of a filter), float64."""
    rows = []
    share = max(1, _ROWS // len(seen))
    for picture in _each(seen):
        columns = F.unfold(picture, layer.kernel_size, padding=layer.padding, stride=layer.stride)[0].T
        chosen = torch.randperm(len(columns), generator=generator)[:share]
        rows.append(columns[chosen].double())
    return torch.cat(rows)


def _each(batch: torch.Tensor) -> Iterator[torch.Tensor]:
    return iter(batch.split(1))


def _round_layer(weight: torch.Tensor, x: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Weights (filters, n) on the grid, given centred inputs x (places, n)."""
    scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-9) / _STEPS
    hessian = x.T @ x / len(x)
    mean = float(hessian.diagonal().mean())
    hessian += torch.eye(len(hessian), dtype=hessian.dtype) * max(_DAMPING * mean, 1e-9)
    order = torch.argsort(
        hessian.diagonal(), descending=True
    )  # The loudest first, while there is most to make up with.
    inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(hessian[order][:, order])), upper=True)
    left = weight[:, order].clone()
    largest = left.abs().argmax(1)  # Stays at the last step, so that the quantiser finds the same scale.
    sign = left.gather(1, largest[:, None]).sign()
    out = torch.empty_like(left)
    for column in range(left.shape[1]):
        step = torch.round(left[:, column : column + 1] / scale).clamp(-_STEPS, _STEPS)
        step = torch.where((largest == column)[:, None], sign * _STEPS, step)
        out[:, column : column + 1] = step * scale
        error = (left[:, column : column + 1] - out[:, column : column + 1]) / inverse[column, column]
        left[:, column + 1 :] -= error * inverse[column : column + 1, column + 1 :]
    result = torch.empty_like(out)
    result[:, order] = out
    return result.reshape(shape).float()
