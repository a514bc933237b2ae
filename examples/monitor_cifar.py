"""A Monitor in a plain loop: DFA (credit_norm rms) is stopped after a few of its 100 epochs, backpropagation is not.

    OMP_NUM_THREADS=1 python examples/monitor_cifar.py dfa DATA_DIR 100     # method, CIFAR-10 files, epochs at the most

Every epoch prints its own processor time and that of the measurement after it (8 batches of 128).
"""

import math
import sys
import time

import torch

from creditscope import Monitor
from creditscope.credit.registry import make_rule
from creditscope.data import epoch_batches, eval_batches, load_dataset
from creditscope.models import ResMLP
from creditscope.training.build import build_stream
from creditscope.training.objective import Objective

SEED, EPOCHS, BATCH = 42, 100, 128
method, data_dir, last = sys.argv[1], sys.argv[2], int(sys.argv[3])

torch.set_num_threads(1)
torch.manual_seed(SEED)
data = load_dataset("cifar10", data_dir)
held_out = eval_batches(data)
model = ResMLP(3072, 10, width=256, depth=4)
stream = build_stream(model, held_out[0][0][:3])
rule = make_rule(method, {})
rule.setup(stream, 10, torch.Generator().manual_seed(SEED))
objective = Objective(stream, rule, "rms", "input", 0.0, 0)  # how the method turns a batch into gradients
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * math.ceil(len(data.train_y) / BATCH))

monitor = Monitor(model, held_out, credit=rule)  # the first of two lines
for epoch in range(1, last + 1):
    start = time.process_time()
    model.train()
    for x, y in epoch_batches(data, BATCH, SEED, epoch, augment=True):
        optimizer.zero_grad(set_to_none=True)
        objective.backward(x, y)
        optimizer.step()
        schedule.step()
    trained = time.process_time()
    fired = monitor.step(epoch)  # the second
    took, line = time.process_time() - trained, monitor.history[-1]
    print(
        f"{method} epoch {epoch}: accuracy {line['eval_accuracy']:.3f}, growth {line['growth']:.3g}, ‖g_L‖/128 "
        f"{line['g_per_sample'][-1] / 128:.2g}, fired {', '.join(fired) or 'nothing'}; epoch {trained - start:.2f} s, "
        f"monitor {took:.3f} s ({100 * took / (trained - start):.2f} %)",
        flush=True,
    )
    if monitor.should_stop:
        print(f"stopped after epoch {epoch} of {EPOCHS}")
        break
