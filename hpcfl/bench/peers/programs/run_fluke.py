"""FedAvg and FedProto by fluke, in one process."""

import load_torchvision  # noqa: F401  # before fluke, which needs it

# isort: split
import torch
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.algorithms.fedproto import FedProto
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.nets import EncoderHeadNet
from fluke.utils import FederationObserver
from task import Classifier, ClientData, read_task, report

task = read_task()


class Network(EncoderHeadNet):
    def __init__(self):
        network = Classifier(task)
        super().__init__(network.extractor, network.fc)

    def forward(self, x):
        return self.head(self.encoder(x))


class Rounds(FederationObserver):
    def end_round(self, round):
        report(round)


def loaders():
    data = ClientData(task)
    for client in range(task.clients):
        x, y = data.tensors(client)
        yield FastDataLoader(x, y, num_labels=task.classes, batch_size=task.batch_size, shuffle=True)


def main():
    torch.set_num_threads(task.workers)
    env = FlukeENV()
    env.set_seed(0)
    env.set_device("cpu")
    env.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    container = DummyDataContainer(list(loaders()), [None] * task.clients, None, task.classes)
    splitter = DataSplitter(container, distribution="iid")
    client = {
        "batch_size": task.batch_size,
        "local_epochs": task.epochs,
        "loss": "CrossEntropyLoss",
        "optimizer": {"name": "SGD", "lr": task.lr},
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1.0},
    }
    if task.method == "fedavg":
        client["persistency"] = False
        settings = {"client": client, "server": {"weighted": True}, "model": Network()}
        federation = FedAVG(task.clients, splitter, DDict(settings))
    else:
        client |= {"model": "__main__.Network", "n_protos": task.classes, "lam": task.weight}
        server = {"weighted": True, "n_protos": task.classes}
        settings = {"client": client, "server": server, "model": None}
        federation = FedProto(task.clients, splitter, DDict(settings))
    federation.set_callbacks(Rounds())
    federation.run(n_rounds=task.rounds, eligible_perc=task.participants / task.clients, finalize=False)


if __name__ == "__main__":
    main()
