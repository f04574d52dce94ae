"""``neuron_k8s_info``: which pod and container each runtime is of, in a group like the others.

The vendor's tools have a group of this name without a public description; what is in ours is this project's. This
module knows processes and identities; how they were learned it doesn't.
"""

from __future__ import annotations

from collections.abc import Iterable

from neuron_ds.collect import Process, ProcessSample, process_of
from neuron_ds.identity import Identities
from neuron_ds.records import printable


def kubernetes_info(
    processes: Iterable[ProcessSample], identities: Identities, period_s: float, error: str
) -> dict[str, object]:
    """The group. Runtimes that are of no pod are not in it; a name that isn't known is ""."""
    found: dict[Process, dict[str, object]] = {}
    for p in processes:
        who = identities.of(p.owner)
        if who.pod_uid:
            found[process_of(p.owner)] = {
                "pid": p.owner.pid,
                "pod_uid": who.pod_uid,
                "container_id": who.container_id,
                "namespace": printable(who.namespace),
                "pod_name": printable(who.pod),
                "container_name": printable(who.container),
            }
    return {"period": max(0.0, period_s), "error": error, "neuron_runtimes": list(found.values())}
