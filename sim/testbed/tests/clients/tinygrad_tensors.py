"""Typical use of tinygrad: copies in and out, kernels, a replayed graph.

A simulated kernel takes time and computes nothing, so only copies have values to compare.
"""

from tinygrad import Device, Tensor, TinyJit

numbers = list(range(1000))
tensor = Tensor(numbers).realize()
assert tensor.device == Device.DEFAULT and Device.DEFAULT.startswith("CUDA"), tensor.device
assert tensor.tolist() == numbers

total = (tensor * 2 + 1).sum().realize()
assert isinstance(total.item(), int)


@TinyJit
def step(x):
    return ((x + 1).realize() * 3).realize()


for _ in range(5):
    assert len(step(Tensor(numbers).realize()).tolist()) == len(numbers)
Device[Device.DEFAULT].synchronize()
print("done on", Device.DEFAULT, Device[Device.DEFAULT].renderer.__class__.__name__)
