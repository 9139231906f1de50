"""Python's garbage collector is deferred while a command imports, and only then."""

import gc

from mini_tf.system.collector import defer_collection, resume_collection


def test_collection_resumes_once_with_its_usual_thresholds() -> None:
    usual = gc.get_threshold()
    try:
        defer_collection()
        assert gc.get_threshold() != usual
        resume_collection()
        assert gc.get_threshold() == usual
        assert gc.get_freeze_count() > 0
        gc.unfreeze()
        resume_collection()  # in a process that deferred nothing
        assert gc.get_freeze_count() == 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)
