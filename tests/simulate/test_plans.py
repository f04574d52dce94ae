"""Plans: who runs where."""

import re

import pytest

from neuron_ds.errors import BadValue
from neuron_ds.simulate import DEMO, Plan, Workload, plan


def placed(p):
    return [w.cores for w in p.workloads]


def block(device, first, last):
    return tuple((device, core) for core in range(first, last + 1))


def test_one_process_gets_the_whole_device():
    p = plan(["inference"])
    assert p.devices == ((0, "trn2"),)
    assert placed(p) == [block(0, 0, 7)]


def test_processes_share_the_cores_of_a_device_in_whole_logical_cores():
    assert placed(plan(["inference*3"])) == [block(0, 0, 3), block(0, 4, 5), block(0, 6, 7)]


def test_more_processes_than_logical_cores_share_physical_ones():
    assert placed(plan(["inference*6"]))[:3] == [block(0, 0, 1), block(0, 2, 3), block(0, 4, 4)]


def test_processes_are_spread_over_the_devices():
    p = plan(["inference*2", "idle*2"], devices=2, type="trn1")
    assert placed(p) == [((0, 0),), ((1, 0),), ((0, 1),), ((1, 1),)]


def test_a_device_can_be_named_and_the_others_balance_it():
    assert placed(plan(["training@0", "inference"], devices=2)) == [block(0, 0, 7), block(1, 0, 7)]


def test_named_cores_are_taken_and_the_rest_is_shared():
    p = plan(["inference*2", "hung@0/2-3", "idle@0/7"])
    assert placed(p) == [block(0, 0, 1) + block(0, 4, 5), ((0, 6),), block(0, 2, 3), ((0, 7),)]


def test_a_process_can_span_devices():
    p = plan(["training@0-1", "inference@1"], devices=2)
    assert placed(p) == [block(0, 0, 7) + block(1, 0, 3), block(1, 4, 7)]
    assert p.workloads[0].devices == (0, 1)
    assert placed(plan(["training@0-1/4-5"], devices=2)) == [block(0, 4, 5) + block(1, 4, 5)]


def test_processes_may_overlap_where_they_are_told_to():
    assert placed(plan(["inference*16@0/0-7"])) == [block(0, 0, 7)] * 16


@pytest.mark.parametrize("devices", [1, 2, 5])
@pytest.mark.parametrize("kind", ["trn1", "inf2", "trn2"])
def test_cores_are_disjoint_by_default(devices, kind):
    taken = [core for cores in placed(plan([f"inference*{2 * devices}"], devices=devices, type=kind)) for core in cores]
    assert len(set(taken)) == len(taken)


def test_parameters_seeds_models_and_tags():
    p = plan(["hung,after_s=3,model=resnet50,tag=my-job", "inference*2,tag=w,seed=40"], seed=7)
    hung, w0, w1 = p.workloads
    assert (hung.pattern.after_s, hung.model, hung.tag, hung.seed) == (3.0, "resnet50", "my-job", 7000)
    assert (w0.tag, w0.seed, w1.tag, w1.seed) == ("w-0", 40, "w-1", 41)


def test_processes_differ_in_seed_tag_and_model():
    p = plan(["inference*4"])
    assert len({w.seed for w in p.workloads}) == len({w.tag for w in p.workloads}) == 4
    assert len({w.model for w in p.workloads}) == 4
    assert p == plan(["inference*4"])
    assert p != plan(["inference*4"], seed=1)


def test_the_demo_has_something_of_everything():
    p = plan(DEMO, devices=2)
    assert {w.pattern.name for w in p.workloads} == {"inference", "training", "erring", "idle", "hung"}


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([], "no process to simulate"),
        (["Inference"], "does not read as PATTERN[*COUNT]"),
        (["inference*"], "does not read as"),
        (["inference@0/"], "does not read as"),
        (["sleeping"], "'sleeping': no pattern is called"),
        (["hung,when=3"], "'hung,when=3': hung has no parameter 'when'"),
        (["hung,seed=x"], "seed is a number"),
        (["idle*0"], "0 processes"),
        (["idle@3"], "there is only device 0; --devices 4 makes more"),
        (["training@0-1"], "there is only device 0; --devices 2 makes more"),
        (["idle@64"], "there can be up to 64"),
        (["idle@0/8"], "there are cores 0 to 7"),
        (["idle@0/3-1"], "the lower of a range first"),
        (["idle,model=eliza"], "no model is called 'eliza'"),
        (["idle*9"], "9 processes for 8 free cores"),
        (["idle*17@0/0"], "17 processes on one device, which has 16 slots"),
        (["idle*17"], "17 processes on one device, which has 16 slots, one for each; use more devices (--devices 3)"),
        (["idle*17@0"], "use fewer processes, or more devices"),
    ],
)
def test_a_bad_item_is_named(items, says):
    with pytest.raises(BadValue) as e:
        plan(items)
    assert says in str(e.value)


def test_the_advice_for_too_many_processes_works():
    for type, count in (("trn2", 9), ("trn2", 16), ("trn2", 17), ("trn2", 200), ("trn1", 3), ("trn1", 17)):
        with pytest.raises(BadValue) as e:
            plan([f"erring*{count}"], type=type)
        devices = int(re.search(r"--devices (\d+)", e.value.message)[1])
        assert len(plan([f"erring*{count}"], type=type, devices=devices).workloads) == count
        if shared := re.search(r"as in (\S+)", e.value.message):
            assert count <= 16
            assert len(plan([shared[1]], type=type).workloads) == count


def test_bad_devices_are_named():
    with pytest.raises(BadValue, match="65 devices"):
        plan(["idle"], devices=65)
    with pytest.raises(BadValue, match="type 'gpu' is unknown"):
        plan(["idle"], type="gpu")


def test_a_plan_can_be_made_by_hand():
    p = Plan(((0, "trn1"),), (Workload(cores=((0, 1),)),))
    assert p.workloads[0].devices == (0,)
