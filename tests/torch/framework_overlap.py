"""Overlapped training by each framework on two ranks, compared with a plain loop of one process."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from framework_training import Named, WithLoss, network, samples
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler

import weft.torch

RATE, BATCH, EPOCHS, ACCUMULATED, NORM = 0.05, 4, 6, 2, 0.5


def plain_training(make: Any) -> nn.Module:
    """The reference training: accumulation, clipping, and a scheduler that halves the rate."""
    model = network()
    optimizer = make(model.parameters(), lr=RATE)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=6, gamma=0.5)
    for _ in range(EPOCHS):
        # Both ranks' batches of all micro-steps of a step.
        for inputs, labels in DataLoader(samples(), batch_size=2 * BATCH * ACCUMULATED):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), labels).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
            optimizer.step()
            scheduler.step()
    return model


def check(model: nn.Module, reference: nn.Module) -> None:
    """The same parameters on all ranks, and those of the reference but for rounding."""
    assert dist.get_backend() in ("weft", "cpu:weft"), dist.get_backend()
    for (name, parameter), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
        copies = [torch.empty_like(parameter.data) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, parameter.data)
        assert all(torch.equal(copies[0], copy) for copy in copies), name
        torch.testing.assert_close(parameter.data, expected.data, rtol=1e-4, atol=1e-5, msg=name)


def check_overlapped(model: Any) -> None:
    """The model was wrapped, and updates were carried out after their steps."""
    assert isinstance(model, weft.torch.DataParallel), type(model)
    assert len(model.plan.buckets) > 1
    assert any(span.kind == "update" for span in model._observer.spans), "no update was deferred"


def with_lightning() -> None:
    import lightning
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint

    from weft.torch.lightning import WeftStrategy

    class Regression(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
            inputs, labels = batch
            loss = nn.functional.mse_loss(self.network(inputs), labels)
            self.log("loss", loss, sync_dist=True)
            return loss

        def validation_step(self, batch: tuple[Tensor, Tensor], _index: int) -> None:
            inputs, labels = batch
            self.log("validation", nn.functional.mse_loss(self.network(inputs), labels), sync_dist=True)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=RATE)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=6, gamma=0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    class ByHand(Regression):
        """Manual optimization: backward and step within the training step."""

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
            inputs, labels = batch
            optimizer = self.optimizers()
            with optimizer.toggle_model(sync_grad=(index + 1) % ACCUMULATED == 0):
                self.manual_backward(nn.functional.mse_loss(self.network(inputs), labels) / ACCUMULATED)
            if (index + 1) % ACCUMULATED == 0:
                self.clip_gradients(optimizer, NORM, "norm")
                optimizer.step()
                optimizer.zero_grad()
                self.lr_schedulers().step()

    class Watch(Callback):
        def on_train_end(self, trainer: Any, _module: Any) -> None:
            check_overlapped(trainer.strategy.model)

    def trainer(directory: str, epochs: int, **options: Any) -> Any:
        return lightning.Trainer(
            accelerator="cpu",
            devices=2,
            strategy=WeftStrategy(fusion="none"),
            max_epochs=epochs,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=directory,
            use_distributed_sampler=False,  # it shuffles
            **options,
        )

    def loader() -> Any:
        data = samples()
        place = dist.get_world_size(), dist.get_rank()
        return DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, *place, shuffle=False))

    dist.init_process_group("weft")  # for the sampler
    reference = plain_training(torch.optim.Adam)
    automatic = {"accumulate_grad_batches": ACCUMULATED, "gradient_clip_val": NORM}
    with tempfile.TemporaryDirectory() as directory:
        module = Regression()
        saving = ModelCheckpoint(dirpath=directory, filename="half", every_n_epochs=EPOCHS // 2)
        whole = trainer(directory, EPOCHS // 2, callbacks=[saving, Watch()], **automatic)
        whole.fit(module, loader(), loader())
        resumed = Regression()
        last = whole.strategy.broadcast(saving.best_model_path)
        trainer(directory, EPOCHS, **automatic).fit(resumed, loader(), loader(), ckpt_path=last)
        check(resumed.network, reference)
        assert type(next(resumed.parameters())) is nn.Parameter, "the module is not plain again"
        by_hand = ByHand()
        trainer(directory, EPOCHS).fit(by_hand, loader())
        check(by_hand.network, reference)


def with_accelerate() -> None:
    from accelerate import Accelerator

    import weft.torch.accelerate

    dist.init_process_group("weft")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    weft.torch.accelerate.overlap(accelerator, fusion="none")

    def begin() -> tuple[Any, ...]:
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        # Accelerate steps it once for each rank.
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2 * 6, gamma=0.5)
        return accelerator.prepare(model, optimizer, DataLoader(samples(), batch_size=BATCH), scheduler)

    def train(model: Any, optimizer: Any, loader: Any, scheduler: Any, epochs: int) -> None:
        model.train()
        for _ in range(epochs):
            for inputs, labels in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(nn.functional.mse_loss(model(inputs), labels))
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), NORM)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()

    begun = begin()
    train(*begun, epochs=EPOCHS // 2)
    check_overlapped(begun[0])
    with tempfile.TemporaryDirectory() as directory:
        place: list[Any] = [directory]
        dist.broadcast_object_list(place)
        accelerator.save_state(place[0])
        accelerator.free_memory()
        begun = begin()
        accelerator.load_state(place[0])
        train(*begun, epochs=EPOCHS - EPOCHS // 2)
        dist.barrier()
    model = accelerator.unwrap_model(begun[0])
    assert type(model) is nn.Sequential
    check(model, plain_training(torch.optim.Adam))
    try:
        accelerator.prepare(torch.optim.SGD(network().parameters()))
    except weft.ArgumentError as error:
        assert "the model first" in str(error)
    else:
        raise AssertionError("an optimizer without a model was prepared")


def with_transformers() -> None:
    from transformers import Trainer, TrainingArguments

    import weft.torch.accelerate

    class InOrder(Trainer):
        def _get_train_sampler(self, *_: Any) -> SequentialSampler:
            return SequentialSampler(self.train_dataset)

    def trainer(directory: str, epochs: int) -> Trainer:
        arguments = TrainingArguments(
            output_dir=directory,
            use_cpu=True,
            num_train_epochs=epochs,
            per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=ACCUMULATED,
            max_grad_norm=NORM,
            report_to=[],
            disable_tqdm=True,
            save_strategy="epoch",
        )
        model = WithLoss()
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        # Accelerate steps it once for each rank, Transformers' Trainer does not.
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=6, gamma=0.5)
        made = InOrder(model, arguments, train_dataset=Named(), eval_dataset=Named(), optimizers=(optimizer, scheduler))
        weft.torch.accelerate.overlap(made.accelerator, fusion="none")
        return made

    dist.init_process_group("weft")
    with tempfile.TemporaryDirectory() as directory:
        place: list[Any] = [directory]
        dist.broadcast_object_list(place)
        half = trainer(place[0], EPOCHS // 2)
        half.train()
        check_overlapped(half.model_wrapped)
        resumed = trainer(place[0], EPOCHS)
        resumed.train(resume_from_checkpoint=True)
        assert resumed.evaluate()["eval_loss"] > 0
        resumed.save_model(str(Path(place[0], "final")))
        check(resumed.model.network, plain_training(torch.optim.Adam))
        dist.barrier()


FRAMEWORKS = {
    "lightning": with_lightning,
    "accelerate": with_accelerate,
    "transformers": with_transformers,
}


if __name__ == "__main__":
    FRAMEWORKS[sys.argv[1]]()
    if dist.get_rank() == 0:
        print(f"{sys.argv[1]}: overlapped on {dist.get_world_size()} ranks", flush=True)
    dist.destroy_process_group()
