"""FedAvg by pfl-research, on processes that torchrun starts."""

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.ops.selector import get_default_framework_module as get_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from task import Classifier, ClientData, read_task, report

task = read_task()


class Network(Classifier):
    def loss(self, x, y):
        self.train()
        return torch.nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x, y):
        self.eval()
        return {"loss": Weighted(torch.nn.functional.cross_entropy(self(x), y).item() * len(y), len(y))}


class Rounds(TrainingProcessCallback):
    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        if get_ops().distributed.global_rank == 0:
            report(central_iteration + 1)
        return False, Metrics()


def main():
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002  # pfl draws from it
    torch.manual_seed(0)
    network, data = Network(task), ClientData(task)
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    users = FederatedDataset(
        lambda user: Dataset(raw_data=list(data.tensors(user)), user_id=str(user)),
        get_user_sampler("minimize_reuse", list(range(task.clients))),
    )
    params = NNAlgorithmParams(
        central_num_iterations=task.rounds,
        evaluation_frequency=task.rounds + 1,
        train_cohort_size=task.participants,
        val_cohort_size=0,
    )
    train = NNTrainHyperParams(
        local_batch_size=task.batch_size, local_num_epochs=task.epochs, local_learning_rate=task.lr
    )
    backend = SimulatedBackend(training_data=users, val_data=None)
    FederatedAveraging().run(params, backend, model, train, callbacks=[Rounds()])


if __name__ == "__main__":
    main()
