"""Formulas for distributions of the return (fixed atoms, bins, quantiles), and for rescaled returns."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from rlpyt.functional.checks import check_same_shape
from rlpyt.functional.losses import huber_loss


@torch.no_grad()
def categorical_projection(z: torch.Tensor, p: torch.Tensor, V_min: float, V_max: float) -> torch.Tensor:
    """Return a distribution over atoms at any places, projected onto fixed atoms.

    The probability of an atom is split between the two fixed atoms next to it, in proportion to their nearness. An atom
    outside [V_min, V_max] gives its probability to the fixed atom at that end.

        p'_i = sum_j [1 - |clip(z_j, V_min, V_max) - z'_i| / dz]_0^1 p_j,    z'_i = V_min + i dz

    Args:
        z: [..., N] float, places of the atoms; N is at least 2.
        p: [..., N] float, their probabilities.
        V_min: the lowest fixed atom.
        V_max: the highest.

    Returns:
        [..., N] float, without gradient.

    Raises:
        ValueError: if the shapes differ, or V_min is not below V_max.

    Source: Bellemare et al. 2017, arXiv:1707.06887, equation 7.
    """
    check_same_shape("categorical_projection", z=z, p=p)
    N = z.shape[-1]
    _check_range("categorical_projection", V_min, V_max, N)
    low, share = _between(z, V_min, V_max, N)
    projected = torch.zeros_like(p)
    projected.scatter_add_(-1, low, p * (1 - share))
    return projected.scatter_add_(-1, low + 1, p * share)


@torch.no_grad()
def two_hot(y: torch.Tensor, V_min: float, V_max: float, n_bins: int) -> torch.Tensor:
    """Return probabilities of fixed places whose mean is y, of which only the two next to y are above 0.

        p_i = [1 - |clip(y, V_min, V_max) - z_i| / dz]_0^1
        z_i = V_min + i dz,    dz = (V_max - V_min) / (n_bins - 1)

    Args:
        y: [...] float.
        V_min: the lowest place.
        V_max: the highest.
        n_bins: N, at least 2.

    Returns:
        [..., N] float, without gradient.

    Raises:
        ValueError: if V_min is not below V_max, or there are fewer than 2 places.

    Source: Schrittwieser et al. 2020, arXiv:1911.08265, appendix F.
    """
    _check_range("two_hot", V_min, V_max, n_bins)
    low, share = _between(y.unsqueeze(-1), V_min, V_max, n_bins)
    p = y.new_zeros(*y.shape, n_bins)
    return p.scatter_(-1, low, 1 - share).scatter_(-1, low + 1, share)


@torch.no_grad()
def hl_gauss(y: torch.Tensor, V_min: float, V_max: float, n_bins: int, sigma_ratio: float = 0.75) -> torch.Tensor:
    """Return the probabilities of equal bins under a Gaussian around y that is cut off at the ends of the range.

        p_i = (F(e_{i+1}) - F(e_i)) / (F(V_max) - F(V_min)),    F(e) = Phi((e - y) / sigma)
        e_i = V_min + i w,    w = (V_max - V_min) / n_bins,    sigma = sigma_ratio w

    With the default sigma the mean over the middles of the bins is y to 1e-5 w, unless y is closer than about 4 w to an
    end. A y outside of the range is moved to its end.

    Args:
        y: [...] float.
        V_min: lower edge of the first bin.
        V_max: upper edge of the last.
        n_bins: N, at least 2.
        sigma_ratio: standard deviation in widths of a bin, above 0.

    Returns:
        [..., N] float, without gradient.

    Raises:
        ValueError: if V_min is not below V_max, or there are fewer than 2 bins.

    Sources: Imani and White 2018, arXiv:1806.04613; Farebrother et al. 2024, arXiv:2403.03950, section 3.1.
    """
    _check_range("hl_gauss", V_min, V_max, n_bins)
    edges = torch.linspace(V_min, V_max, n_bins + 1, dtype=y.dtype, device=y.device)
    sigma = sigma_ratio * (V_max - V_min) / n_bins
    cdf = torch.erf((edges - y.clamp(V_min, V_max).unsqueeze(-1)) / (math.sqrt(2) * sigma))
    return cdf.diff(dim=-1) / (cdf[..., -1:] - cdf[..., :1])


def _check_range(who: str, V_min: float, V_max: float, n: int) -> None:
    if not V_min < V_max or n < 2:
        raise ValueError(
            f"{who}: got V_min={V_min}, V_max={V_max} and {n} atoms; expected V_min below V_max and at least 2 atoms. "
            "Correct them."
        )


def _between(z: torch.Tensor, V_min: float, V_max: float, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index of the fixed atom below each z, and how far z has gone to the next one, from 0 to 1."""
    # Clamped in units of atoms: rounding may lift V_max above n - 1, which would give a negative probability.
    place = ((z - V_min) * ((n - 1) / (V_max - V_min))).clamp(0, n - 1)
    # At most n - 2, so that low + 1 is an atom too. A NaN also gets an index in range, and the result is NaN.
    low = place.long().clamp(0, n - 2)
    return low, place - low


def categorical_loss(logits: torch.Tensor, target_p: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy -sum_i p_i log softmax(logits)_i.

    Args:
        logits: [..., N] float, of the network in training.
        target_p: [..., N] float, probabilities; receives no gradient.

    Returns:
        [...] float, not averaged.

    Source: Bellemare et al. 2017, arXiv:1707.06887, algorithm 1.
    """
    check_same_shape("categorical_loss", logits=logits, target_p=target_p)
    return -(target_p.detach() * F.log_softmax(logits, dim=-1)).sum(-1)


@torch.no_grad()
def entropy_of(p: torch.Tensor) -> torch.Tensor:
    """Return -sum_i p_i log p_i over the last dimension, with 0 log 0 = 0.

    The cross-entropy minus this entropy is KL(p || softmax(logits)), the priority of Rainbow.

    Args:
        p: [..., N] float, probabilities.

    Returns:
        [...] float, without gradient.
    """
    return torch.special.entr(p).sum(-1)


def midpoints(n: int, device: torch.device | None = None) -> torch.Tensor:
    """Return (i + 0.5) / n for i < n, the midpoints of n equal parts of [0, 1].

    They are the fractions at which n quantiles of equal weight approximate a distribution best.

    Args:
        n: number of parts, from 1.
        device: of the result; None is the CPU.

    Returns:
        [n] float32.

    Source: Dabney et al. 2018, arXiv:1710.10044, lemma 2.
    """
    return (torch.arange(n, device=device) + 0.5) / n


def quantile_huber_loss(
    quantiles: torch.Tensor, tau: torch.Tensor, target: torch.Tensor, delta_clip: float | torch.Tensor | None = 1.0
) -> torch.Tensor:
    """Return the quantile regression loss of quantiles against samples of the target distribution.

        L = sum_i mean_j |tau_i - 1[u_ij < 0]| huber(u_ij) / delta_clip,    u_ij = target_j - quantile_i

    Args:
        quantiles: [..., N] float, of the network in training.
        tau: [..., N] or [N] float in (0, 1), fractions of the quantiles.
        target: [..., M] float; receives no gradient.
        delta_clip: of the Huber loss, above 0; None replaces huber / delta_clip by |u|.

    Returns:
        [...] float, not averaged.

    Raises:
        ValueError: if the leading dimensions differ, tau fits no quantile, or delta_clip is not above 0.

    Sources: Dabney et al. 2018, arXiv:1710.10044, equation 10. Random tau: arXiv:1806.06923, equation 3.
    """
    if quantiles.shape[:-1] != target.shape[:-1] or tau.shape not in (quantiles.shape, quantiles.shape[-1:]):
        raise ValueError(
            f"quantile_huber_loss: got quantiles {tuple(quantiles.shape)}, tau {tuple(tau.shape)} and target "
            f"{tuple(target.shape)}; expected [..., N], [..., N] or [N], and [..., M] with the same leading dimensions."
        )
    u = target.detach().unsqueeze(-2) - quantiles.unsqueeze(-1)
    size = u.abs() if delta_clip is None else huber_loss(u, delta_clip)
    weight = torch.where(u.detach() < 0, 1 - tau.unsqueeze(-1), tau.unsqueeze(-1))
    loss = (weight * size).mean(-1).sum(-1)
    return loss if delta_clip is None else loss / delta_clip


def value_rescale(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Return h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x, which shrinks large values and keeps their order.

    Args:
        x: [...] float.
        eps: from 0; with eps above 0 the inverse has a bounded slope.

    Returns:
        [...] float.

    Source: Pohlen et al. 2018, arXiv:1805.11593, proposition A.2.
    """
    # Multiplied by the conjugate: in float32, sqrt(|x| + 1) - 1 has an error of 10 % at 1e-6.
    return x / ((x.abs() + 1).sqrt() + 1) + eps * x


def value_rescale_inverse(y: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the x with h(x) = y; see `value_rescale`.

    This form of the root of a quadratic equation never subtracts two numbers of nearly the same size. In float32 the
    usual form has an error of 1e-4 near 0 with eps 1e-3, and it is 0 / 0 with eps 0.

    Args:
        y: [...] float.
        eps: from 0.

    Returns:
        [...] float.
    """
    # With s = sqrt(|x| + 1): eps s^2 + s - (1 + eps + |y|) = 0. This is its root minus 1, with the sign of y.
    root = (1 + 4 * eps * (y.abs() + 1 + eps)).sqrt()
    s_less_1 = 2 * y / (1 + 2 * eps + root)
    return s_less_1 * (s_less_1.abs() + 2)
