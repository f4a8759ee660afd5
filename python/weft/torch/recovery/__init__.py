"""Training that goes on with the ranks that are left when others die."""

from weft.torch.recovery.recovery import Recovery

__all__ = ["Recovery"]
