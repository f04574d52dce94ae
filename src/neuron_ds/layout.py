"""THE table: where every byte of a slab is, and what every counter means.

This module knows offsets, sizes, indices, names, units and kinds, and nothing else: no files, no clocks, no
bytes of any real slab. The C header ``csrc/nds_layout.h`` and the page ``docs/reference/layout.md`` are
generated from it by ``tools/gen_layout.py``; nobody else writes a layout number down.

Little-endian throughout. Offsets and sizes are bytes from the start of the blob unless a name says index,
which counts 8-byte words. Core numbers are physical cores within the device.
"""

from __future__ import annotations

from neuron_ds.errors import BadIndex

# --- Header -------------------------------------------------------------------------------------------------

SIGNATURE = b"nds\0"
VERSION = 100000
#: The header as the one 8-byte word that is stored and compared: signature below, version above.
HEADER_WORD = int.from_bytes(SIGNATURE, "little") | VERSION << 32

# --- Shapes -------------------------------------------------------------------------------------------------

SLAB_SIZE = 262144
SLOTS_PER_DEVICE = 16
MAX_DEVICES = 64
MAX_CORES = 16
#: Cores whose counters 0-30 live in the original section; the others live wholly in the extension.
BASE_CORES = 4
ND_COUNTERS = 31
BASE_NC_COUNTERS = 31
NC_COUNTERS = 95
EXT_NC_COUNTERS = NC_COUNTERS - BASE_NC_COUNTERS
#: Words per core in the extension's data section: 95 counters and one word of padding.
EXT_NC_STRIDE = 96
MAX_MODELS = 64
MEM_LOCATIONS = ("host", "device")
MEM_SLOTS = 12
MEM_SLOT_NAMES = ("code", "tensors", "constants", "scratchpad", "misc")
UUID_SIZE = 16

# --- Records ------------------------------------------------------------------------------------------------


class Field:
    """One field of a record: name, byte offset, type, C declaration and what it is for."""

    __slots__ = ("count", "help", "name", "offset", "size", "type")

    def __init__(self, name: str, offset: int, type: str, help: str, count: int = 1) -> None:
        self.name, self.offset, self.type, self.help, self.count = name, offset, type, help, count
        self.size = TYPE_SIZES[type] * count


TYPE_SIZES = {"u8": 1, "i8": 1, "char": 1, "u32": 4, "u64": 8, "version": 8, "mem_usage": 16}

VERSION_FIELDS = (
    Field("major", 0, "u8", "major version"),
    Field("minor", 1, "u8", "minor version"),
    Field("pad", 2, "u8", "alignment; carries nothing", 2),
    Field("build", 4, "u32", "build number"),
)
MEM_USAGE_FIELDS = (
    Field("total_size", 0, "u64", "bytes allocated"),
    Field("chunk_count", 8, "u32", "number of allocations"),
    Field("pad", 12, "u8", "alignment; carries nothing", 4),
)
MODEL_FIELDS = (
    Field("hash", 0, "u32", "FNV-1a-32 of the record with this word zero"),
    Field("model_id", 4, "u32", "id of the loaded model; its subgraphs share it"),
    Field("model_node_id", 8, "u32", "id of this node of the model"),
    Field("name", 12, "char", "text; a NUL ends it unless it fills the field", 256),
    Field("uuid", 268, "u8", "16 raw bytes", UUID_SIZE),
    Field("nc_index", 284, "u8", "physical NeuronCore within the device"),
    Field("sg_index", 285, "u8", "subgraph number"),
    Field("pad", 286, "u8", "alignment; carries nothing", 2),
    Field("mem_usage", 288, "mem_usage", "[location: host, device][slot]", len(MEM_LOCATIONS) * MEM_SLOTS),
)
PROCESS_INFO_FIELDS = (
    Field("hash", 0, "u32", "FNV-1a-32 of the record with this word zero"),
    Field("framework_type", 4, "i8", "framework that drives the runtime, signed"),
    Field("tag", 5, "char", "text naming the process; right behind framework_type, not aligned", 32),
    Field("pad", 37, "u8", "alignment; carries nothing", 3),
    Field("framework_version", 40, "version", "version of the framework"),
    Field("fal_version", 48, "version", "version of the framework abstraction layer"),
    Field("runtime_version", 56, "version", "version of the runtime"),
)
PROCESS_INFO_EXT_FIELDS = (
    Field("hash", 0, "u32", "FNV-1a-32 of the record with this word zero"),
    Field("tag", 4, "char", "the long tag; where present it stands before the short one", 256),
)

MODEL_SIZE = 672
PROCESS_INFO_SIZE = 64
PROCESS_INFO_EXT_SIZE = 260

# Object types as the published header numbers them.
OBJECT_MODEL_NODE = 0
OBJECT_PROCESS_INFO = 1
OBJECT_PROCESS_INFO_EXT = 2

# --- Regions ------------------------------------------------------------------------------------------------


class Region:
    """A contiguous part of the blob: name, byte offset, size, shape in words and what it protects or holds."""

    __slots__ = ("help", "name", "offset", "shape", "size")

    def __init__(self, name: str, offset: int, size: int, shape: str, help: str) -> None:
        self.name, self.offset, self.size, self.shape, self.help = name, offset, size, shape, help

    @property
    def end(self) -> int:
        """First byte behind the region."""
        return self.offset + self.size


HEADER = Region("header", 0, 8, "signature, i32 version", "one 8-byte store makes the blob readable")
ND_REGION = Region("nd_counters", 8, ND_COUNTERS * 8, "31 x u64", "counters of the device")
NC_REGION = Region(
    "nc_counters", 256, BASE_CORES * BASE_NC_COUNTERS * 8, "4 cores x 31 x u64", "cores 0-3, counters 0-30"
)
PROCESS_INFO = Region("process_info", 1248, PROCESS_INFO_SIZE, "record", "who publishes: versions and short tag")
MODEL_BITMAP = Region("model_bitmap", 1312, 8, "u64", "bit s set: model slot s is in use")
MODELS = Region("models", 1320, MAX_MODELS * MODEL_SIZE, "64 x record", "the loaded models")
PROCESS_INFO_EXT = Region("process_info_ext", 44328, PROCESS_INFO_EXT_SIZE, "record", "the long tag")
PAD = Region("pad", 44588, 11348, "unused", "where older runtimes keep the extension")
EXT_NC_REGION = Region(
    "ext_nc_counters", 55936, BASE_CORES * EXT_NC_COUNTERS * 8, "4 cores x 64 x u64", "cores 0-3, counters 31-94"
)
EXT_NC_DATA = Region(
    "ext_nc_data",
    57984,
    (MAX_CORES - BASE_CORES) * EXT_NC_STRIDE * 8,
    "12 cores x 96 x u64",
    "cores 4-15, counters 0-94 and a word of padding",
)
REGIONS = (
    HEADER,
    ND_REGION,
    NC_REGION,
    PROCESS_INFO,
    MODEL_BITMAP,
    MODELS,
    PROCESS_INFO_EXT,
    PAD,
    EXT_NC_REGION,
    EXT_NC_DATA,
)
REQUIRED_SIZE = EXT_NC_DATA.end
REQUIRED_WORDS = REQUIRED_SIZE // 8

# The older extension layout lived in today's pad, four bytes off alignment, under the same version number.
OLDER_EXT_NC_STRIDE = 65
OLDER_EXT_NC_REGION = Region(
    "older_ext_nc_counters",
    PAD.offset,
    BASE_CORES * OLDER_EXT_NC_STRIDE * 8,
    "4 cores x 65 x u64",
    "cores 0-3, counters 31-95 of an older runtime",
)
OLDER_EXT_NC_DATA = Region(
    "older_ext_nc_data",
    OLDER_EXT_NC_REGION.end,
    (MAX_CORES - BASE_CORES) * EXT_NC_STRIDE * 8,
    "12 cores x 96 x u64",
    "cores 4-15, counters 0-95 of an older runtime",
)

# --- Counters -----------------------------------------------------------------------------------------------

COUNTER = "counter"  # only grows
GAUGE = "gauge"  # goes both ways
LAST_VALUE = "last value"  # set after each execution
INFO = "info"
BITMAP = "bitmap"  # only ever OR-ed
RESERVED = "reserved"


class CounterDef:
    """What one counter means.

    name: lower case of the published enumerator without its prefix. unit: ``us``, ``bytes``, ``1`` or "".
    kind: one of the constants above. sysfs: its name in the driver's sysfs tree, "" where it has none.
    """

    __slots__ = ("help", "index", "kind", "name", "symbol", "sysfs", "unit")

    def __init__(self, symbol: str, index: int, name: str, kind: str, unit: str, sysfs: str, help: str) -> None:
        self.symbol, self.index, self.name, self.kind = symbol, index, name, kind
        self.unit, self.sysfs, self.help = unit, sysfs, help


_ND_TABLE = (
    ("runtime_version", INFO, "", "packed version of the runtime"),
    ("framework_version", INFO, "", "packed version of the framework; its reserved bits hold the framework type"),
    ("fal_version", INFO, "", "packed version of the framework abstraction layer"),
    ("feature_bitmap", BITMAP, "", "features in use; bit 0 test feature, bit 1 multicore"),
    ("min_neff_version", INFO, "", "oldest model file version the runtime loads"),
    ("max_neff_version", INFO, "", "newest model file version the runtime loads"),
    ("mem_usage_code_host", GAUGE, "bytes", "host memory used for model code"),
    ("mem_usage_tensors_host", GAUGE, "bytes", "host memory used for tensors"),
    ("mem_usage_constants_host", GAUGE, "bytes", "host memory used for constants"),
    ("mem_usage_scratchpad_host", GAUGE, "bytes", "host memory used as scratchpad"),
    ("mem_usage_misc_host", GAUGE, "bytes", "host memory used for everything else"),
    ("dynamic_sysfs_metric_bitmap", BITMAP, "", "metrics the runtime asks the driver to show"),
    ("device_cluster_id", INFO, "", "id of the cluster the device belongs to"),
    ("agg_neff_id", INFO, "", "id over the loaded model files (newer runtimes)"),
)

_NC_TABLE = (
    ("time_in_use", COUNTER, "us", "nc_time_in_use", "time the core spent executing"),
    ("infer_completed", COUNTER, "1", "success", "executions that completed without error"),
    (
        "infer_completed_with_err",
        COUNTER,
        "1",
        "execute_completed_with_error",
        "executions that completed with an error",
    ),
    (
        "infer_completed_with_num_err",
        COUNTER,
        "1",
        "execute_completed_with_num_error",
        "executions that completed with a numerical error",
    ),
    ("infer_timed_out", COUNTER, "1", "timeout", "executions that did not finish in time: a hang or a dead peer"),
    ("infer_incorrect_input", COUNTER, "1", "exec_bad_input", "executions refused for their input"),
    ("infer_failed_to_queue", COUNTER, "1", "execute_failed_to_queue", "executions that found the queue full"),
    ("err_generic", COUNTER, "1", "generic_error", "errors of no other class"),
    ("err_numerical", COUNTER, "1", "", "numerical errors, NaN among them"),
    ("err_model", COUNTER, "1", "", "errors caused by the model"),
    ("err_transient", COUNTER, "1", "", "errors that a retry may cure"),
    ("err_hw", COUNTER, "1", "hw_error", "hardware errors of no finer class"),
    ("err_rt", COUNTER, "1", "", "errors of the runtime"),
    ("latency_device", LAST_VALUE, "us", "", "device latency of the last execution"),
    ("latency_total", LAST_VALUE, "us", "", "total latency of the last execution, queueing included"),
    ("nc_time", LAST_VALUE, "us", "", "time on the core of the last execution"),
    ("generic_fail", COUNTER, "1", "failure", "runtime calls that failed"),
    ("err_resource", COUNTER, "1", "resource_error", "runtime calls that lacked a resource"),
    ("err_resource_nc", COUNTER, "1", "resource_nc_error", "loads that did not find enough cores"),
    ("err_invalid", COUNTER, "1", "invalid_error", "runtime calls with an invalid argument"),
    (
        "err_unsupported_neff_version",
        COUNTER,
        "1",
        "unsupported_neff_version",
        "loads of a model file version the runtime does not know",
    ),
    ("cc_time", LAST_VALUE, "us", "", "time in collectives of the last execution"),
    ("mem_usage_code_device", GAUGE, "bytes", "", "device memory used for model code"),
    ("mem_usage_tensors_device", GAUGE, "bytes", "", "device memory used for tensors"),
    ("mem_usage_constants_device", GAUGE, "bytes", "", "device memory used for constants"),
    ("mem_usage_scratchpad_device", GAUGE, "bytes", "", "device memory used as scratchpad"),
    ("mem_usage_misc_device", GAUGE, "bytes", "", "device memory used for everything else"),
    ("model_load_count", COUNTER, "1", "model_load_count", "models loaded onto the core"),
    ("inference_count", COUNTER, "1", "inference_count", "successful inferences"),
    ("mac_count", COUNTER, "1", "flop_count", "multiply-accumulates; twice this is the FLOP count"),
    ("oob", COUNTER, "1", "oob_error", "out-of-bound accesses"),
    ("hw_err_collectives", COUNTER, "1", "hw_collectives_error", "hardware errors in collectives"),
    ("hw_err_hbm_ue", COUNTER, "1", "hw_hbm_ue_error", "uncorrectable HBM errors: replace the device"),
    ("hw_err_nc_ue", COUNTER, "1", "hw_nc_ue_error", "uncorrectable errors inside the core"),
    ("hw_err_dma_abort", COUNTER, "1", "hw_dma_abort_error", "DMA transfers the hardware aborted"),
    ("err_sw_nq_overflow", COUNTER, "1", "execute_sw_nq_overflow", "notification queue overflows"),
    ("err_sw_semaphore_error", COUNTER, "1", "execute_sw_semaphore_error", "semaphore errors"),
    ("err_sw_event_error", COUNTER, "1", "execute_sw_event_error", "event errors"),
    ("err_sw_psum_collision", COUNTER, "1", "execute_sw_psum_collision", "collisions in the partial-sum buffer"),
    ("err_sw_sequencer_fatal", COUNTER, "1", "execute_sw_sequencer_fatal", "fatal sequencer errors"),
    (
        "hw_err_repairable_hbm_ue",
        COUNTER,
        "1",
        "hw_repairable_hbm_ue_error",
        "uncorrectable HBM errors that a repair can cure",
    ),
)


def _nd_defs() -> tuple[CounterDef, ...]:
    named = [
        CounterDef(f"NDS_ND_COUNTER_{name.upper()}", i, name, kind, unit, "", help)
        for i, (name, kind, unit, help) in enumerate(_ND_TABLE)
    ]
    return (*named, *_reserved("NDS_ND_COUNTER", len(named), ND_COUNTERS))


def _nc_defs() -> tuple[CounterDef, ...]:
    named = []
    for i, (name, kind, unit, sysfs, help) in enumerate(_NC_TABLE):
        prefix = "NDS_NC_COUNTER" if i < BASE_NC_COUNTERS else "NDS_EXT_NC_COUNTER"
        named.append(CounterDef(f"{prefix}_{name.upper()}", i, name, kind, unit, sysfs, help))
    return (*named, *_reserved("NDS_EXT_NC_COUNTER", len(named), NC_COUNTERS))


def _reserved(prefix: str, first: int, end: int) -> tuple[CounterDef, ...]:
    return tuple(
        CounterDef(f"{prefix}_RESERVED_{i}", i, f"reserved_{i}", RESERVED, "", "", "reserved; nobody should touch it")
        for i in range(first, end)
    )


ND = _nd_defs()
NC = _nc_defs()
ND_BY_NAME = {c.name: c for c in ND}
NC_BY_NAME = {c.name: c for c in NC}

# --- Addresses ----------------------------------------------------------------------------------------------


def nd_index(counter: int) -> int:
    """Word index of device counter 0-30. Raises BadIndex (EINVAL) for any other."""
    if not 0 <= counter < ND_COUNTERS:
        raise BadIndex(f"device counter {counter} does not exist; there are {ND_COUNTERS}, from 0")
    return ND_REGION.offset // 8 + counter


def nc_index(core: int, counter: int) -> int:
    """Word index of counter 0-94 of physical core 0-15. Raises BadIndex (EINVAL) for any other."""
    if not 0 <= core < MAX_CORES:
        raise BadIndex(f"core {core} does not exist; the format has {MAX_CORES} physical cores, from 0")
    if not 0 <= counter < NC_COUNTERS:
        raise BadIndex(f"core counter {counter} does not exist; there are {NC_COUNTERS}, from 0")
    if core >= BASE_CORES:
        return EXT_NC_DATA.offset // 8 + (core - BASE_CORES) * EXT_NC_STRIDE + counter
    if counter < BASE_NC_COUNTERS:
        return NC_REGION.offset // 8 + core * BASE_NC_COUNTERS + counter
    return EXT_NC_REGION.offset // 8 + core * EXT_NC_COUNTERS + counter - BASE_NC_COUNTERS


def older_nc_offset(core: int, counter: int) -> int:
    """Byte offset (not aligned to 8) of a counter that an older runtime keeps in the pad.

    Only for counters the current layout keeps in the extension. Raises BadIndex (EINVAL) for any other.
    """
    if BASE_CORES <= core < MAX_CORES and 0 <= counter < NC_COUNTERS:
        return OLDER_EXT_NC_DATA.offset + ((core - BASE_CORES) * EXT_NC_STRIDE + counter) * 8
    if 0 <= core < BASE_CORES and BASE_NC_COUNTERS <= counter < NC_COUNTERS:
        return OLDER_EXT_NC_REGION.offset + (core * OLDER_EXT_NC_STRIDE + counter - BASE_NC_COUNTERS) * 8
    raise BadIndex(f"core {core} counter {counter} is not in the older extension")


def model_offset(slot: int) -> int:
    """Byte offset of model record 0-63. Raises BadIndex (EINVAL) for any other."""
    if not 0 <= slot < MAX_MODELS:
        raise BadIndex(f"model slot {slot} does not exist; there are {MAX_MODELS}, from 0")
    return MODELS.offset + slot * MODEL_SIZE
