"""Networks whose data are generated: a small CNN, people in a social graph, a dialogue.

The data can be learned: communities of a graph that grew by preference, and texts of a Markov
chain.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

__all__ = ["Dialogue", "SocialGraph", "cnn", "dialogue_batch", "people"]

_PEOPLE, _FRIENDS, _COMMUNITIES, _TRAITS = 2000, 8, 10, 64
_WORDS, _TOKENS, _FOLLOWERS = 4000, 24, 4


def cnn() -> nn.Module:
    """Four convolutions and two layers for 32 x 32 pixels: 1.2 million parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 64, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


class SocialGraph(nn.Module):
    """A graph convolutional network (Kipf and Welling 2017) that predicts people's communities.

    The graph grows by preferential attachment (Barabasi and Albert 1999), mostly within
    communities.
    """

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(12)
        self._edges, self.communities = _grown()
        centers = torch.randn(_COMMUNITIES, _TRAITS, generator=generator)
        noise = torch.randn(_PEOPLE, _TRAITS, generator=generator)
        self._traits = centers[self.communities] + 2 * noise
        self.first = nn.Linear(_TRAITS, 512)
        self.second = nn.Linear(512, 512)
        self.head = nn.Linear(512, _COMMUNITIES)

    def forward(self, numbers: Tensor) -> Tensor:
        """Logits of the communities of some people."""
        hidden = self.first(self._mean(self._traits)).relu()
        hidden = self.second(self._mean(hidden)).relu()
        logits: Tensor = self.head(hidden[numbers])
        return logits

    def _mean(self, values: Tensor) -> Tensor:
        """The mean over each person's friends."""
        source, target = self._edges
        total = torch.zeros_like(values).index_add_(0, target, values[source])
        return total / torch.bincount(target, minlength=_PEOPLE).clamp(min=1)[:, None]


def people(samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Some people, and their communities."""
    communities = _grown()[1]
    numbers = torch.randint(_PEOPLE, (samples,), generator=generator)
    return numbers, communities[numbers]


class Dialogue(nn.Module):
    """A recurrent network that continues a text word by word: 4.9 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, 256)
        self.recurrent = nn.GRU(256, 384, batch_first=True)
        self.head = nn.Linear(384, _WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next word at every place: (samples, words, places)."""
        hidden, _ = self.recurrent(self.words(tokens))
        logits: Tensor = self.head(hidden).transpose(1, 2)
        return logits


def dialogue_batch(samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Texts in which each word has four that may follow it, and the same one word later."""
    follows = torch.randint(_WORDS, (_WORDS, _FOLLOWERS), generator=torch.Generator().manual_seed(13))
    text = torch.empty(samples, _TOKENS + 1, dtype=torch.int64)
    text[:, 0] = torch.randint(_WORDS, (samples,), generator=generator)
    for place in range(_TOKENS):
        choice = torch.randint(_FOLLOWERS, (samples,), generator=generator)
        text[:, place + 1] = follows[text[:, place], choice]
    return text[:, :-1], text[:, 1:]


@functools.cache
def _grown() -> tuple[Tensor, Tensor]:
    """Edges in both directions, (2, edges), and each person's community: always the same."""
    generator = torch.Generator().manual_seed(11)
    communities = torch.randint(_COMMUNITIES, (_PEOPLE,), generator=generator)
    ends = torch.zeros(_PEOPLE * (_FRIENDS + 1), dtype=torch.int64)
    # Each person as often as it has edges, and once more.
    count, pairs = 1, []
    for person in range(1, _PEOPLE):
        chosen = ends[torch.randint(count, (4 * _FRIENDS,), generator=generator)]
        own = chosen[communities[chosen] == communities[person]]
        friends = torch.unique(torch.cat([own, chosen])[:_FRIENDS])
        pairs.append(torch.stack([torch.full_like(friends, person), friends]))
        ends[count : count + len(friends)] = friends
        ends[count + len(friends)] = person
        count += len(friends) + 1
    edges = torch.cat(pairs, 1)
    return torch.cat([edges, edges.flip(0)], 1), communities
