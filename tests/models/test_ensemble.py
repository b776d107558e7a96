"""Ensembles against networks one by one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from rlpyt.models import Dropout
from rlpyt.models.ensemble import EnsembleLayerNorm, EnsembleLinear, EnsembleMlpModel
from tests.random_kit import seeded

N = 3


def make(seed: int = 0, hidden_sizes: Any = (7, 6), output_size: int = 2, **kwargs: Any) -> EnsembleMlpModel:
    torch.manual_seed(seed)
    model = EnsembleMlpModel(N, 5, hidden_sizes, output_size, **kwargs)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, EnsembleLayerNorm):  # that they differ from network to network
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
    return model


def apart(model: EnsembleMlpModel) -> list[nn.Sequential]:
    """Networks of torch's own layers with the weights of an ensemble."""
    networks = []
    for i in range(N):
        layers: list[nn.Module] = []
        for layer in model.layers:
            copy: nn.Module = layer
            if isinstance(layer, EnsembleLinear):
                copy = nn.Linear(layer.weight.shape[1], layer.weight.shape[2])
                copy.weight.data, copy.bias.data = layer.weight.data[i].T.clone(), layer.bias.data[i, 0].clone()
            elif isinstance(layer, EnsembleLayerNorm):
                copy = nn.LayerNorm(layer.weight.shape[-1])
                copy.weight.data, copy.bias.data = layer.weight.data[i, 0].clone(), layer.bias.data[i, 0].clone()
            layers.append(copy)
        networks.append(nn.Sequential(*layers))
    return networks


@pytest.mark.parametrize("lead", [(), (4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize(
    "kwargs", [{}, dict(layer_norm=True), dict(nonlinearity=nn.Tanh), dict(output_size=1)], ids=str
)
def test_outputs_and_gradients_are_those_of_networks_apart(lead, kwargs):
    model = make(**kwargs)
    networks = apart(model)
    x = torch.randn(*lead, 5, generator=seeded(1), requires_grad=True)
    weight = torch.randn(N, *lead, kwargs.get("output_size", 2), generator=seeded(2))
    output = model(x)
    assert output.shape == weight.shape
    assert output.dtype == torch.float32
    expected = torch.stack([network(x) for network in networks])
    torch.testing.assert_close(output, expected)
    own = torch.autograd.grad((weight * output).sum(), [x, *model.parameters()])
    parameters = [list(network.parameters()) for network in networks]
    theirs = torch.autograd.grad((weight * expected).sum(), [x, *(p for ps in parameters for p in ps)])
    torch.testing.assert_close(own[0], theirs[0], rtol=1e-4, atol=1e-5)
    per_network = len(parameters[0])
    for k, grad in enumerate(own[1:]):
        for i in range(N):
            theirs_i = theirs[1 + i * per_network + k]
            theirs_i = theirs_i.T if theirs_i.dim() == 2 else theirs_i
            torch.testing.assert_close(grad[i].reshape(theirs_i.shape), theirs_i, rtol=1e-4, atol=1e-5)


def test_weights_start_as_those_of_torch_s_linear_layers():
    layer = EnsembleLinear(8, 50, 60)
    bound = 1 / math.sqrt(50)
    for x in (layer.weight, layer.bias):
        assert x.abs().max() <= bound
        assert x.std().item() == pytest.approx(bound / math.sqrt(3), rel=6 / x.numel() ** 0.5)


@pytest.mark.parametrize(("hidden_sizes", "count"), [(None, 1), ([], 1), (7, 2), ((7, 6, 4), 4)])
def test_hidden_sizes_may_be_none_one_or_many(hidden_sizes, count):
    model = make(hidden_sizes=hidden_sizes)
    assert sum(isinstance(layer, EnsembleLinear) for layer in model.layers) == count
    assert model(torch.zeros(4, 5)).shape == (N, 4, 2)


def test_dropout_is_on_in_training_mode_only_and_each_network_has_its_own():
    model, x = make(dropout=0.5), torch.ones(4, 5)
    without = make()
    without.load_state_dict({_without_gaps(model)[k]: v for k, v in model.state_dict().items()})
    model.eval()
    torch.testing.assert_close(model(x), without(x))
    model.train()
    torch.manual_seed(1)
    assert not torch.allclose(model(x), model(x))
    hidden = model.layers[:2](x.expand(N, 4, 5))
    full = without.layers[:1](x.expand(N, 4, 5))
    dropped = hidden == 0
    torch.testing.assert_close(hidden[~dropped], 2 * full[~dropped])
    assert 0.2 < dropped.float().mean() < 0.8
    assert not torch.equal(dropped[0], dropped[1])


def _without_gaps(model: EnsembleMlpModel) -> dict[str, str]:
    """Names of the parameters, and those that they have where there is no dropout."""
    kept = [i for i, layer in enumerate(model.layers) if not isinstance(layer, Dropout)]
    return {name: f"layers.{kept.index(int(name.split('.')[1]))}.{name.split('.')[2]}" for name in model.state_dict()}


def test_layers_stand_in_the_order_of_droq():
    kinds = [type(layer).__name__ for layer in make(hidden_sizes=7, dropout=0.1, layer_norm=True).layers]
    assert kinds == ["EnsembleLinear", "Dropout", "EnsembleLayerNorm", "ReLU", "EnsembleLinear"]


@pytest.mark.parametrize("kwargs", [{}, dict(layer_norm=True), dict(hidden_sizes=None)], ids=str)
def test_outputs_under_autocast_are_float32_and_near(kwargs):
    model, x = make(**kwargs), torch.randn(6, 5, generator=seeded(1))
    exact = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(x)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=0.05)
    assert torch.equal(rough, exact) == ("hidden_sizes" in kwargs)  # one output layer is exact
    rough.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    assert not torch.equal(rough, rough.bfloat16().float())
