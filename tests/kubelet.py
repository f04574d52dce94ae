"""A kubelet that answers as a test says: the pod-resources API on a unix socket, by the official protobuf library.

Knows the API's messages by their descriptors, none of our own decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: Message: its fields as number, name, type, whether repeated.
MESSAGES = {
    "NUMANode": [(1, "ID", "int64", False)],
    "TopologyInfo": [(1, "nodes", "NUMANode", True)],
    "ContainerDevices": [
        (1, "resource_name", "string", False),
        (2, "device_ids", "string", True),
        (3, "topology", "TopologyInfo", False),
    ],
    "ContainerResources": [
        (1, "name", "string", False),
        (2, "devices", "ContainerDevices", True),
        (3, "cpu_ids", "int64", True),
    ],
    "PodResources": [
        (1, "name", "string", False),
        (2, "namespace", "string", False),
        (3, "containers", "ContainerResources", True),
        (4, "started_at", "double", False),  # not the API's: of a kind that a newer one might have
    ],
    "ListPodResourcesResponse": [(1, "pod_resources", "PodResources", True)],
}


def _classes() -> Mapping[str, type]:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind, repeated in fields:
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if kind in MESSAGES:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".v1.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in MESSAGES}


API = _classes()

#: namespace/pod/container: the ids that it holds by resource; the resource without the vendor's domain.
Held = Mapping[str, Mapping[str, list[str]]]


def answer(held: Held) -> bytes:
    """What kubelet answers."""
    response = API["ListPodResourcesResponse"]()
    pods: dict[tuple[str, str], object] = {}
    for place, resources in held.items():
        namespace, pod, container = place.split("/")
        if (namespace, pod) not in pods:
            pods[namespace, pod] = response.pod_resources.add(name=pod, namespace=namespace, started_at=1.5)
        one = pods[namespace, pod].containers.add(name=container, cpu_ids=[0, 300])
        for resource, ids in resources.items():
            device = one.devices.add(resource_name=resource if "/" in resource else f"aws.amazon.com/{resource}")
            device.device_ids.extend(ids)
            device.topology.nodes.add(ID=1)
    return response.SerializeToString()


@contextmanager
def kubelet(path: str, answers: Callable[[], bytes]) -> Iterator[list[bytes]]:
    """It listens on the path; the list has every request that came."""
    asked: list[bytes] = []

    def list_(request: bytes, context: grpc.ServicerContext) -> bytes:
        asked.append(request)
        return answers()

    handlers = {"List": grpc.unary_unary_rpc_method_handler(list_)}
    with futures.ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        try:
            yield asked
        finally:
            server.stop(None).wait()
