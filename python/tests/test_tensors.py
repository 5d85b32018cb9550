"""Buffers are views of arrays, and arrays views of buffers: nothing is copied."""

import gc
import weakref

import mixtape
import numpy as np
import pytest

DTYPES = {
    "float32": mixtape.DType.f32,
    "float16": mixtape.DType.f16,
    "int32": mixtape.DType.i32,
    "uint32": mixtape.DType.u32,
    "uint8": mixtape.DType.u8,
    "uint16": mixtape.DType.u16,
}


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_both_ways(name):
    array = np.arange(6, dtype=name).reshape(2, 3)
    buffer = mixtape.from_dlpack(array)
    assert (buffer.dtype, buffer.shape, buffer.device) == (DTYPES[name], (2, 3), "cpu")
    view = np.from_dlpack(buffer)
    assert view.ctypes.data == array.ctypes.data
    assert view.shape == (2, 3) and view.dtype == array.dtype
    array[1, 2] = 9
    assert view[1, 2] == 9


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int32", "uint8"])
def test_torch_both_ways(name):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6).to(getattr(torch, name)).reshape(3, 2)
    view = torch.from_dlpack(mixtape.from_dlpack(tensor))
    assert view.data_ptr() == tensor.data_ptr()
    assert view.dtype == tensor.dtype and view.shape == (3, 2)
    view[0, 0] = 7
    assert tensor[0, 0] == 7


def test_torch_and_numpy_see_one_memory():
    torch = pytest.importorskip("torch")
    array = np.zeros(4, np.float32)
    tensor = torch.from_dlpack(mixtape.from_dlpack(array))
    tensor += 1
    assert array.tolist() == [1, 1, 1, 1]


def test_what_an_op_made_is_not_copied_either():
    tape = mixtape.Tape()
    y = mixtape.softmax(tape.constant(np.zeros((2, 4), np.float32)))
    first, second = np.from_dlpack(y.value), np.from_dlpack(y.value)
    assert first.ctypes.data == second.ctypes.data
    assert first.tolist() == [[0.25] * 4] * 2


def test_a_parameter_is_the_array():
    array = np.ones((2, 2), np.float32)
    parameter = mixtape.Tape().parameter(array)
    assert np.from_dlpack(parameter.value).ctypes.data == array.ctypes.data


def test_memory_lives_as_long_as_someone_sees_it():
    array = np.arange(4, dtype=np.float32)
    freed = weakref.ref(array)
    view = np.from_dlpack(mixtape.from_dlpack(array))
    del array
    gc.collect()
    assert freed() is not None and view.tolist() == [0, 1, 2, 3]
    del view
    gc.collect()
    assert freed() is None


def test_shapes_without_elements_and_without_axes():
    assert mixtape.from_dlpack(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert mixtape.from_dlpack(np.array(5, np.float32)).shape == ()
    assert mixtape.from_dlpack(np.zeros((1, 5, 1), np.float32)).reshape([5]).shape == (5,)


def refused(array, code, words):
    with pytest.raises(mixtape.Error, match=words) as caught:
        mixtape.from_dlpack(array)
    assert caught.value.code == code


def test_refused():
    whole = np.zeros((4, 6), np.float32)
    refused(whole[:, ::2], "invalid_argument", "axis 1 has a stride of 2 elements, expected 1")
    refused(whole.T, "invalid_argument", "axis 1 has a stride of 6 elements")
    refused(whole.astype(np.float64), "invalid_argument", "found elements of 64 bits")
    refused([1.0, 2.0], "invalid_argument", "found list, expected an array that speaks DLPack")
    whole.flags.writeable = False
    refused(whole, "invalid_argument", "may be written to")


def test_errors_are_runtime_errors():
    assert issubclass(mixtape.Error, RuntimeError)
    with pytest.raises(mixtape.Error, match="reshape: f32.4. has 4 elements"):
        mixtape.from_dlpack(np.zeros(4, np.float32)).reshape([3])
    with pytest.raises(mixtape.Error, match="'nowhere' is unknown"):
        mixtape.Tape("nowhere")
