"""Half a surrogate pair in a text, a number for a text, True or 1.5 for a number: bare errors, or zeros in a slab."""

import os
import uuid

import pytest

from neuron_ds import datastore
from neuron_ds.driver import directory
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import BadIndex, BadValue
from neuron_ds.records import ModelNode, ProcessInfo, ProcessInfoExt
from neuron_ds.runtime import ApiFailure, DeviceMemory, HostMemory, Runtime

HALF = "a\ud800b"


class Number:
    """A whole number that is no int, as numpy's are."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


# --- Texts and uuids


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda value: ModelNode.build(model_id=1, name=value), "name"),
        (lambda value: ModelNode.build(model_id=1).replace(name=value), "name"),
        (lambda value: ProcessInfo.build(tag=value), "tag"),
        (lambda value: ProcessInfoExt.build(tag=value), "tag"),
    ],
)
def test_a_text_is_text_or_bytes(build, field):
    for value in (HALF, "\udc7f", "\udd00", 0, 5, 1 << 80, None, [65]):
        with pytest.raises(BadValue, match=f"^{field} "):
            build(value)
    for value in ("\udc80\udcff", b"\x80\xff", bytearray(b"\x80\xff"), memoryview(b"\x80\xff")):
        assert getattr(build(value), field) == "\udc80\udcff"


def test_a_tag_in_half_gives_the_slot_back(driver):
    with pytest.raises(BadValue, match="^tag has half a character at 1"):
        datastore.publish(0, driver=driver, tag=HALF)
    assert driver.owners(0) == []


def test_a_uuid_is_no_number_but_may_be_a_uuid():
    known = uuid.uuid4()
    for value in (known, str(known), known.hex, known.bytes, bytearray(known.bytes)):
        assert ModelNode.build(model_id=1, uuid=value).uuid == known.bytes
    for value in (16, 1 << 80, None, list(known.bytes), "no uuid", known.int):
        with pytest.raises(BadValue, match=r"^uuid is .*uuid\.UUID"):
            ModelNode.build(model_id=1, uuid=value)
    with pytest.raises(BadValue, match="^uuid is 15 bytes long"):
        ModelNode.build(model_id=1, uuid=bytes(15))


def test_the_variable_with_the_long_tag_is_named(driver, monkeypatch):
    monkeypatch.setenv(datastore.TAG_VARIABLE, "x" * 257)
    with pytest.raises(BadValue, match="^NEURON_PROCESS_TAG: tag is 257 bytes long; the field holds 256"):
        datastore.publish(0, driver=driver)
    assert driver.owners(0) == []
    with pytest.raises(BadValue, match="^tag is 258 bytes long"):
        datastore.publish(0, driver=driver, tag="x" * 258)
    with datastore.publish(0, driver=driver, tag="short") as producer:
        assert producer.snapshot().tag == "short"


# --- Numbers of devices, processes and slots


@pytest.mark.parametrize("odd", [True, False, 1.5, 0.0, "0", b"0", [0]])
def test_a_device_pid_or_slot_is_a_whole_number(driver, odd):
    with pytest.raises(BadIndex, match="the device is"):
        datastore.publish(odd, driver=driver)
    assert driver.devices() == []
    with pytest.raises(BadIndex, match="the device is"):
        datastore.attach(1, odd, driver=driver)
    for numbers, what in (({"pid": odd}, "the pid"), ({"slot": odd}, "the slot")):
        with pytest.raises(BadIndex, match=f"device 7: {what} is") as bad:
            datastore.attach(device=7, driver=driver, **numbers)
        assert bad.value.device == 7


def test_whole_numbers_of_other_types_will_do(driver):
    with datastore.publish(Number(0), driver=driver) as producer:
        assert type(producer.device) is int
        with datastore.attach(Number(os.getpid()), Number(0), driver=driver) as reader:
            assert (reader.pid, reader.device) == (os.getpid(), 0)
        with datastore.attach(slot=Number(producer.slot), driver=driver) as reader:
            assert reader.slot == producer.slot


# --- Events of a runtime


def test_a_kind_of_event_that_is_none(driver):
    with datastore.publish(0, driver=driver) as producer:
        runtime, before = Runtime(producer), producer.snapshot().raw
        for call, kinds in (
            (lambda: runtime.api_failed(0, 99), ApiFailure),
            (lambda: runtime.api_failed(0, DeviceMemory.CODE), ApiFailure),
            (lambda: runtime.device_memory(0, 99, 1), DeviceMemory),
            (lambda: runtime.device_memory(0, HostMemory.CODE, 1), DeviceMemory),
            (lambda: runtime.host_memory(99, 1), HostMemory),
            (lambda: runtime.host_memory("CODE", 1), HostMemory),
        ):
            with pytest.raises(BadIndex, match=f"is no {kinds.__name__}; it is one of ") as bad:
                call()
            assert (bad.value.device, bad.value.pid, bad.value.slot) == (0, producer.pid, producer.slot)
        assert producer.snapshot().raw == before


# --- The group that may read


@pytest.mark.parametrize("number", ["99999999999", "4294967295", "4294967296", "1" * 5000])
def test_a_group_that_no_kernel_has(root, monkeypatch, number):
    monkeypatch.setenv("NEURON_DS_GROUP", number)
    with pytest.raises(BadValue, match=f"^NEURON_DS_GROUP is {number}; .* 0 to 4294967294$"):
        directory.reader_group()
    with pytest.raises(BadValue, match="NEURON_DS_GROUP"):
        SoftwareDriver(root).probe(0)
    monkeypatch.setenv("NEURON_DS_GROUP", "4294967294")
    assert directory.reader_group() == 4294967294
