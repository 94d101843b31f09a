"""Convolutions by Winograd's way are convolutions: against PyTorch's direct ones in float64, and against sums written out."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - its usual name

from fedviz.problems import winograd
from fedviz.problems.models import FedAvgNetwork

# images (35: more than are transformed at once, with a remainder), channels in and out, height, width, padding
SHAPES = [
    (2, 16, 16, 8, 8, 2),
    (3, 17, 20, 9, 7, 2),
    (1, 16, 24, 5, 6, 0),
    (2, 32, 16, 14, 11, 1),
    (1, 16, 16, 1, 3, 2),
    (35, 16, 16, 4, 4, 2),
]


def drawn(n: int, channels: int, out: int, height: int, width: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Images, kernel and bias, to be differentiated by."""
    chance = torch.Generator().manual_seed(1)
    shapes = [(n, channels, height, width), (out, channels, 5, 5), (out,)]
    return [torch.randn(shape, generator=chance, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def outputs_and_gradients(convolve: Any, arguments: list[torch.Tensor], padding: int) -> list[torch.Tensor]:
    y = convolve(*arguments, padding=padding)
    pull = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(y)
    return [y.detach(), *torch.autograd.grad(y, arguments, pull)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
@pytest.mark.parametrize(("n", "channels", "out", "height", "width", "padding"), SHAPES)
def test_outputs_and_gradients_are_those_of_the_direct_way(
    n: int, channels: int, out: int, height: int, width: int, padding: int, dtype: torch.dtype, tolerance: float
) -> None:
    """The largest deviation of each, as a part of its root mean square; the direct way computes in float64."""
    shape = (n, channels, out, height, width)
    expected = outputs_and_gradients(F.conv2d, drawn(*shape, torch.float64), padding)
    found = outputs_and_gradients(winograd.convolve, drawn(*shape, dtype), padding)
    for right, ours in zip(expected, found, strict=True):
        assert ours.dtype == dtype
        assert ours.shape == right.shape
        assert float((ours - right).abs().max() / right.square().mean().sqrt()) < tolerance


def test_the_three_matrices_turn_products_at_points_into_a_correlation() -> None:
    """In one dimension, with whole numbers: outputs y_k = sum_j g_j d_{j+k}."""
    g, d = np.array([1, -2, 3, 0, 5]), np.array([2, 7, 1, -8, 2, 8, 1, 8])
    expected = [sum(int(g[j]) * int(d[j + k]) for j in range(5)) for k in range(4)]
    np.testing.assert_allclose(winograd.A.T @ ((winograd.G @ g) * (winograd.B.T @ d)), expected, atol=1e-12)


def test_images_that_need_no_gradient_get_none() -> None:
    x, kernel, bias = drawn(2, 16, 16, 8, 8, torch.float64)
    winograd.convolve(x.detach(), kernel, bias, padding=2).sum().backward()
    assert x.grad is None
    assert kernel.grad is not None
    torch.testing.assert_close(bias.grad, torch.full((16,), 2.0 * 8 * 8, dtype=torch.float64))


@pytest.mark.parametrize(
    ("kernel", "stride"), [((64, 3, 5, 5), 1), ((6, 16, 5, 5), 1), ((16, 16, 3, 3), 1), ((16, 16, 5, 5), 2)]
)
def test_other_convolutions_stay_pytorchs_own(kernel: tuple[int, ...], stride: int) -> None:
    """Few channels, other kernels, strides: to the bit."""
    weights, x = torch.randn(kernel), torch.randn(2, kernel[1], 9, 9)
    bias = torch.randn(kernel[0])
    found = winograd.convolve(x, weights, bias, stride=stride, padding=2)
    assert torch.equal(found, F.conv2d(x, weights, bias, stride, 2))


def test_what_is_not_a_number_is_not_hidden() -> None:
    """A model that has diverged is noticed by its loss."""
    x, kernel, bias = drawn(2, 16, 16, 8, 8, torch.float32)
    with torch.no_grad():
        x[1, 3, 4, 4] = torch.nan
    y = winograd.convolve(x, kernel, bias, padding=2)
    assert y[1].isnan().any()
    assert not y[0].isnan().any()


def test_the_network_that_goes_by_it_has_the_gradient_of_the_one_mapped_over_clients() -> None:
    """`gradients` uses PyTorch's convolutions, `loss_and_gradient` these."""
    model = FedAvgNetwork("fedavg_cnn", (3, 12, 12), 10)
    w = model.start(torch.zeros(1, dtype=torch.float64), seed=3)
    x, targets = torch.randn(5, 432, dtype=torch.float64), torch.eye(10, dtype=torch.float64)[:5]
    weights = torch.full((5,), 0.2, dtype=torch.float64)
    mapped = model.gradients(w[None], x[None], targets[None], weights[None], torch.empty_like(w)[None])[0]
    torch.testing.assert_close(model.loss_and_gradient(w, x, targets, weights)[1], mapped, rtol=1e-9, atol=1e-12)
