"""Training scripts of the framework tests: one small network over weft for each framework."""

from __future__ import annotations

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

FEATURES, SAMPLES = 6, 32


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1))


def samples() -> TensorDataset:
    inputs = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(2))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def check_trained(model: nn.Module) -> None:
    """The backend is weft, the loss has fallen, and all ranks have the same parameters."""
    assert dist.get_backend() in ("weft", "cpu:weft"), dist.get_backend()
    inputs, labels = samples().tensors
    assert mean_loss(model, inputs, labels) < 0.8 * mean_loss(network(), inputs, labels)
    for name, parameter in model.named_parameters():
        copies = [torch.empty_like(parameter.data) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, parameter.data)
        assert all(torch.equal(copies[0], copy) for copy in copies), name


def mean_loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return nn.functional.mse_loss(model(inputs), labels).item()


def train_with_lightning() -> None:
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Regression(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
            inputs, labels = batch
            loss = nn.functional.mse_loss(self.network(inputs), labels)
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.05)

    with tempfile.TemporaryDirectory() as directory:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=2,
            strategy=DDPStrategy(process_group_backend="weft"),
            max_epochs=10,
            logger=False,
            enable_progress_bar=False,
            default_root_dir=directory,
        )
        module = Regression()
        trainer.fit(module, DataLoader(samples(), batch_size=4))
        assert trainer.world_size == 2
        check_trained(module.network)


def train_with_accelerate() -> None:
    from accelerate import Accelerator

    dist.init_process_group("weft")  # or else Accelerate takes Gloo, regardless of the backend requested
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(samples(), batch_size=4))
    for _ in range(10):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                accelerator.backward(nn.functional.mse_loss(model(inputs), labels))
                optimizer.step()
    gathered = accelerator.gather_for_metrics(torch.tensor([float(accelerator.process_index)]))
    assert gathered.tolist() == [0.0, 1.0]
    assert accelerator.reduce(torch.ones(2), "sum").tolist() == [2.0, 2.0]
    check_trained(accelerator.unwrap_model(model))


class Named(Dataset):
    """The samples by the names under which a Trainer's model takes them."""

    def __init__(self) -> None:
        self._samples = samples()

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        inputs, labels = self._samples[index]
        return {"inputs": inputs, "labels": labels}


class WithLoss(nn.Module):
    """A model as a Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        outputs = self.network(inputs)
        return {"loss": nn.functional.mse_loss(outputs, labels), "logits": outputs}


def train_with_transformers() -> None:
    from transformers import Trainer, TrainingArguments

    dist.init_process_group("weft")  # or else Accelerate, on which the Trainer stands, takes Gloo
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            output_dir=directory,
            use_cpu=True,
            num_train_epochs=10,
            per_device_train_batch_size=4,
            learning_rate=0.05,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
        )
        trainer = Trainer(WithLoss(), arguments, train_dataset=Named(), eval_dataset=Named())
        trainer.train()
        assert trainer.evaluate()["eval_loss"] > 0
        check_trained(trainer.model.network)


def train_with_deepspeed() -> None:
    """ZeRO of stage 1: every rank has the optimizer's state of half of the parameters."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    # Its extension for inference on one host, which it would compile for minutes and not use here.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    dist.init_process_group("weft")
    deepspeed.init_distributed(dist_backend="weft")
    model = network()
    settings = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "Adam", "params": {"lr": 0.05, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    inputs, labels = samples().tensors
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    for _ in range(40):
        engine.backward(nn.functional.mse_loss(engine(inputs[mine]), labels[mine]))
        engine.step()
    check_trained(engine.module)


def train_with_jax() -> None:
    """Gradients of JAX, averaged by weft's group for arrays: torch only counts the ranks."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import weft

    dist.init_process_group("weft")
    with weft.init() as group:
        inputs, labels = (jnp.asarray(tensor.numpy()) for tensor in samples().tensors)
        mine = slice(group.rank, None, group.size)
        gradient = jax.value_and_grad(lambda w: jnp.mean((inputs[mine] @ w - labels[mine]) ** 2))
        weights = jnp.zeros((FEATURES, 1))
        try:
            group.all_reduce(weights)
        except weft.ArgumentError as error:
            assert "read-only" in str(error), error
        else:
            raise AssertionError("an array of JAX's was written to")
        losses = []
        for _ in range(40):
            loss, slope = gradient(weights)
            losses.append(float(loss))
            # JAX's arrays do not change: an in-place reduction works on a copy.
            weights -= 0.2 * jnp.asarray(group.all_reduce(np.array(slope), "avg"))
        assert losses[-1] < 0.01 * losses[0], losses
        everybody = np.empty((group.size, FEATURES, 1), np.float32)
        group.all_gather(weights, everybody)  # which are read as they are
        assert (everybody == everybody[0]).all()


FRAMEWORKS = {
    "deepspeed": train_with_deepspeed,
    "jax": train_with_jax,
    "lightning": train_with_lightning,
    "accelerate": train_with_accelerate,
    "transformers": train_with_transformers,
}


if __name__ == "__main__":
    FRAMEWORKS[sys.argv[1]]()
    if dist.get_rank() == 0:
        print(f"{sys.argv[1]}: trained on {dist.get_world_size()} ranks", flush=True)
    dist.destroy_process_group()
