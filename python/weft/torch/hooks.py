"""Communication modes as hooks of DDP."""

# Without postponed annotations: DDP inspects those of its hooks.
import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from weft.torch.communication_thread import CommunicationThread
from weft.torch.lookup import backend_of
from weft.torch.modes import Bucket, GroupCommunication, Mode, run
from weft.torch.patches.modes import outside_of_modes

__all__ = ["ModeHook", "mode_hook", "register"]


class ModeHook:
    """The state of `mode_hook`: a mode, and the model whose gradients it averages."""

    def __init__(self, model: DistributedDataParallel, mode: Mode) -> None:
        """`model` is a DDP model whose process group has the backend weft.

        Raises:
            weft.ArgumentError: It has another backend.
        """
        self.mode = mode
        self.communication = GroupCommunication(model.process_group)
        operations = backend_of(model.process_group).weft_operations
        self.thread: CommunicationThread = operations.communication_thread
        self._names = {parameter: name for name, parameter in model.module.named_parameters()}

    def bucket(self, gradients: GradBucket) -> Bucket:
        """A bucket of DDP in the form for modes."""
        parameters = {self._names[parameter]: parameter for parameter in gradients.parameters()}
        return Bucket(gradients.index(), gradients.buffer(), parameters, is_last=gradients.is_last())

    def flush(self) -> bool:
        """Sets the parameters' gradients to averages that the mode has not delivered yet.

        Every rank calls it after the last step, and takes a further step of the optimizer if there
        were any.
        """
        averages = self.mode.flush()
        for parameter, name in self._names.items():
            average = averages.get(name)
            parameter.grad = None if average is None else average.view(parameter.shape)
        return bool(averages)


@outside_of_modes
def mode_hook(state: ModeHook, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """A communication hook by which DDP averages gradients in a mode.

    `model.register_comm_hook(weft.torch.hooks.ModeHook(model, mode), weft.torch.hooks.mode_hook)`.
    The stages after a mode's first operations run beside the backward pass: see
    [Note: Callbacks of hooks].

    Args:
        state: The mode and the model.
        bucket: DDP's bucket.

    Returns:
        A future of the average.
    """
    own = state.bucket(bucket)
    stages = iter(state.mode.average(own, state.communication))
    first = next(stages, None)

    def finish() -> Tensor:
        if first is not None:
            first.wait()
            run(stages)
        return own.buffer

    return state.thread.after_hook(finish)


def register(model: DistributedDataParallel, mode: Mode) -> ModeHook:
    """Makes a DDP model average its gradients in a mode.

    Args:
        model: A DDP model whose process group has the backend weft.
        mode: For example `weft.torch.modes.PowerSGD(rank=4)`. Its state belongs in the checkpoint:
            `mode.state_dict()`, on each rank its own.

    Returns:
        The hook's state, for `flush`.

    Raises:
        weft.ArgumentError: The process group has another backend.
    """
    state = ModeHook(model, mode)
    model.register_comm_hook(state, mode_hook)
    return state
