"""Model parallelism on put and signal: a split linear layer, and a split convolution.

Each is compared with the whole layer, forward and backward, and its time with that of the same
layer on `group.all_reduce` and on `group.send` and `recv`.

torchrun --nproc-per-node 2 examples/model_parallel.py
"""

import statistics
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import weft
from weft_lab.demo.all_reduce_by_hand import AllReduce

Sum = Callable[[np.ndarray], object]
"""Replaces a vector by its sum over ranks."""


class SumForward(torch.autograd.Function):
    """The sum over ranks; its gradient is each rank's own."""

    @staticmethod
    def forward(_ctx, x: Tensor, all_reduce: Sum) -> Tensor:
        total = x.detach().flatten().clone()
        all_reduce(total.numpy())
        return total.view(x.shape)

    @staticmethod
    def backward(_ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class SumBackward(torch.autograd.Function):
    """The identity on a replicated value; its gradient is the sum over ranks."""

    @staticmethod
    def forward(ctx, x: Tensor, all_reduce: Sum) -> Tensor:
        ctx.all_reduce = all_reduce
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return SumForward.apply(gradient, ctx.all_reduce), None


class Edges(Protocol):
    """Edges of an image that is split by rows, to the neighbours above and below."""

    def exchange(self, up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the data that the neighbours above and below send; zeros where there is none."""


class PutEdges:
    """Edges by put and signal.

    [Note: Two sets] A neighbour is one exchange ahead at most, since it needs this rank's edges for
    its own: so two sets of rows in turn are enough.
    """

    def __init__(self, group: weft.Group, edge: tuple[int, ...]) -> None:
        self.group, self.edge, self.number = group, edge, 0
        self.rows = group.symmetric((2, 2, *edge), signals=2, name="halos")  # by set; from above, from below

    def exchange(self, up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
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


class SentEdges:
    """Edges by messages."""

    def __init__(self, group: weft.Group, edge: tuple[int, ...]) -> None:
        self.group, self.edge = group, edge

    def exchange(self, up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
        rank = self.group.rank
        received = torch.zeros(2, *self.edge)
        neighbours = [(rank - 1, up.contiguous(), 0), (rank + 1, down.contiguous(), 1)]
        there = [one for one in neighbours if 0 <= one[0] < self.group.size]
        works = [self.group.recv_async(received[side], peer) for peer, _, side in there]
        works += [self.group.send_async(edge, peer) for peer, edge, _ in there]
        for work in works:
            work.wait()
        return received[0], received[1]


class WithHalo(torch.autograd.Function):
    """An image's rows between the neighbours' next ones."""

    @staticmethod
    def forward(ctx, x: Tensor, halos: Edges) -> Tensor:
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


def linear_pair(x: Tensor, w1: Tensor, w2: Tensor, entry: Sum, result: Sum) -> Tensor:
    """Two linear layers: this rank's columns of the first, and its rows of the second."""
    hidden = torch.relu(functional.linear(SumBackward.apply(x, entry), w1))
    return SumForward.apply(functional.linear(hidden, w2), result)


def convolution_pair(x: Tensor, w: Tensor, edges: Edges) -> Tensor:
    """Two 3 x 3 convolutions of this rank's rows of an image."""
    hidden = torch.tanh(functional.conv2d(WithHalo.apply(x, edges), w, padding=(0, 1)))
    return functional.conv2d(WithHalo.apply(hidden, edges), w, padding=(0, 1))


def check_linear(group: weft.Group) -> None:
    """The split layers against the whole ones."""
    torch.manual_seed(0)
    x, w1, w2 = torch.randn(5, 12), torch.randn(8 * group.size, 12), torch.randn(7, 8 * group.size)
    whole = [t.clone().requires_grad_() for t in (x, w1, w2)]
    expected = functional.linear(torch.relu(functional.linear(whole[0], whole[1])), whole[2])
    expected.square().sum().backward()

    mine = slice(8 * group.rank, 8 * group.rank + 8)
    parts = [t.clone().requires_grad_() for t in (x, w1[mine], w2[:, mine])]
    sums = AllReduce(group, x.numel()), AllReduce(group, expected.numel())
    for _ in range(2):  # the second time over used memory
        result = linear_pair(*parts, *sums)
        gradients = torch.autograd.grad(result.square().sum(), parts)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)
    for got, of_whole in zip(gradients, (whole[0].grad, whole[1].grad[mine], whole[2].grad[:, mine]), strict=True):
        torch.testing.assert_close(got, of_whole, rtol=1e-4, atol=1e-2)


def check_convolution(group: weft.Group, edges: type[PutEdges] | type[SentEdges]) -> None:
    """The split convolutions against those of the whole image."""
    torch.manual_seed(1)
    rows = 4
    x, w = torch.randn(2, 3, rows * group.size, 10), torch.randn(3, 3, 3, 3)
    whole = [t.clone().requires_grad_() for t in (x, w)]
    expected = functional.conv2d(torch.tanh(functional.conv2d(whole[0], whole[1], padding=1)), whole[1], padding=1)
    expected.square().sum().backward()

    mine = slice(rows * group.rank, rows * group.rank + rows)
    part, weight = x[:, :, mine].clone().requires_grad_(), w.clone().requires_grad_()
    result = convolution_pair(part, weight, edges(group, (2, 3, 10)))
    result.square().sum().backward()
    torch.testing.assert_close(result, expected[:, :, mine], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(part.grad, whole[0].grad[:, :, mine], rtol=1e-4, atol=1e-2)
    total = weight.grad.flatten().clone()
    AllReduce(group, total.numel())(total.numpy())  # as for data parallelism
    torch.testing.assert_close(total.view(w.shape), whole[1].grad, rtol=1e-3, atol=1e-1)


def compare_times(group: weft.Group) -> None:
    """Forward and backward by both ways, in turn."""
    batch, width = 16, 256
    x = torch.randn(batch, width, requires_grad=True)
    w1 = torch.randn(4 * width // group.size, width, requires_grad=True)
    w2 = torch.randn(width, 4 * width // group.size, requires_grad=True)
    by_hand = AllReduce(group, x.numel()), AllReduce(group, x.numel())
    image, w = torch.randn(4, 8, 16, 64, requires_grad=True), torch.randn(8, 8, 3, 3, requires_grad=True)
    put, sent = PutEdges(group, (4, 8, 64)), SentEdges(group, (4, 8, 64))
    contests: dict[str, dict[str, Callable[[], Tensor]]] = {
        f"linear layers of {width} and {4 * width}, batch {batch}": {
            "put and signal": lambda: linear_pair(x, w1, w2, *by_hand),
            "all_reduce": lambda: linear_pair(x, w1, w2, group.all_reduce, group.all_reduce),
        },
        f"convolutions of 4 x 8 x {16 * group.size} x 64": {
            "put and signal": lambda: convolution_pair(image, w, put),
            "send and recv": lambda: convolution_pair(image, w, sent),
        },
    }
    for name, ways in contests.items():
        us: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(200):
            for way, forward in ways.items():
                group.barrier()
                start = time.perf_counter()
                forward().sum().backward()
                us[way].append(1e6 * (time.perf_counter() - start))
        if group.rank == 0:
            print(f"{name}: " + ", ".join(f"{way} {statistics.median(found):.0f} us" for way, found in us.items()))


def main() -> None:
    torch.set_num_threads(1)
    group = weft.init()
    check_linear(group)
    check_convolution(group, PutEdges)
    check_convolution(group, SentEdges)
    print(f"rank {group.rank}: the split layers and the whole ones agree, forward and backward")
    compare_times(group)
    group.close()


if __name__ == "__main__":
    main()
