"""Noisy layers: the formula with its gradients, the law of the noise, when it changes and when it does not."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from rlpyt.models import Dropout, MlpModel, NoisyLinear, RandomModule, draw_randomness
from tests.random_kit import seeded


def explicit(layer: NoisyLinear, x: torch.Tensor) -> torch.Tensor:
    """Return the layer's output by the weights of the paper, built whole."""
    weight = layer.weight + layer.weight_sigma * torch.outer(layer.output_noise, layer.input_noise)
    return x @ weight.T + layer.bias + layer.bias_sigma * layer.output_noise


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_the_noise_is_the_root_of_the_generators_numbers_with_their_sign() -> None:
    layer = NoisyLinear(3, 2)
    layer.draw(seeded(5))
    numbers = torch.randn(5, generator=seeded(5)).tolist()
    expected = [math.copysign(math.sqrt(abs(number)), number) for number in numbers]
    assert [*layer.input_noise.tolist(), *layer.output_noise.tolist()] == pytest.approx(expected)


@pytest.mark.parametrize("lead", [(), (5,), (2, 5)])
def test_two_products_equal_the_noisy_weights_and_their_gradients(lead: tuple[int, ...]) -> None:
    layer = NoisyLinear(7, 4).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    layer.draw(seeded())
    x = torch.randn(*lead, 7, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.parameters()]
    slope = torch.randn(*lead, 4, dtype=torch.float64)
    ours, theirs = layer(x), explicit(layer, x)
    assert ours.shape == (*lead, 4)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(torch.autograd.grad(ours, inputs, slope), torch.autograd.grad(theirs, inputs, slope), strict=True):
        assert a.any()
        torch.testing.assert_close(a, b)


def test_the_start() -> None:
    layer = NoisyLinear(400, 30)
    assert (layer.weight_sigma == torch.tensor(0.5 / 20)).all()
    assert (layer.bias_sigma == torch.tensor(0.5 / 20)).all()
    for mean in (layer.weight, layer.bias):
        assert mean.abs().max() <= 1 / 20
    assert layer.weight.std().item() == pytest.approx(1 / 20 / math.sqrt(3), rel=0.02)
    assert layer.bias.std().item() == pytest.approx(1 / 20 / math.sqrt(3), rel=0.4)
    assert [tuple(p.shape) for p in layer.parameters()] == [(30, 400), (30,), (30, 400), (30,)]


def test_noise_is_switched_by_draw_alone_stays_until_the_next_and_follows_the_generator() -> None:
    layer, x, generator = NoisyLinear(5, 3), torch.randn(4, 5), seeded(3)
    plain, state, streams = (
        nn.functional.linear(x, layer.weight, layer.bias),
        generator.get_state(),
        torch.get_rng_state(),
    )
    assert torch.equal(layer(x), plain)
    layer.eval()
    layer.draw(generator)
    first = layer(x)
    assert not torch.allclose(first, plain)
    assert torch.equal(layer(x), first)
    layer.draw(generator)
    assert not torch.allclose(layer(x), first)
    generator.set_state(state)
    layer.draw(generator)
    assert torch.equal(layer(x), first)
    layer.draw(None)
    assert torch.equal(layer(x), plain)
    assert torch.equal(torch.get_rng_state(), streams)


def test_a_draw_after_the_forward_pass_does_not_spoil_its_backward_pass() -> None:
    net = MlpModel(5, 8, 3, noisy=True)
    x = torch.randn(4, 5, requires_grad=True)
    inputs = [x, *net.parameters()]
    gradients = []
    for draw_between in (False, True):
        draw_randomness(net, seeded(1))
        loss = net(x).square().sum()
        if draw_between:
            draw_randomness(net, seeded(2))
        gradients.append(torch.autograd.grad(loss, inputs))
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)


def test_the_noise_is_not_in_the_state_dict_but_in_a_copy() -> None:
    layer, x = NoisyLinear(5, 3), torch.randn(4, 5)
    layer.draw(seeded())
    assert sorted(layer.state_dict()) == ["bias", "bias_sigma", "weight", "weight_sigma"]
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    other = NoisyLinear(5, 3)
    other.load_state_dict(layer.state_dict())
    layer.draw(None)
    assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize("noisy", [False, True])
def test_only_layers_that_keep_float32_give_it_under_autocast(noisy: bool) -> None:
    hidden, output = NoisyLinear(5, 3), NoisyLinear(5, 3, keep_float32=True)
    output.load_state_dict(hidden.state_dict())
    x = torch.randn(4, 5)
    for layer in (hidden, output):
        layer.draw(seeded() if noisy else None)
    expected = output(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(output(x), expected)
        assert torch.equal(output(x.bfloat16()), output(x.bfloat16().float()))
        torch.testing.assert_close(hidden(x).float(), expected, rtol=0.02, atol=0.02)
        assert not torch.equal(hidden(x).float(), expected)


def test_draw_randomness_reaches_every_random_module_in_order() -> None:
    class Counting(RandomModule):
        def __init__(self) -> None:
            super().__init__()
            self.drawn: list[float | None] = []

        def draw(self, generator: torch.Generator | None) -> None:
            self.drawn.append(None if generator is None else torch.rand(1, generator=generator).item())

    parts = [Counting(), Counting(), Counting()]
    net = nn.Sequential(parts[0], nn.Linear(2, 2), nn.Sequential(parts[1], nn.ModuleDict({"x": parts[2]})))
    draw_randomness(net, seeded(4))
    draw_randomness(net, None)
    generator = seeded(4)
    expected = [torch.rand(1, generator=generator).item() for _ in parts]
    assert [part.drawn for part in parts] == [[number, None] for number in expected]
    draw_randomness(nn.Linear(2, 2), seeded())
    with pytest.raises(TypeError, match="abstract"):
        RandomModule()  # type: ignore[abstract]


# ---- dropout ----


def test_the_masks_of_dropout_follow_the_generator_and_no_other_stream() -> None:
    layer, x = Dropout(0.25), torch.ones(400, 50)

    def masks(seed: int, n: int = 2) -> list[torch.Tensor]:
        layer.draw(seeded(seed))
        return [layer(x) for _ in range(n)]

    before = torch.get_rng_state()
    first = masks(0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(9)
    assert all(map(torch.equal, masks(0), first))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(masks(1)[0], first[0])
    assert first[0].unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert (first[0] == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    for copied in (copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))):
        other = copied(layer)
        assert torch.equal(layer(x), other(x))


def test_dropout_is_without_a_draw_that_of_torch_and_else_as_it_is_told() -> None:
    layer, x = Dropout(0.25), torch.rand(40, 50, requires_grad=True)
    torch.manual_seed(3)
    y = layer(x)
    torch.manual_seed(3)
    expected = nn.Dropout(0.25)(x)
    assert torch.equal(y, expected)
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(grad * x, y)
    layer.eval()
    assert layer(x) is x
    layer.train()
    layer.draw(None)
    assert layer(x) is x
    layer.draw(seeded())
    assert layer(x) is not x
    assert Dropout(0.0)(x) is x
    for p in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"Dropout: got p=.*; expected a probability in \[0, 1\)"):
            Dropout(p)
