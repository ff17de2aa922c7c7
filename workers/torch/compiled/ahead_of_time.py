"""Compiles a network ahead of time into a library without its weights (PyTorch's AOTInductor, on CPUs)."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import os
import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import first_line
from ...hardware import unpin_thread

OPTIONS = {
    # Otherwise the values of small weights would be written into the code.
    "always_keep_tensor_constants": True,
    "aot_inductor.package_constants_in_so": False,
    # Each header is used once: compiling it beforehand takes 7 of 30 CPU seconds, and saves none.
    "aot_inductor.precompile_headers": False,
    # What calls the kernels gains nothing from optimization or notes for debuggers, which take 1 of 5.5 CPU seconds.
    "aot_inductor.compile_wrapper_opt_level": "O0",
    "aot_inductor.enable_line_tables": False,
}
"""Of the compiler, beside those of the plan."""
TRUSTED = {"cpp.vec_isa_ok": True}
"""Otherwise the compiler is tried out for each kind of vector instruction that the CPU has, in 7 CPU seconds."""
# What takes seconds, and is read when a library is made of it.
_PARTS = (".wrapper.o", ".kernel.o")
# By another thread than that which reads the network: two must not import at once what imports each other.
_NEEDED_BESIDE = ("torch._inductor.codecache", "torch._inductor.cpp_builder", "torch._inductor.cpu_vec_isa")


class PackageError(Exception):
    """A network cannot be packaged; the text says why."""


def compile_ahead(
    network: nn.Module, inputs: tuple[torch.Tensor, ...], options: dict[str, Any], tensors: Collection[str]
) -> bytes:
    """Returns a library for an eval-mode network on the CPU and inputs of these shapes, or raises PackageError."""
    # Other workers of this machine wait meanwhile for what is compiled here.
    with warnings.catch_warnings(), torch.no_grad(), ThreadPoolExecutor(initializer=unpin_thread) as threads:
        warnings.simplefilter("ignore")
        try:
            for module in _NEEDED_BESIDE:
                importlib.import_module(module)
            with torch._inductor.config.patch(options | TRUSTED):
                # It waits for compilers, in which time this thread reads the network.
                asked = threads.submit(contextvars.copy_context().run, _ask_for_instructions)
                program = _export(network, inputs, tensors)
                asked.result()
            try:
                with _side_by_side(threads):
                    return _compile(program, inputs, options | TRUSTED)
            except Exception:  # perhaps the compiler is older than the CPU
                forget_instructions()
                return _compile(program, inputs, options)
        except PackageError:
            raise
        except Exception as error:
            raise PackageError(f"it cannot be compiled ahead of time: {first_line(error)}") from error


def _export(
    network: nn.Module, inputs: tuple[torch.Tensor, ...], tensors: Collection[str]
) -> torch.export.ExportedProgram:
    program = torch.export.export(network, inputs, strict=False)
    # Only in this form does it say what is changed in place.
    signature = program.run_decompositions({}).graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise PackageError("it changes its buffers or inputs")
    if len(signature.user_outputs) != 1 or not program.call_spec.out_spec.is_leaf():
        raise PackageError("its output is not one tensor")
    # ``tensors`` are the names of its parameters and buffers; other constants are made in its code.
    if not set(program.constants) <= set(tensors):
        raise PackageError("it makes tensors of numbers")
    return program


def _compile(program: torch.export.ExportedProgram, inputs: tuple[torch.Tensor, ...], options: dict[str, Any]) -> bytes:
    return Path(str(torch._inductor.aot_compile(program.module(), inputs, options=options))).read_bytes()


def _ask_for_instructions() -> None:
    """Lets PyTorch find out, by a few small compilations, which vector instructions it may use; it remembers that."""
    with contextlib.suppress(Exception):
        from torch._inductor import cpu_vec_isa

        cpu_vec_isa.valid_vec_isa_list()


def forget_instructions() -> None:
    """Lets PyTorch find out anew which vector instructions the CPU and its compiler have."""
    from torch._inductor import cpu_vec_isa

    remembering: list[Any] = [type(item).__bool__ for item in cpu_vec_isa.supported_vec_isa_list]
    for function in (*remembering, cpu_vec_isa.valid_vec_isa_list):
        with contextlib.suppress(AttributeError):
            function.cache_clear()


@contextlib.contextmanager
def _side_by_side(threads: ThreadPoolExecutor) -> Iterator[None]:
    """Lets the C++ compiler make all parts of a library at once; PyTorch makes one after another."""
    from torch._inductor import cpp_builder

    kind = getattr(cpp_builder, "CppBuilder", None)
    build: Callable[[Any], None] | None = getattr(kind, "build", None)
    if kind is None or build is None:
        yield
        return
    thread, parts = threading.get_ident(), list[Future[None]]()

    def begin(builder: Any) -> None:
        if threading.get_ident() != thread:
            build(builder)
        elif os.fspath(builder.get_target_file_path()).endswith(_PARTS):
            parts.append(threads.submit(contextvars.copy_context().run, build, builder))
        else:
            # A library is made of all its parts.
            while parts:
                parts.pop().result()
            build(builder)

    kind.build = begin
    try:
        yield
    finally:
        kind.build = build
        for part in parts:
            part.exception()
