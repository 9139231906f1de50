"""Signals ask training to stop between two steps."""

import os
import signal
import threading

import pytest

from mini_tf.training.signals import StopRequest


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]
)
def test_the_first_signal_only_raises_a_flag_with_its_exit_code(number: signal.Signals, code: int) -> None:
    with StopRequest() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop
        assert stop.exit_code == code


def test_a_second_interrupt_leaves_at_once_but_a_second_term_does_not() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.exit_code == 143


def test_the_handlers_of_before_come_back_and_what_was_ignored_stays_ignored() -> None:
    before = signal.getsignal(signal.SIGINT)
    own = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            assert signal.getsignal(signal.SIGINT) is not before
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop
            assert stop.exit_code == 0
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGHUP, own)


def test_outside_the_main_thread_nothing_is_caught() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with StopRequest() as stop:
                assert not stop
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []


def fail_after_a_signal(error: Exception) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    raise error


def test_a_compiler_that_died_of_the_same_signal_is_no_bug() -> None:
    failure = type("CppCompileError", (RuntimeError,), {"__module__": "torch._inductor.exc"})("C++ compile error")
    with pytest.raises(SystemExit) as leaving, StopRequest():
        fail_after_a_signal(failure)
    assert leaving.value.code == 143
    with pytest.raises(RuntimeError, match="compile error"), StopRequest():
        raise failure
    with pytest.raises(KeyError), StopRequest():
        fail_after_a_signal(KeyError())


def test_what_one_is_asked_all_those_around_it_and_those_begun_later_know() -> None:
    with StopRequest() as outer:
        with StopRequest() as inner:
            os.kill(os.getpid(), signal.SIGTERM)
            assert (inner.exit_code, outer.exit_code) == (143, 143)
        with StopRequest() as later:
            assert later.exit_code == 143
    with StopRequest() as another:
        assert not another


def test_a_second_interrupt_leaves_at_once_from_within_another() -> None:
    with StopRequest() as outer:
        os.kill(os.getpid(), signal.SIGINT)
        with StopRequest(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert outer.exit_code == 130
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
