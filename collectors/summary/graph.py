"""The graph of a network, as TensorBoard shows it."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ..validation import wrong_type, wrong_value

if TYPE_CHECKING:
    import torch


# What torch.utils.tensorboard writes as well: TensorBoard only asks for a number that is not too small.
_PRODUCER = 22

# Name, operation, names of the inputs, facts.
_Node = tuple[str, str, list[str], dict[str, str]]


def is_torch_network(network: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(network, torch.nn.Module)


def network_graph(network: torch.nn.Module) -> bytes:
    """Returns a serialized GraphDef of a PyTorch network: its data flow, or, without edges, its tree of layers."""
    from tensorboard.compat.proto.attr_value_pb2 import AttrValue
    from tensorboard.compat.proto.graph_pb2 import GraphDef
    from tensorboard.compat.proto.node_def_pb2 import NodeDef
    from tensorboard.compat.proto.versions_pb2 import VersionDef

    from ..networks.torch_network import unwrap

    network = unwrap(network)
    try:
        # By torch.fx, which runs nothing and needs no inputs, but cannot follow a path that depends on the data.
        nodes = _data_flow(network)
    except Exception:
        # Tracing runs the user's forward function on symbols, which may raise anything.
        nodes = _layer_tree(network)
    definitions = [
        NodeDef(
            name=name, op=operation, input=inputs, attr={key: AttrValue(s=fact.encode()) for key, fact in facts.items()}
        )
        for name, operation, inputs, facts in nodes
    ]
    return bytes(GraphDef(node=definitions, versions=VersionDef(producer=_PRODUCER)).SerializeToString())


def parse_graph(name: str, value: Any) -> bytes:
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    serialize = getattr(value, "SerializeToString", None)
    content = serialize() if callable(serialize) else value
    if not isinstance(content, bytes | bytearray):
        raise wrong_type(name, "a torch.nn.Module, a GraphDef or a serialized GraphDef (bytes)", value)
    try:
        nodes = len(GraphDef.FromString(bytes(content)).node)
    except DecodeError as error:
        raise wrong_value(name, f"a GraphDef, which it cannot be parsed as ({error})", value) from error
    if not nodes:
        raise wrong_value(name, "a GraphDef with at least one node", value)
    return bytes(content)


def _data_flow(network: torch.nn.Module) -> list[_Node]:
    import torch

    # The layers' own bookkeeping (counters, caches) is copied, so that tracing leaves the network as it was; sharing
    # the parameters keeps the copy small.
    shared: dict[int, Any] = {id(parameter): parameter for parameter in network.parameters()}
    # Hooks are the user's and stay with the network: what they would be given here are symbols.
    for layer in network.modules():
        shared[id(layer._forward_hooks)] = OrderedDict()
        shared[id(layer._forward_pre_hooks)] = OrderedDict()
    copied = copy.deepcopy(network, shared)
    traced = torch.fx.Tracer().trace(copied)
    layers = dict(copied.named_modules())
    root = type(network).__name__
    names: dict[Any, str] = {}
    used: set[str] = set()
    nodes: list[_Node] = []
    for node in traced.nodes:
        is_named = node.op in ("call_module", "get_attr")
        path = str(node.target) if is_named else _scope(node)
        names[node] = name = _unused(used, root, path, "" if is_named else node.name)
        inputs = [names[source] for source in node.all_input_nodes]
        if node.op == "call_module":
            nodes.append((name, type(layers[path]).__name__, inputs, _facts(layers[path])))
        else:
            nodes.append((name, _operation(node), inputs, {}))
    return nodes


def _scope(node: torch.fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack and node.op not in ("placeholder", "output") else ""


def _operation(node: torch.fx.Node) -> str:
    if callable(node.target):
        return getattr(node.target, "__name__", str(node.target))
    return node.op if node.op in ("placeholder", "output", "get_attr") else str(node.target)


def _layer_tree(network: torch.nn.Module) -> list[_Node]:
    root = type(network).__name__
    used: set[str] = set()
    return [
        (_unused(used, root, path), type(layer).__name__, [], _facts(layer))
        for path, layer in network.named_modules()
        if not list(layer.children())
    ]


def _facts(layer: torch.nn.Module) -> dict[str, str]:
    facts = {"layer": layer.extra_repr()}
    for name, parameter in layer.named_parameters(recurse=False):
        facts[name] = f"{tuple(parameter.shape)} {str(parameter.dtype).removeprefix('torch.')}"
    return facts


def _unused(used: set[str], root: str, path: str, label: str = "") -> str:
    name = unused = "/".join(part for part in (root, path.replace(".", "/"), label) if part)
    count = 1
    while unused in used:
        unused, count = f"{name}_{count}", count + 1
    used.add(unused)
    return unused
