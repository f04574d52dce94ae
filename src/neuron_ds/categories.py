"""The categories that the vendor's tools sum counters into: how executions ended, kinds of errors, kinds of memory.

Whoever tells figures by these names takes them from here. This module knows counters by name and no value of any.
"""

from __future__ import annotations

from neuron_ds.layout import NC_BY_NAME, ND_BY_NAME, CounterDef

#: How executions ended, in the order of the vendor's stream. One that never ran ended too.
STATUS_TYPES: dict[str, CounterDef] = {
    "completed": NC_BY_NAME["infer_completed"],
    "completed_with_err": NC_BY_NAME["infer_completed_with_err"],
    "completed_with_num_err": NC_BY_NAME["infer_completed_with_num_err"],
    "timed_out": NC_BY_NAME["infer_timed_out"],
    "incorrect_input": NC_BY_NAME["infer_incorrect_input"],
    "failed_to_queue": NC_BY_NAME["infer_failed_to_queue"],
}
#: Those of them that ran to their end.
COMPLETIONS: tuple[CounterDef, ...] = tuple(c for name, c in STATUS_TYPES.items() if name.startswith("completed"))

ERROR_TYPES: dict[str, CounterDef] = {
    "generic": NC_BY_NAME["err_generic"],
    "numerical": NC_BY_NAME["err_numerical"],
    "transient": NC_BY_NAME["err_transient"],
    "model": NC_BY_NAME["err_model"],
    "runtime": NC_BY_NAME["err_rt"],
    "hardware": NC_BY_NAME["err_hw"],
}

#: Device memory of a core: one gauge each.
DEVICE_MEMORY: dict[str, CounterDef] = {
    "constants": NC_BY_NAME["mem_usage_constants_device"],
    "model_code": NC_BY_NAME["mem_usage_code_device"],
    "model_shared_scratchpad": NC_BY_NAME["mem_usage_scratchpad_device"],
    "runtime_memory": NC_BY_NAME["mem_usage_misc_device"],
    "tensors": NC_BY_NAME["mem_usage_tensors_device"],
}
#: Host memory of a slab: the gauges that are summed.
HOST_MEMORY: dict[str, tuple[CounterDef, ...]] = {
    "application_memory": (ND_BY_NAME["mem_usage_misc_host"],),
    "constants": (ND_BY_NAME["mem_usage_constants_host"],),
    "dma_buffers": (ND_BY_NAME["mem_usage_code_host"], ND_BY_NAME["mem_usage_scratchpad_host"]),
    "tensors": (ND_BY_NAME["mem_usage_tensors_host"],),
}
