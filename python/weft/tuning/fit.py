"""Fit of a model's parameters to measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

__all__ = ["Parameters", "Predict", "fit"]

Parameters = Mapping[str, float]
Predict = Callable[[Sequence[Parameters]], np.ndarray]
"""A function from rows of parameters to rows of predicted times of all measurements, in seconds."""

_STEP = 0.05
"""The difference of a parameter's logarithm for slopes."""
_MOVE_MAX = 1.5
"""The largest change of a parameter's logarithm in one step."""
_PULL = 0.003
"""The weight that holds a parameter at its start if the measurements do not determine it."""
_TOLERATED = 0.15
"""Deviations beyond this share count less and less: a wrong measurement must not distort the
others.
"""
_ENOUGH = 1e-3


def fit(
    start: Parameters,
    predict: Predict,
    measured_s: Sequence[float],
    trust: Sequence[float] | None = None,
    rounds: int = 12,
) -> dict[str, float]:
    """Fits the parameters, all of them positive, from `start` on.

    Minimizes the squares of the relative deviations.

    `trust` is the weight of each measurement; by default all count equally.
    """
    names = list(start)
    measured = np.log(np.asarray(measured_s))
    counts = np.ones(len(measured)) if trust is None else np.asarray(trust)
    origin = np.log([start[name] for name in names])
    best, damping = origin.copy(), 0.1

    def residuals(points: Sequence[np.ndarray]) -> np.ndarray:
        sets = [dict(zip(names, np.exp(point).tolist(), strict=True)) for point in points]
        deviations: np.ndarray = np.log(predict(sets)) - measured
        return deviations

    for _ in range(rounds):
        points = [best, *(best + _STEP * axis for axis in np.eye(len(names)))]
        here, *moved = residuals(points)
        slopes = (np.array(moved) - here).T / _STEP
        weights = counts / np.maximum(1, np.abs(here) / _TOLERATED)
        cost = _cost(here, counts, best - origin)
        normal = slopes.T @ (weights[:, None] * slopes) + _PULL * np.eye(len(names))
        gradient = slopes.T @ (weights * here) + _PULL * (best - origin)
        tries = [damping * factor for factor in (0.1, 1.0, 10.0, 100.0)]
        steps = [np.linalg.solve(normal + d * np.diag(np.diag(normal)), -gradient) for d in tries]
        candidates = [best + np.clip(step, -_MOVE_MAX, _MOVE_MAX) for step in steps]
        costs = [_cost(r, counts, c - origin) for r, c in zip(residuals(candidates), candidates, strict=True)]
        chosen = int(np.argmin(costs))
        if costs[chosen] >= cost:
            break
        best, damping = candidates[chosen], max(tries[chosen], 1e-4)
        if cost - costs[chosen] < _ENOUGH * cost:
            break
    return dict(zip(names, np.exp(best).tolist(), strict=True))


def _cost(residuals: np.ndarray, counts: np.ndarray, moved: np.ndarray) -> float:
    """Huber's function of the deviations, and a small term for leaving the start."""
    size = np.abs(residuals)
    huber = np.where(size <= _TOLERATED, size**2, 2 * _TOLERATED * size - _TOLERATED**2)
    return float((counts * huber).sum() + _PULL * (moved**2).sum())
