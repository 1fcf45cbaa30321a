"""FedProto and FedTGP by HtFLlib, whose directory `system` is the second argument, in one process.

With a third argument it only writes the clients' files, which HtFLlib reads anew whenever it needs them.
"""

import sys
from argparse import Namespace
from pathlib import Path

import load_torchvision  # noqa: F401  # before HtFLlib, which needs it
import numpy as np
import torch
from task import Classifier, ClientData, read_task, report

sys.path.insert(0, sys.argv[2])
task = read_task()
HTCNN8 = [
    f"CNN({task.shape[0]}, {task.classes}, {task.shape[1]}, {convolutions}, {task.features}, {hidden})"
    for hidden in ([], [512], [1024], [1024, 512])
    for convolutions in (1, 2)
]
"""cnn1 to cnn8 as HtFLlib's own class builds them."""


def write_clients() -> None:
    data = ClientData(task)
    for part in ("train", "test"):
        directory = Path("../dataset/task", part)
        directory.mkdir(parents=True, exist_ok=True)
        for client in range(task.clients):
            x, y = data[client]
            np.savez(directory / f"{client}.npz", data=np.array({"x": x, "y": y}, dtype=object))


def main() -> None:
    from flcore.servers.serverproto import FedProto
    from flcore.servers.servertgp import FedTGP
    from flcore.trainmodel import models

    class ReportingFedProto(FedProto):
        def receive_protos(self):
            super().receive_protos()
            report(len(self.Budget) + 1)

    class ReportingFedTGP(FedTGP):
        def update_TGP(self):
            super().update_TGP()
            report(len(self.Budget) + 1)

    torch.set_num_threads(task.workers)
    models.make_network = lambda: Classifier(task)
    args = Namespace(
        device="cpu",
        dataset="task",
        algorithm=task.method,
        models=HTCNN8 if task.network == "htcnn8" else ["make_network()"],
        num_classes=task.classes,
        feature_dim=task.features,
        batch_size=task.batch_size,
        local_epochs=task.epochs,
        local_learning_rate=task.lr,
        global_rounds=task.rounds - 1,
        num_clients=task.clients,
        join_ratio=task.participants / task.clients,
        random_join_ratio=False,
        few_shot=0,
        time_select=False,
        goal="bench",
        time_threthold=10000,
        top_cnt=100,
        auto_break=False,
        save_folder_name="temp",
        models_folder_name="",
        eval_gap=task.rounds + 1,
        client_drop_rate=0.0,
        train_slow_rate=0.0,
        send_slow_rate=0.0,
        lamda=task.weight,
        server_epochs=task.server_epochs,
        margin_threthold=100.0,
    )
    (ReportingFedProto if task.method == "fedproto" else ReportingFedTGP)(args, 0).train()


if __name__ == "__main__":
    write_clients() if len(sys.argv) > 3 else main()
