"""Every test process uses one thread: tests run in parallel processes, and sums then come out the same everywhere."""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault(
    "CREDITSCOPE_CHECK_UNTOUCHED", "1"
)  # every measurement compares the model's state before and after

import torch  # noqa: E402  (the thread count is read when torch is loaded)

torch.set_num_threads(1)
