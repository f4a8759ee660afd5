"""A probe of the bits that a process computes: products, convolutions, functions of fixed inputs.

The bits of a product of matrices follow from the kind of processor, the number of threads and the
libraries. Ranks of which one computes others cannot train with the same bits.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from weft.errors import ConfigError

__all__ = ["Probe", "check_probes", "probed"]

_CPU = torch.device("cpu")
Probe = dict[str, str]
"""Hashes of results by name; and their possible causes, whose names begin with a space."""


def probed(dtypes: Iterable[torch.dtype]) -> Probe:
    """Computes with floating-point numbers of these types; the first time takes milliseconds."""
    causes = _causes()
    settings = (*causes.values(), torch.are_deterministic_algorithms_enabled(), _flushes_to_zero())
    results = _hashes(tuple(sorted(set(dtypes), key=str)), settings)
    return {**results, **{f" {name}": value for name, value in causes.items()}}


@functools.cache
def _hashes(dtypes: Sequence[torch.dtype], _settings: tuple[object, ...]) -> Probe:
    """The hashes of results, which are the same as long as nothing was set otherwise."""
    with torch.no_grad():
        return {
            f"{name} of {str(dtype).removeprefix('torch.')}": hashlib.sha256(
                result.contiguous().view(torch.uint8).numpy().tobytes()
            ).hexdigest()[:16]
            for dtype in dtypes
            for name, result in _results(dtype)
        }


def check_probes(probes: Mapping[str, Probe], expected_of: str, expected: Probe, *, strict: bool) -> None:
    """Compares probes, by their owners, with the one of another owner.

    Raises:
        weft.ConfigError: One has other bits; without `strict` it is a warning.
    """
    for name, probe in probes.items():
        # What one of them has not computed, such as an older checkpoint, is not compared.
        common = [what for what in expected if what in probe and probe[what] != expected[what]]
        results = [what for what in common if not what.startswith(" ")]
        if not results:
            continue
        causes = [f"{what.strip()}: {probe[what]} against {expected[what]}" for what in common if what.startswith(" ")]
        text = (
            f"{name} computes other bits than {expected_of}, which virtual_ranks cannot make the same: "
            f"{', '.join(results)}"
            + (f"; they differ in {'; '.join(causes)}" if causes else "")
            + ". Use the same kind of processor, the same versions, and torch.set_num_threads(n) with the same n; "
            "ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA choose the instructions that all processors have"
        )
        if strict:
            raise ConfigError(f"{text}; strict=False trains nevertheless")
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def _flushes_to_zero() -> bool:
    """Whether numbers close to zero become zero, which torch cannot be asked for."""
    tiny = torch.full((1,), torch.finfo(torch.float32).tiny, dtype=torch.float32, device=_CPU)
    return not (tiny * 0.25).item()


def _results(dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    draws = torch.Generator().manual_seed(17)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws, dtype=torch.float32, device=_CPU).to(dtype)

    for rows, columns, inner in ((3, 5, 7), (64, 64, 64), (33, 129, 1000)):
        yield f"a product of {rows} x {inner} and {inner} x {columns}", draw(rows, inner) @ draw(inner, columns)
    images, filters = draw(2, 8, 17, 17), draw(16, 8, 3, 3)
    yield "a convolution", nn.functional.conv2d(images, filters, padding=1)
    yield "a convolution's gradients", torch.cat(_gradients(images, filters))
    vector = draw(100_003)
    yield "a sum", vector.sum().reshape(1)
    yield "elementary functions", torch.cat([vector.exp(), vector.tanh(), nn.functional.gelu(vector)])
    yield "numbers close to zero", torch.full((1,), torch.finfo(dtype).tiny, dtype=dtype, device=_CPU) * 0.25


def _gradients(images: Tensor, filters: Tensor) -> list[Tensor]:
    images, filters = images.clone().requires_grad_(), filters.clone().requires_grad_()
    with torch.enable_grad():
        nn.functional.conv2d(images, filters, padding=1).square().sum().backward()  # type: ignore[no-untyped-call]
    return [one.grad.flatten() for one in (images, filters) if one.grad is not None]


def _causes() -> dict[str, str]:
    onednn = re.search(r"(?:MKL-DNN|oneDNN) v([\w.]+)", torch.__config__.show())
    is_on = torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return {
        "processor": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "torch": str(torch.__version__),
        "oneDNN": "off" if not is_on else onednn[1] if onednn else "unknown",
        "float32 products": torch.get_float32_matmul_precision(),
    }
