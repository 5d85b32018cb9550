"""Ops against their formulas in f64, forward and backward."""

import mixtape
import numpy as np
import pytest


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def values(buffer):
    return np.from_dlpack(buffer).astype(np.float64)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def softmax64(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_matmul():
    a, b, dy = random(5, 7), random(7, 3, seed=1), random(5, 3, seed=2)
    tape = mixtape.Tape()
    va, vb = tape.parameter(a), tape.parameter(b)
    y = mixtape.matmul(va, vb)
    close(values(y.value), a.astype(np.float64) @ b)
    tape.backward(y, dy)
    close(values(va.grad), dy.astype(np.float64) @ b.T)
    close(values(vb.grad), a.T.astype(np.float64) @ dy)
    assert mixtape.matmul(va, tape.constant(random(4, 7)), trans_b=True).value.shape == (5, 4)
    assert mixtape.matmul(tape.constant(a.astype(np.float16)), tape.constant(b.astype(np.float16)),
                          out=mixtape.DType.f32).value.dtype == mixtape.DType.f32
    with pytest.raises(mixtape.Error, match="matmul"):
        mixtape.matmul(va, va)


def test_softmax():
    x, dy = random(4, 9), random(4, 9, seed=1).astype(np.float64)
    tape = mixtape.Tape()
    v = tape.parameter(x)
    assert v.requires_grad and v.grad is None
    y = mixtape.softmax(v)
    wanted = softmax64(x.astype(np.float64))
    close(values(y.value), wanted)
    tape.backward(y, dy.astype(np.float32))
    close(values(v.grad), wanted * (dy - (wanted * dy).sum(-1, keepdims=True)))
    v.clear_grad()
    assert v.grad is None


def test_kl_div():
    teacher, student = random(3, 11), random(3, 11, seed=1)
    tape = mixtape.Tape()
    v = tape.parameter(student)
    loss = mixtape.kl_div(v, teacher, temperature=2.0)
    p, q = softmax64(teacher / 2.0), softmax64(student / 2.0)
    close(values(loss.value), (p * np.log(p / q)).sum(-1))
    tape.backward(loss, np.ones(3, np.float32))
    close(values(v.grad), (q - p) / 2.0)


def test_a_loss_of_one_element():
    tape = mixtape.Tape()
    v = tape.parameter(random(1, 5))
    tape.backward(mixtape.kl_div(v, random(1, 5, seed=1)))
    assert np.abs(values(v.grad)).max() > 0
    with pytest.raises(mixtape.Error):
        tape.backward(mixtape.softmax(v))


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_quantize_and_quantized_matmul(bits):
    w, x, dy = random(6, 64), random(5, 64, seed=1), random(5, 6, seed=2)
    q = mixtape.quantize_matrix(w, bits=bits, group_size=32)
    assert q.codes.shape == (6, 2 * bits) and q.scales.shape == q.biases.shape == (6, 2)
    assert (q.bits, q.group_size) == (bits, 32)

    tape = mixtape.Tape()
    weight = mixtape.QuantizedVar(q.codes, tape.parameter(q.scales), tape.parameter(q.biases), bits, 32)
    decoded = values(mixtape.dequantize_affine(weight).value)
    step = np.repeat(np.abs(values(q.scales)), 32, axis=-1)
    assert (np.abs(decoded - w) <= 1.01 * step).all()

    vx = tape.parameter(x)
    y = mixtape.quantized_matmul(vx, weight)
    close(values(y.value), x.astype(np.float64) @ decoded.T)
    tape.backward(y, dy)
    close(values(vx.grad), dy.astype(np.float64) @ decoded)
    dw = dy.T.astype(np.float64) @ x
    close(values(weight.biases.grad), dw.reshape(6, 2, 32).sum(-1))
    scales, biases = (np.repeat(values(b), 32, axis=-1) for b in (q.scales, q.biases))
    codes = np.rint((decoded - biases) / scales)
    np.testing.assert_allclose(values(weight.scales.grad), (dw * codes).reshape(6, 2, 32).sum(-1), rtol=1e-4, atol=1e-3)


def test_a_weight_that_is_not_finite_is_named():
    w = random(4, 64)
    w[2, 5] = np.nan
    with pytest.raises(mixtape.Error, match="row 2"):
        mixtape.quantize_matrix(w)
