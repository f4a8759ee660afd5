"""Model parallelism on put and signal: a split linear layer, and a split convolution.

torchrun --nproc-per-node 2 examples/model_parallel.py
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import weft
from weft.demo.all_reduce_by_hand import AllReduce


class SumForward(torch.autograd.Function):
    """The sum over ranks; its gradient is each rank's own."""

    @staticmethod
    def forward(_ctx, x: Tensor, all_reduce: AllReduce) -> Tensor:
        total = x.detach().flatten().clone()
        all_reduce(total.numpy())
        return total.view(x.shape)

    @staticmethod
    def backward(_ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class SumBackward(torch.autograd.Function):
    """What all ranks have; its gradient is the sum over ranks."""

    @staticmethod
    def forward(ctx, x: Tensor, all_reduce: AllReduce) -> Tensor:
        ctx.all_reduce = all_reduce
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return SumForward.apply(gradient, ctx.all_reduce), None


class Halos:
    """Edges of an image that is split by rows, to the neighbours above and below.

    [Note: Two sets] A neighbour is one exchange ahead at most, since it needs this rank's edges for
    its own: so two sets of rows in turn are enough.
    """

    def __init__(self, group: weft.Group, edge: tuple[int, ...]) -> None:
        self.group, self.edge, self.number = group, edge, 0
        self.rows = group.symmetric((2, 2, *edge), signals=2, name="halos")  # by set; from above, from below

    def exchange(self, up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
        """What the neighbours above and below send here; zeros where there is none."""
        rank, turn = self.group.rank, self.number % 2
        self.number += 1
        above, below = rank > 0, rank < self.group.size - 1
        if above:
            self.rows.put_signal(rank - 1, up.contiguous(), at=(turn, 1), signal=1)
        if below:
            self.rows.put_signal(rank + 1, down.contiguous(), at=(turn, 0), signal=0)
        received = np.zeros((2, *self.edge), np.float32)
        for side, there in enumerate((above, below)):
            if there:
                self.rows.wait_signal(side, ">=", self.number)
                received[side] = self.rows[turn, side]
        return torch.from_numpy(received[0]), torch.from_numpy(received[1])


class WithHalo(torch.autograd.Function):
    """An image's rows between the neighbours' next ones."""

    @staticmethod
    def forward(ctx, x: Tensor, halos: Halos) -> Tensor:
        ctx.halos = halos
        above, below = halos.exchange(x.detach()[:, :, 0], x.detach()[:, :, -1])
        return torch.cat([above[:, :, None], x, below[:, :, None]], dim=2)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        above, below = ctx.halos.exchange(gradient[:, :, 0], gradient[:, :, -1])
        own = gradient[:, :, 1:-1].clone()
        own[:, :, 0] += above
        own[:, :, -1] += below
        return own, None


def split_linear(group: weft.Group) -> None:
    """Two layers, the first split by its columns, the second by its rows, against the whole."""
    torch.manual_seed(0)
    x, w1, w2 = torch.randn(5, 12), torch.randn(8 * group.size, 12), torch.randn(7, 8 * group.size)
    whole = [t.clone().requires_grad_() for t in (x, w1, w2)]
    expected = functional.linear(torch.relu(functional.linear(whole[0], whole[1])), whole[2])
    expected.square().sum().backward()

    mine = slice(8 * group.rank, 8 * group.rank + 8)
    parts = [t.clone().requires_grad_() for t in (x, w1[mine], w2[:, mine])]
    for _ in range(2):  # the second time over used memory
        entry = SumBackward.apply(parts[0], AllReduce(group, x.numel()))
        hidden = torch.relu(functional.linear(entry, parts[1]))
        result = SumForward.apply(functional.linear(hidden, parts[2]), AllReduce(group, expected.numel()))
        gradients = torch.autograd.grad(result.square().sum(), parts)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)
    for got, of_whole in zip(gradients, (whole[0].grad, whole[1].grad[mine], whole[2].grad[:, mine]), strict=True):
        torch.testing.assert_close(got, of_whole, rtol=1e-4, atol=1e-2)


def split_convolution(group: weft.Group) -> None:
    """Two 3 x 3 convolutions of an image that is split by rows, against the whole image."""
    torch.manual_seed(1)
    rows = 4
    x, w = torch.randn(2, 3, rows * group.size, 10), torch.randn(3, 3, 3, 3)
    whole = [t.clone().requires_grad_() for t in (x, w)]
    expected = functional.conv2d(torch.tanh(functional.conv2d(whole[0], whole[1], padding=1)), whole[1], padding=1)
    expected.square().sum().backward()

    halos = Halos(group, (2, 3, 10))
    mine = slice(rows * group.rank, rows * group.rank + rows)
    part, weight = x[:, :, mine].clone().requires_grad_(), w.clone().requires_grad_()
    result = part
    for layer in range(2):
        result = functional.conv2d(WithHalo.apply(result, halos), weight, padding=(0, 1))
        result = torch.tanh(result) if layer == 0 else result
    result.square().sum().backward()
    torch.testing.assert_close(result, expected[:, :, mine], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(part.grad, whole[0].grad[:, :, mine], rtol=1e-4, atol=1e-2)
    total = weight.grad.flatten().clone()
    AllReduce(group, total.numel())(total.numpy())  # as for data parallelism
    torch.testing.assert_close(total.view(w.shape), whole[1].grad, rtol=1e-3, atol=1e-1)


def main() -> None:
    group = weft.init()
    split_linear(group)
    split_convolution(group)
    print(f"rank {group.rank}: the split layers and the whole ones agree, forward and backward")
    group.close()


if __name__ == "__main__":
    main()
