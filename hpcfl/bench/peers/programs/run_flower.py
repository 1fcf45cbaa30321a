"""FedAvg by Flower: a ServerApp and a ClientApp in Flower's simulation, whose backend is Ray."""

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from task import Classifier, ClientData, read_task, report

task = read_task()
client_app, server_app = ClientApp(), ServerApp()
client_data = cache(ClientData)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    network = Classifier(task)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = client_data(task).tensors(int(context.node_config["partition-id"]))
    optimizer = torch.optim.SGD(network.parameters(), lr=task.lr)
    total = 0.0
    for _ in range(task.epochs):
        for batch in torch.randperm(len(y)).split(task.batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
    metrics = MetricRecord({"loss": total / len(y) / task.epochs, "num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


class ReportingFedAvg(FedAvg):
    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        if failed := [reply.error.reason for reply in replies if reply.has_error()]:
            raise RuntimeError(f"{len(failed)} of {len(replies)} clients failed: {failed[0]}")
        if len(replies) != task.participants:
            raise RuntimeError(f"{len(replies)} clients trained, not {task.participants}")
        result = super().aggregate_train(server_round, replies)
        report(server_round)
        return result


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = ReportingFedAvg(
        fraction_train=task.participants / task.clients,
        min_train_nodes=task.participants,
        fraction_evaluate=0.0,
        min_available_nodes=task.clients,
    )
    arrays = ArrayRecord(Classifier(task).state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=task.rounds)


if __name__ == "__main__":
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": task.workers, "include_dashboard": False},
    }
    run_simulation(server_app, client_app, num_supernodes=task.clients, backend_config=backend)
