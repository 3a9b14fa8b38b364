"""Values that are made on first use."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Event

import pytest

from interlingua.lazy import LateKernel, Once, compiled_module


def test_a_value_is_made_once_while_other_threads_wait():
    begun, go_on, made = Event(), Event(), []

    def make():
        begun.set()
        assert go_on.wait(timeout=30)
        made.append(object())
        return made[-1]

    value = Once(make)
    assert value.value is None
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(value)
        assert begun.wait(timeout=30)
        second = pool.submit(value)
        go_on.set()
        assert first.result(timeout=30) is second.result(timeout=30) is made[0] is value.value
    assert len(made) == 1


def test_after_an_error_the_next_call_tries_again():
    answers = iter([OSError("not there yet"), "there"])

    def make():
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    value = Once(make)
    with pytest.raises(OSError, match="not there yet"):
        value()
    assert value() == value() == "there"


def test_a_value_that_is_given_is_not_made():
    assert Once(lambda: pytest.fail("made"), "given")() == "given"


@pytest.mark.parametrize("part", ["", ".alignment", ".data", ".data.files", ".evaluation", ".index", ".retrieval"])
def test_a_package_gives_the_names_that_it_lists(part):
    package = import_module(f"interlingua{part}")
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_a_late_kernel_is_loaded_when_enough_was_done_without_it(monkeypatch):
    monkeypatch.setattr(LateKernel, "early", False)
    kernel = LateKernel("lazy", "slowly", worth=10)
    assert [getattr(kernel(work), "__name__", None) for work in (4, 5, 1)] == [None, None, "interlingua.lazy"]
    assert LateKernel("lazy", "slowly", worth=10)(9.5) is None
    monkeypatch.setattr(LateKernel, "early", True)
    assert LateKernel("lazy", "slowly", worth=10)(0) is not None


def test_no_kernel_is_used_where_numba_compiles_nothing(monkeypatch, caplog):
    config = pytest.importorskip("numba").config
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    assert compiled_module("lazy", "NumPy multiplies") is None
    assert "NUMBA_DISABLE_JIT is set), so NumPy multiplies, which is slower" in caplog.text
