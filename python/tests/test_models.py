"""Models, as the program makes and measures them."""

import _thread
import os
import signal
import subprocess
import threading

import mixtape
import pytest

FEW = dict(length=65, rows=16, validation_rows=4, report_rows=4, device="cpu")


def weights(directory):
    return (directory / "model.safetensors").read_bytes()


def test_quantize_writes_what_the_program_writes(model, program, tmp_path):
    heard = []
    size = mixtape.quantize(model, tmp_path / "wheel", bits=3, device="cpu", progress=heard.append)
    subprocess.run([program, "quantize", "-m", model, "-o", tmp_path / "program", "--bits", "3", "--device", "cpu"],
                   check=True, capture_output=True)
    assert weights(tmp_path / "wheel") == weights(tmp_path / "program")
    assert 3 < size.bits_per_weight < 5 and size.bytes > 0 and size.weights > 0
    assert heard and heard[-1].done <= heard[-1].total and heard[-1].unit == "tensors"


def test_evaluate(model, text, tmp_path):
    mixtape.quantize(model, tmp_path / "q", bits=2, group_size=32, device="cpu")
    alone = mixtape.evaluate(model, text, length=64, max_tokens=1000, device="cpu")
    assert alone.kl is None and alone.perplexity > 1 and alone.perplexity_error > 0
    same = mixtape.evaluate(model, text, model, length=64, max_tokens=1000, device="cpu")
    assert same.kl.mean == 0 and same.top1_agreement == 1
    assert same.perplexity == alone.perplexity == same.teacher_perplexity
    copy = mixtape.evaluate(tmp_path / "q", text, model, length=64, max_tokens=1000, device="cpu")
    assert copy.kl.mean > 0 and 0 < copy.kl.mean_error < copy.kl.mean
    assert copy.kl.median <= copy.kl.p95 <= copy.kl.p99 <= copy.kl.max
    assert 0 < copy.top1_agreement < 1 and copy.top1_error > 0
    assert copy.teacher_perplexity == alone.perplexity and copy.positions == alone.positions
    assert copy.perplexity_ratio.value == pytest.approx(copy.perplexity / copy.teacher_perplexity)
    assert copy.perplexity_ratio.error > 0


def test_calibrate_writes_what_the_program_writes(model, text, program, tmp_path):
    stages = []
    report = mixtape.calibrate(model, tmp_path / "wheel", text, bits=2, group_size=32, effort=mixtape.Effort.fast,
                               progress=lambda p: stages.append(p.stage), **FEW)
    command = [program, "calibrate", "-m", model, "-o", tmp_path / "program", "--text", text[0], "--bits", "2",
               "--group-size", "32", "--recipe", "fast", "--length", "65", "--rows", "16", "--validation-rows", "4",
               "--report-rows", "4", "--device", "cpu"]
    subprocess.run(command, check=True, capture_output=True)
    assert weights(tmp_path / "wheel") == weights(tmp_path / "program")
    assert {"input statistics", "fitting", "evaluating initial fit", "writing"} <= set(stages)
    assert [s.method for s in report.stages][0] == "plain rounding"
    assert report.result.kl.mean < report.initial.kl.mean
    assert 0 < mixtape.kl_cut(report.initial, report.result).value < 1


def nothing_is_left(folder):
    return list(folder.iterdir()) == []


@pytest.fixture
def heeds_ctrl_c():
    """A shell's job in the background would ignore it, and so would Python."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_a_calibration(model, text, tmp_path, heeds_ctrl_c):
    def press(delay):
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        return timer

    trains = threading.Event()
    timers = []

    def progress(p):
        if p.stage == "training" and not timers:
            trains.set()
            timers.append(press(0.2))

    with pytest.raises(KeyboardInterrupt):
        mixtape.calibrate(model, tmp_path / "out", text, bits=3, effort=mixtape.Effort.best, progress=progress, **FEW)
    assert trains.is_set() and nothing_is_left(tmp_path)


def test_ctrl_c_needs_no_callback(model, text, tmp_path, heeds_ctrl_c):
    threading.Timer(0.5, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        mixtape.calibrate(model, tmp_path / "out", text, bits=3, effort=mixtape.Effort.best, **FEW)
    assert nothing_is_left(tmp_path)


def test_what_a_callback_raises_ends_the_run(model, tmp_path):
    def progress(p):
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        mixtape.quantize(model, tmp_path / "out", device="cpu", progress=progress)
    assert nothing_is_left(tmp_path)


def test_other_threads_run_meanwhile(model, text):
    beats = []

    def beat():
        while not done.wait(0.001):
            beats.append(1)

    done = threading.Event()
    thread = threading.Thread(target=beat)
    thread.start()
    mixtape.evaluate(model, text, length=64, device="cpu")
    done.set()
    thread.join()
    assert len(beats) > 3


def refused(code, words, call, *args, **kwargs):
    with pytest.raises(mixtape.Error, match=words) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code


def test_refused(model, text, tmp_path):
    (tmp_path / "there").mkdir()
    refused("io", "there", mixtape.quantize, model, tmp_path / "there", device="cpu")
    refused("invalid_argument", "nowhere: cannot open", mixtape.quantize, tmp_path / "nowhere", tmp_path / "out")
    refused("invalid_argument", "bits is 7", mixtape.quantize, model, tmp_path / "out", bits=7)
    refused("invalid_argument", "tokens", mixtape.evaluate, model, text, length=100000)
    refused("invalid_argument", "rows", mixtape.calibrate, model, tmp_path / "out", text, length=65,
            report_rows=100000)
    assert [f.name for f in tmp_path.iterdir()] == ["there"]
    with pytest.raises(TypeError):
        mixtape.quantize(model, tmp_path / "out", no_such_option=1)
