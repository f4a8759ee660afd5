"""Name of the backend in torch.distributed."""

__all__ = ["BACKEND_NAME"]

BACKEND_NAME = "weft"
