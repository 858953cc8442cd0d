from sharded import ShardedTrainer
from torch import nn

net = nn.Linear(4, 4)
trainer = ShardedTrainer(net)
trainer.optimizer.step()  # event: Step(of=net, sharding=earlier)
