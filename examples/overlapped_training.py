"""LeNet on handwritten digits, with communication that continues into the next forward.

torchrun --standalone --nproc-per-node 2 examples/overlapped_training.py --steps 200

It saves a checkpoint in the middle, loads it into a new model, and continues; then rank 0 prints
the accuracy and the cost of communication.
"""

import argparse
import io

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import weft.torch
from weft_lab.demo.train_digits import LeNet5, load_data

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=64)
arguments = parser.parse_args()


def build() -> tuple[weft.torch.DataParallel, torch.optim.Optimizer]:
    model = weft.torch.DataParallel(LeNet5())
    return model, weft.torch.Overlapped(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model)


def train(model: weft.torch.DataParallel, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        chosen = torch.randint(len(images), (arguments.batch,))
        optimizer.zero_grad()
        cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()  # returns before gradients are averaged


dist.init_process_group("weft")
torch.manual_seed(dist.get_rank())
training, test = load_data()
images, labels = training.tensors

model, optimizer = build()
train(model, optimizer, arguments.steps // 2)
checkpoint = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)

checkpoint.seek(0)
state = torch.load(checkpoint)
model, optimizer = build()
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
train(model, optimizer, arguments.steps - arguments.steps // 2)

model.eval()  # carries out the last updates
with torch.inference_mode():
    right = (model(test.tensors[0]).argmax(1) == test.tensors[1]).float().mean().item()
if dist.get_rank() == 0:
    print(f"{right:.1%} of the test digits are recognized after {arguments.steps} steps")
    print(model.report())
dist.destroy_process_group()
