"""A record that the second look found whole, but under a bit that was clear by then, was remembered: when the slot held
another model and that one was torn, the deleted model was shown as its earlier copy."""

import threading

from tests.core.helpers import ABSENT, EXACT, RETRIED, STALE, TORN, Slab, uniform_record


def test_what_was_read_under_a_clear_bit_is_not_remembered():
    slab = Slab()
    producer = slab.producer()
    hit = 0
    for _ in range(400):
        reader = slab.reader()
        producer.publish(4, uniform_record(4, 1))
        producer.bitmap_set(4)
        slab.tear(4)
        started, result = threading.Event(), []
        thread = threading.Thread(
            target=lambda r=reader, s=started, out=result: (s.set(), out.append(r.snapshot()[2][4]))
        )
        thread.start()
        started.wait()
        slab.tear(4)  # whole again, and the model deleted, both within the pause
        producer.bitmap_clear(4)
        thread.join()
        producer.publish(4, uniform_record(4, 2))
        producer.bitmap_set(4)
        slab.tear(4)
        if result[0] == RETRIED:
            hit += 1
            assert reader.snapshot()[2][4] == TORN
            if hit == 5:
                break
        else:
            assert result[0] in (ABSENT, TORN)
    assert hit, "never hit the pause"
    slab.close()


def test_a_read_by_name_of_a_slot_that_is_not_in_use_is_not_remembered():
    slab = Slab()
    producer, reader = slab.producer(), slab.reader()
    left_behind = producer.publish(4, uniform_record(4, 1))  # its bit is clear
    assert reader.read_record(4) == (EXACT, left_behind)
    producer.publish(4, uniform_record(4, 2))
    producer.bitmap_set(4)
    slab.tear(4)
    assert reader.snapshot()[2][4] == TORN
    assert reader.read_record(4) == (TORN, None)
    slab.tear(4)
    assert reader.read_record(4)[0] == EXACT
    slab.tear(4)
    assert reader.read_record(4)[0] == STALE
    producer.bitmap_clear(4)
    assert reader.read_record(4) == (TORN, None)  # the model that was known is gone
    producer.bitmap_set(4)
    assert reader.read_record(4) == (TORN, None)
    slab.close()
