"""Tests of gradients that are computed in their bucket: torch's bits, and who may see them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

import weft.torch
from weft.torch.parallel import weight_gradients
from weft.torch.patches.autograd import accumulates

WIDTH = 32
STEPS = 4
Loss = Callable[[nn.Module, Tensor], Tensor]


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group of one rank, whose wrapper averages all the same."""
    monkeypatch.setattr(weight_gradients, "BYTES_MIN", 1)
    monkeypatch.setattr(weft.torch.DataParallel, "is_alone", False)
    dist.init_process_group("weft", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def net(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    layers = (nn.Linear(16, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, 48, bias=False), nn.Linear(48, 16))
    return nn.Sequential(*layers).to(dtype)


def wrapped(plain: nn.Module) -> weft.torch.DataParallel:
    return weft.torch.DataParallel(copy.deepcopy(plain))


def placed(model: weft.torch.DataParallel) -> list[str]:
    return [slot.name for slot in model._reducer.slots if slot.placed]


def inputs_of(shape: tuple[int, ...] = (3, 16), seed: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def assert_same_gradients(model: weft.torch.DataParallel, plain: nn.Module) -> None:
    for (name, one), other in zip(model.module.named_parameters(), plain.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.equal(one.grad, other.grad), name


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16), ids=str)
@pytest.mark.parametrize("shape", ((3, 16), (1, 16), (2, 3, 16), (2, 3, 2, 16), (16,), (0, 16)), ids=str)
def test_bits_of_all_gradients(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    plain = net(dtype)
    model = wrapped(plain)
    for step in range(STEPS):
        one, other = (inputs_of(shape, step, dtype) for _ in range(2))
        for module, data in ((model, one), (plain, other)):
            module.zero_grad()
            loss = module(data).square()
            (loss.sum() if step % 2 else loss.mean()).backward()  # `sum` has a gradient without memory
        assert_same_gradients(model, plain)
        assert one.grad is not None
        assert torch.equal(one.grad, other.grad)
        assert "0.weight" in placed(model)


def test_gradients_are_added_to_those_that_are_there() -> None:
    plain = net()
    model = wrapped(plain)
    for module in (model, plain):
        for step in range(STEPS):
            module(inputs_of(seed=step)).square().sum().backward()
    assert placed(model) == []
    assert_same_gradients(model, plain)


def twice(module: nn.Module, data: Tensor) -> Tensor:
    return module(data).square().sum() + module(2 * data).sum()


def same_layer_twice(module: nn.Module, data: Tensor) -> Tensor:
    return module(module(data)).square().sum()


def by_function(module: nn.Module, data: Tensor) -> Tensor:
    return module(data).square().sum() + (inner(module)[0].weight ** 2).sum()


def reentrant(module: nn.Module, data: Tensor) -> Tensor:
    return checkpoint(module, data, use_reentrant=True).square().sum()


def recomputed(module: nn.Module, data: Tensor) -> Tensor:
    return checkpoint(module, data, use_reentrant=False).square().sum()


def with_autocast(module: nn.Module, data: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return module(data).square().sum()


def transposed_inputs(module: nn.Module, data: Tensor) -> Tensor:
    return module(data.new_ones(16, 5).t() * data[:1]).square().sum()


def on_disk(module: nn.Module, data: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: pickle.dumps(saved.detach()), pickle.loads):
        return module(data).square().sum()


def inner(module: nn.Module) -> nn.Sequential:
    return module.module if isinstance(module, weft.torch.DataParallel) else module  # type: ignore[return-value]


LOSSES: tuple[Loss, ...] = (
    twice,
    same_layer_twice,
    by_function,
    recomputed,
    reentrant,
    with_autocast,
    transposed_inputs,
    on_disk,
)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_bits_of_other_uses(loss: Loss) -> None:
    plain = net()
    model = wrapped(plain)
    for step in range(STEPS):
        for module in (model, plain):
            module.zero_grad()
            loss(module, inputs_of(seed=step)).backward()
        assert_same_gradients(model, plain)


def tied(module: nn.Sequential) -> nn.Sequential:
    return nn.Sequential(module[0], nn.Linear(WIDTH, 16), module[0])


def hooked_output(module: nn.Sequential) -> nn.Sequential:
    module[0].register_forward_hook(lambda _, __, output: 3 * output)
    module[2].register_forward_hook(lambda _, __, output: output.mul_(2), prepend=True)
    return module


def hooked_inputs(module: nn.Sequential) -> nn.Sequential:
    module[0].register_forward_pre_hook(lambda _, arguments: (5 * arguments[0],))
    return module


def hooked_gradients(module: nn.Sequential) -> nn.Sequential:
    module[0].weight.register_hook(lambda gradient: 3 * gradient)
    module[2].weight.register_hook(lambda gradient: gradient.mul_(3))
    return module


def hooked_backward(module: nn.Sequential) -> nn.Sequential:
    module[3].register_full_backward_hook(lambda _, found, __: (3 * found[0],))
    return module


def with_parametrization(module: nn.Sequential) -> nn.Sequential:
    parametrize.register_parametrization(module[0], "weight", nn.Softplus())
    return module


class Doubling(nn.Linear):
    """Another forward than that of its class."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


def with_subclass(module: nn.Sequential) -> nn.Sequential:
    return nn.Sequential(Doubling(16, WIDTH), *module[1:])


def frozen(module: nn.Sequential) -> nn.Sequential:
    module[0].weight.requires_grad_(False)
    module[2].requires_grad_(False)
    return module


MODELS = (
    tied,
    hooked_output,
    hooked_inputs,
    hooked_gradients,
    hooked_backward,
    with_parametrization,
    with_subclass,
    frozen,
)


@pytest.mark.parametrize("change", MODELS, ids=lambda change: change.__name__)
def test_bits_of_other_models(change: Callable[[nn.Sequential], nn.Sequential]) -> None:
    torch.manual_seed(3)
    plain = change(net())
    torch.manual_seed(3)
    model = weft.torch.DataParallel(change(net()))
    for step in range(STEPS):
        for module in (model, plain):
            module.zero_grad()
            module(inputs_of(seed=step)).square().sum().backward()
        assert_same_gradients(model, plain)


def other_output(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    if not isinstance(module, nn.Linear):
        return output
    return nn.functional.linear(3 * arguments[0].detach(), module.weight, module.bias)


def first_hook(module: nn.Module) -> None:
    module[0].register_forward_hook(other_output, prepend=True)  # type: ignore[index]


def other_forward(module: nn.Module) -> None:
    layer = module[0]  # type: ignore[index]
    layer.forward = lambda inputs: nn.functional.linear(3 * inputs, layer.weight, layer.bias)


@pytest.mark.parametrize("change", (first_hook, other_forward), ids=lambda change: change.__name__)
def test_bits_of_layers_that_are_changed_later(change: Callable[[nn.Module], None]) -> None:
    plain = net()
    model = wrapped(plain)
    for module in (model, plain):
        module(inputs_of())  # the first forward looks at the modules again
        change(inner(module))
        module(inputs_of().detach()).square().sum().backward()
    assert_same_gradients(model, plain)


def test_bits_beside_a_global_hook() -> None:
    plain = net()
    model = wrapped(plain)
    handle = nn.modules.module.register_module_forward_hook(other_output)
    try:
        for module in (model, plain):
            module(inputs_of().detach()).square().sum().backward()
    finally:
        handle.remove()
    assert_same_gradients(model, plain)


def test_gradients_for_the_program_stay_its_own() -> None:
    model = wrapped(net())
    weight = model.module[0].weight
    (mine,) = torch.autograd.grad(model(inputs_of()).square().sum(), [weight])
    before = mine.clone()
    seen: list[Tensor] = []
    handle = weight.register_hook(seen.append)
    for step in range(STEPS):
        model.zero_grad()
        model(inputs_of(seed=step)).square().sum().backward()
        if step == 0:
            first = seen[0].clone()
            handle.remove()
    assert torch.equal(mine, before)
    assert torch.equal(seen[0], first)
    assert "0.weight" in placed(model)


def test_a_backward_of_some_inputs() -> None:
    plain = net()
    model = wrapped(plain)
    for module in (model, plain):
        data = inputs_of()
        module(data).square().sum().backward(inputs=[data, inner(module)[2].weight])
    assert_same_gradients(model, plain)


def test_gradients_of_gradients() -> None:
    plain = net().double()
    model = wrapped(plain)
    for module in (model, plain):
        data = inputs_of(dtype=torch.float64)
        (found,) = torch.autograd.grad(torch.tanh(module(data)).square().sum(), [data], create_graph=True)
        module.zero_grad()
        found.square().sum().backward()
    assert_same_gradients(model, plain)
    data = inputs_of(dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda data: torch.tanh(model.module[0](data)), [data])


def test_a_graph_that_is_kept() -> None:
    plain = net()
    model = wrapped(plain)
    for module in (model, plain):
        loss = module(inputs_of()).square().sum()
        loss.backward(retain_graph=True)
        module.zero_grad()
        loss.backward()
    assert_same_gradients(model, plain)


def test_function_transforms_see_plain_layers() -> None:
    model = wrapped(net())
    layer, data = model.module[0], inputs_of().detach()
    batched = torch.func.vmap(layer)(data)
    assert torch.allclose(batched, layer(data))
    _, tangent = torch.func.jvp(layer, (data,), (torch.ones_like(data),))
    assert torch.allclose(tangent, layer.weight.sum(1).expand_as(tangent), atol=1e-5)
    with torch.autograd.forward_ad.dual_level():
        output = layer(torch.autograd.forward_ad.make_dual(data, torch.ones_like(data)))
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(output).tangent, tangent)


def test_copies_and_unwrapped_models_are_plain() -> None:
    plain = net()
    model = wrapped(plain)
    for other in (copy.deepcopy(model.module), pickle.loads(pickle.dumps(model.module)), model.unwrap()):
        assert other(inputs_of()).grad_fn.name() == "AddmmBackward0"
        assert other[0](inputs_of()).grad_fn.name() == "AddmmBackward0"


def test_a_compiled_layer_keeps_its_graph() -> None:
    model = wrapped(net())
    counted: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        counted.append(graph)
        return graph.forward

    torch.compile(model.module[0], backend=backend, fullgraph=True)(inputs_of()).sum().backward()
    assert len(counted) == 1


def test_whether_a_gradient_is_accumulated() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    found: list[bool] = []

    class Asks(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, weight: Tensor) -> Tensor:  # type: ignore[override]
            ctx.save_for_backward(weight)
            return weight.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
            found.append(accumulates(ctx, ctx.saved_tensors[0]))
            return gradient

    def output() -> Tensor:
        return Asks.apply(weight).sum()  # type: ignore[no-untyped-call]

    output().backward()
    torch.autograd.grad(output(), [weight])
    handle = weight.register_hook(lambda _: None)
    output().backward()
    handle.remove()
    output().backward(inputs=[weight])
    assert found == [True, False, False, True]
