"""Training that continues with the surviving ranks when others die."""

from weft.torch.recovery.recovery import Recovery

__all__ = ["Recovery"]
