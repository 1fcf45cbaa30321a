"""What a forecast warns of: what does not fit, and what it does not count."""

from __future__ import annotations

from hpcfl.plan.device_memory import gpu_memory, gpus
from hpcfl.plan.forecast import Forecast
from hpcfl.utils.formatting import format_memory


def warnings(forecast: Forecast) -> list[str]:
    """Returns messages about what will not fit or is not counted."""
    messages = [*forecast.plan.spec.not_planned()]
    for node in range(forecast.machine.nodes):
        need, arena = forecast.node_memory(node).total, forecast.arena(node)
        memory, shared = format_memory(forecast.machine.memory), format_memory(forecast.machine.shared)
        if need > forecast.machine.memory:
            messages.append(f"node {node} needs {format_memory(need)}, it has {memory}")
        if arena > forecast.machine.shared and forecast.plan.config.runtime.arena in ("auto", "shared"):
            messages.append(
                f"the arena of node {node} needs {format_memory(arena)}, shared memory has {shared}: "
                "it will be a file, or refused if runtime.arena = 'shared'"
            )
    for number in gpus(forecast):
        available, need = forecast.machine.device_memory, gpu_memory(forecast, number).total
        if available is not None and need > available:
            name = f"{forecast.device_of[number]} of node {forecast.pools[number].node}"
            messages.append(f"{name} needs {format_memory(need)}, it has {format_memory(available)}")
    spare = len(forecast.workers) - forecast.plan.config.federation.per_round
    if spare > 0:
        have = "has" if spare == 1 else "have"
        messages.append(f"{spare} of {len(forecast.workers)} workers {have} no client to train in a round")
    return messages
