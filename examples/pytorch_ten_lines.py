"""A PyTorch model in ten lines: how far is this input from another class, exactly?

python examples/pytorch_ten_lines.py
"""

import torch

import layercert as lc

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
x = torch.rand(8)

network = lc.from_torch(model)
result = lc.measure(network, x.numpy(), norm="linf")
print(result)
print("nearest input of another class:", result.witness.round(3))
