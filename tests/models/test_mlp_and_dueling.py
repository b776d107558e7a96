from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.models import (
    DuelingHeadModel,
    MlpModel,
    NoisyLinear,
    OutputLinear,
    QHeadModel,
    QModel,
    draw_randomness,
    update_target,
)


@pytest.mark.parametrize(
    ("hidden_sizes", "output_size", "expected"),
    [
        ((64, 32), 5, [(64, 3), (32, 64), (5, 32)]),
        (16, 5, [(16, 3), (5, 16)]),
        (None, 5, [(5, 3)]),
        ((8,), None, [(8, 3)]),
        ((), None, []),
    ],
)
def test_mlp_layers(
    hidden_sizes: int | tuple[int, ...] | None, output_size: int | None, expected: list[tuple[int, int]]
) -> None:
    net = MlpModel(3, hidden_sizes, output_size, nn.Tanh)
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in linear] == expected
    assert sum(isinstance(layer, nn.Tanh) for layer in net) == len(expected) - (output_size is not None)
    assert net.output_size == (expected[-1][0] if expected else 3)
    for lead in [(), (4,), (2, 4)]:
        assert net(torch.randn(lead + (3,))).shape == (*lead, net.output_size)


def test_layer_norm_stands_before_the_nonlinearity_of_each_hidden_layer() -> None:
    net = MlpModel(3, (16, 8), 5, layer_norm=True)
    kinds = [nn.Linear, nn.LayerNorm, nn.ReLU, nn.Linear, nn.LayerNorm, nn.ReLU, OutputLinear]
    assert [type(layer) for layer in net] == kinds
    x = torch.randn(4, 3)
    hidden = net[0](x)
    expected = (hidden - hidden.mean(-1, keepdim=True)) / (hidden.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(net[2](net[1](hidden)), expected.clamp(min=0.0))


def test_layer_norm_of_a_q_model_is_after_all_hidden_layers() -> None:
    image = spaces.Box(0, 255, (2, 40, 40), np.uint8)
    all_options: list[dict[str, Any]] = [{}, dict(dueling=True), dict(recurrent="lstm", rnn_size=8)]
    for options in all_options:
        model = QModel(image, spaces.Discrete(3), layer_norm=True, **options)
        layers = list(model.modules())
        of_convolutions = [x for x in layers if isinstance(x, nn.GroupNorm)]
        assert len(of_convolutions) == sum(isinstance(x, nn.Conv2d) for x in layers) == 3
        n_hidden = sum(isinstance(x, nn.Linear) and not isinstance(x, OutputLinear) for x in layers)
        assert sum(isinstance(x, nn.LayerNorm) for x in layers) == n_hidden > 0
        assert not any(isinstance(x, nn.LayerNorm) for x in QModel(image, spaces.Discrete(3), **options).modules())
    maps = torch.randn(2, 32, 9, 9)
    mean, std = maps.mean((1, 2, 3), keepdim=True), maps.var((1, 2, 3), correction=0, keepdim=True).add(1e-5).sqrt()
    torch.testing.assert_close(of_convolutions[0](maps), (maps - mean) / std)


def test_the_output_layer_is_float32_under_autocast_and_the_hidden_ones_are_not() -> None:
    net = MlpModel(3, 64, 2)
    x = torch.randn(5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = net[1](net[0](x))
        output = net(x)
        assert torch.is_autocast_enabled("cpu")
    last = net[-1]
    assert isinstance(last, OutputLinear)
    assert hidden.dtype == torch.bfloat16
    assert output.dtype == torch.float32
    assert torch.equal(output, nn.functional.linear(hidden.float(), last.weight, last.bias))


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("n_atoms", [1, 7])
@pytest.mark.parametrize("lead", [(), (4,), (2, 4)])
def test_dueling_identity_at_each_atom(lead: tuple[int, ...], n_atoms: int, noisy: bool) -> None:
    head = DuelingHeadModel(3, (16,), 5, noisy=noisy, n_atoms=n_atoms)
    draw_randomness(head, torch.Generator().manual_seed(0))
    x = torch.randn(lead + (3,))
    q = head(x)
    assert q.shape == (*lead, 5, n_atoms)
    value, advantage = head.value(x), head.advantage(head.advantage_hidden(x))
    assert value.shape == (*lead, n_atoms)
    for atom in range(n_atoms):
        of_atom = q[..., atom] - value[..., atom : atom + 1]
        torch.testing.assert_close(of_atom.sum(-1), torch.zeros(lead), rtol=0, atol=1e-5)
        for action in range(5):
            # The outputs of an action stand side by side.
            expected = advantage[..., action * n_atoms + atom] - advantage[..., atom::n_atoms].mean(-1)
            torch.testing.assert_close(of_atom[..., action], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("lead", [(), (4,), (2, 4)])
def test_q_head(lead: tuple[int, ...], noisy: bool) -> None:
    x = torch.randn(lead + (3,))
    head = QHeadModel(3, (16,), 5, noisy=noisy)
    assert torch.equal(head(x), head.q(x))
    assert head(x).shape == (*lead, 5)
    atoms = QHeadModel(3, (16,), 5, noisy=noisy, n_atoms=7)
    for action in range(5):
        assert torch.equal(atoms(x)[..., action, :], atoms.q(x)[..., 7 * action : 7 * action + 7])


@pytest.mark.parametrize("Head", [DuelingHeadModel, QHeadModel])
def test_heads_are_noisy_throughout(Head: type[DuelingHeadModel | QHeadModel]) -> None:
    layers = [m for m in Head(3, (16, 8), 5, noisy=True, n_atoms=7).modules() if not list(m.children())]
    assert {type(layer) for layer in layers} == {NoisyLinear, nn.ReLU}
    layers = [m for m in Head(3, (16, 8), 5, n_atoms=7).modules() if not list(m.children())]
    assert {type(layer) for layer in layers} == {nn.Linear, OutputLinear, nn.ReLU}


def test_dueling_scales_the_gradient_into_the_features_only() -> None:
    head, plain = DuelingHeadModel(3, (16,), 5, grad_scale=0.25), DuelingHeadModel(3, (16,), 5, grad_scale=1.0)
    plain.load_state_dict(head.state_dict())
    x = torch.randn(3, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    head(x)[0].backward()
    plain(y)[0].backward()
    assert x.grad is not None
    assert y.grad is not None
    torch.testing.assert_close(x.grad, 0.25 * y.grad)
    for ours, theirs in zip(head.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


class TestUpdateTarget:
    def models(self) -> tuple[nn.Module, nn.Module]:
        target, online = (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(2))
        online(torch.randn(9, 2))
        return target, online

    @pytest.mark.parametrize("tau", [0.0, 0.25, 1.0])
    def test_weights_move_by_tau_and_buffers_are_copied(self, tau: float) -> None:
        target, online = self.models()
        before = {name: p.detach().clone() for name, p in target.named_parameters()}
        tensors = list(target.parameters())
        update_target(target, online, tau)
        for name, p in online.named_parameters():
            torch.testing.assert_close(target.get_parameter(name), (1 - tau) * before[name] + tau * p)
        for name, b in online.named_buffers():
            assert torch.equal(target.get_buffer(name), b)
        assert all(a is b for a, b in zip(tensors, target.parameters(), strict=True))

    def test_refuses_tau_out_of_range_and_other_layers(self) -> None:
        target, online = self.models()
        for tau in (-0.1, 1.1):
            with pytest.raises(ValueError, match=rf"got tau {tau}, .* expected tau in \[0, 1\]"):
                update_target(target, online, tau)
        with pytest.raises(ValueError, match=r"2 weights and 0 buffers to move to 4 and 3; .* same layers"):
            update_target(target[:1], online)  # type: ignore[index]
