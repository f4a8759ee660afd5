"""A language model on real text: a small transformer, and the topics of Python's own help.

The text is the output of `help("if")`, `help("OPERATORS")` and similar calls: half a megabyte of
English with examples, written for the language reference. It is part of every Python
(`pydoc_data.topics`). The model predicts it character by character.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

__all__ = ["CONTEXT", "LanguageModel", "Text", "loss_of"]

CONTEXT = 64
"""How many characters the model sees."""
_EVERY_TEST_TOPIC = 20
_ASCII = 128


@dataclass(frozen=True)
class Text:
    """A text as numbers of its characters, in two parts."""

    symbols: str
    """Its characters, by number."""
    training: Tensor
    test: Tensor

    @staticmethod
    def load() -> Text:
        """Reads the topics; every twentieth is for testing."""
        from pydoc_data.topics import topics

        named = sorted(topics.items())
        symbols = "".join(sorted({character for _, text in named for character in text if ord(character) < _ASCII}))
        numbers = {character: number for number, character in enumerate(symbols)}

        def encoded(texts: list[str]) -> Tensor:
            return torch.tensor([numbers[one] for text in texts for one in text if one in numbers])

        texts = [text for _, text in named]
        test = texts[::_EVERY_TEST_TOPIC]
        training = [text for number, text in enumerate(texts) if number % _EVERY_TEST_TOPIC]
        return Text(symbols, encoded(training), encoded(test))

    def batch(self, samples: int, seed: int) -> tuple[Tensor, Tensor]:
        """Pieces of the training text, and the next characters: the same for a seed."""
        generator = torch.Generator().manual_seed(seed)
        return _pieces(self.training, torch.randint(len(self.training) - CONTEXT, (samples,), generator=generator))

    def test_batch(self, samples: int) -> tuple[Tensor, Tensor]:
        """Pieces from all over the test text."""
        return _pieces(self.test, torch.linspace(0, len(self.test) - CONTEXT - 1, samples).long())

    def decode(self, numbers: Tensor) -> str:
        """The characters with these numbers."""
        return "".join(self.symbols[number] for number in numbers.tolist())


class LanguageModel(nn.Module):
    """A transformer that predicts the next character from those before it."""

    def __init__(self, symbols: int, *, width: int = 128, blocks: int = 3, heads: int = 4) -> None:
        """`symbols` is the number of different characters."""
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, symbols)
        for embedding in (self.embedding, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, characters: Tensor) -> Tensor:
        """Logits of the next character, for each of `characters` [samples, up to CONTEXT]."""
        hidden: Tensor = self.embedding(characters) + self.positions(torch.arange(characters.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.output(self.norm(hidden))
        return logits

    @torch.no_grad()
    def continued(self, characters: Tensor, count: int, seed: int = 0) -> Tensor:
        """The characters [n], followed by others that the model draws one by one."""
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            logits = self(characters[-CONTEXT:].unsqueeze(0))[0, -1]
            drawn = torch.multinomial(logits.softmax(0), 1, generator=generator)
            characters = torch.cat([characters, drawn])
        return characters


class _Block(nn.Module):
    """Attention to earlier characters, then two layers for each alone, both beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.before_layers = nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        samples, length, width = hidden.shape
        parts = self.attention(self.before_attention(hidden)).view(samples, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.mixed(seen.transpose(1, 2).reshape(samples, length, width))
        added: Tensor = hidden + self.layers(self.before_layers(hidden))
        return added


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The cross-entropy of the next characters, in nats for each."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def _pieces(text: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    places = starts.unsqueeze(1) + torch.arange(CONTEXT + 1)
    pieces = text[places]
    return pieces[:, :-1], pieces[:, 1:]
